//! Registry credentials from a pod's pull secrets: which of them fit an image.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Secret;
use node::cri::v1::AuthConfig;
use serde::Deserialize;

use super::records::{self, SecretUse};

#[derive(Debug, Deserialize, Default)]
struct DockerConfig {
    #[serde(default)]
    auths: std::collections::BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default, Clone)]
struct Entry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry(..)")
    }
}

/// Credentials, and the secret they are from; those of the node are from none.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub auth: AuthConfig,
    pub secret: Option<SecretUse>,
}

/// The credentials that fit an image, those for the longest path first: of the pod's secrets and of the node's own file, a
/// Docker `config.json`, which is read at every pull so that it can change at any time.
pub(super) fn matching(secrets: &[Arc<Secret>], file: &Path, image: &str) -> Vec<Key> {
    let target = normal(image);
    let mut found: Vec<(String, Key)> = Vec::new();
    let of_secrets =
        secrets.iter().flat_map(|secret| entries(secret).into_iter().map(move |pair| (Some(secret), pair)));
    let of_node = of_file(file).into_iter().map(|pair| (None, pair));
    for (secret, (registry, entry)) in of_secrets.chain(of_node) {
        let registry = trimmed(&registry);
        if fits(&registry, &target) {
            let auth = auth(&entry);
            let secret = secret.map(|secret| used(secret, &auth));
            found.push((registry, Key { auth, secret }));
        }
    }
    found.sort_by(|(a, _), (b, _)| b.cmp(a));
    found.into_iter().map(|(_, key)| key).collect()
}

fn used(secret: &Secret, auth: &AuthConfig) -> SecretUse {
    SecretUse {
        uid: secret.metadata.uid.clone().unwrap_or_default(),
        namespace: secret.metadata.namespace.clone().unwrap_or_default(),
        name: secret.metadata.name.clone().unwrap_or_default(),
        credential_hash: records::hash(&auth.username, &auth.password),
    }
}

fn of_file(file: &Path) -> Vec<(String, Entry)> {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::warn!(%error, file = %file.display(), "credentials not readable");
            return Vec::new();
        }
    };
    match serde_json::from_slice::<DockerConfig>(&text) {
        Ok(config) => config.auths.into_iter().collect(),
        Err(_) => {
            // What is wrong could quote a password.
            tracing::warn!(file = %file.display(), "credentials are not in the form of a Docker configuration");
            Vec::new()
        }
    }
}

fn entries(secret: &Secret) -> Vec<(String, Entry)> {
    let data = secret.data.as_ref();
    let get = |key: &str| data.and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
    match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => get(".dockerconfigjson")
            .and_then(|bytes| serde_json::from_slice::<DockerConfig>(bytes).ok())
            .map(|config| config.auths.into_iter().collect())
            .unwrap_or_default(),
        Some("kubernetes.io/dockercfg") => get(".dockercfg")
            .and_then(|bytes| serde_json::from_slice::<std::collections::BTreeMap<String, Entry>>(bytes).ok())
            .map(|map| map.into_iter().collect())
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn auth(entry: &Entry) -> AuthConfig {
    let (mut username, mut password) = (entry.username.clone(), entry.password.clone());
    // One field may hold both, as `user:password` in base64.
    if let Some((user, pass)) = BASE64_STANDARD
        .decode(entry.auth.trim())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| text.split_once(':').map(|(u, p)| (u.to_owned(), p.trim_end_matches('\0').to_owned())))
    {
        (username, password) = (user, pass);
    }
    AuthConfig { username, password, ..Default::default() }
}

/// A registry as it is compared: without scheme, without the version paths of old configurations.
fn trimmed(registry: &str) -> String {
    let plain = registry.strip_prefix("https://").or_else(|| registry.strip_prefix("http://")).unwrap_or(registry);
    let plain = plain.trim_end_matches('/');
    let plain = plain.strip_suffix("/v1").or_else(|| plain.strip_suffix("/v2")).unwrap_or(plain);
    if plain == "docker.io" { "index.docker.io".to_owned() } else { plain.to_owned() }
}

/// An image as `host/path`, with the host that short names stand for.
fn normal(image: &str) -> String {
    let name = image.split('@').next().unwrap_or(image);
    let cut = name.rfind('/').map_or(0, |at| at + 1);
    let name = name[cut..].find(':').map_or(name, |at| &name[..cut + at]);
    match name.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
            let host = if host == "docker.io" { "index.docker.io" } else { host };
            format!("{host}/{rest}")
        }
        Some(_) => format!("index.docker.io/{name}"),
        None => format!("index.docker.io/library/{name}"),
    }
}

/// Whether a registry pattern (`*.example.com:5000/path`) fits: part by part of the host, then the path's beginning.
fn fits(pattern: &str, image: &str) -> bool {
    let split = |text: &str| {
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, port) = host.split_once(':').unwrap_or((host, ""));
        (host.split('.').map(str::to_owned).collect::<Vec<_>>(), port.to_owned(), path.to_owned())
    };
    let ((pattern_host, pattern_port, pattern_path), (host, port, path)) = (split(pattern), split(image));
    pattern_port == port
        && pattern_host.len() == host.len()
        && path.starts_with(&pattern_path)
        && pattern_host.iter().zip(&host).all(|(pattern, part)| glob(pattern, part))
}

/// `*` stands for any characters.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).filter(|&at| rest.is_char_boundary(at)).any(|at| glob(tail, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(auths: serde_json::Value) -> Arc<Secret> {
        let config = serde_json::json!({"auths": auths}).to_string();
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "type": "kubernetes.io/dockerconfigjson",
                "data": {".dockerconfigjson": BASE64_STANDARD.encode(config)},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn the_most_specific_credentials_come_first() {
        let secret = secret(serde_json::json!({
            "https://r.example.com/v1/": {"username": "a", "password": "p"},
            "r.example.com/team": {"auth": BASE64_STANDARD.encode("b:q:r")},
            "*.example.com": {"username": "c"},
            "other.example.com:5000": {"username": "d"},
            "docker.io": {"username": "e"},
        }));
        let users = |image: &str| -> Vec<String> {
            matching(std::slice::from_ref(&secret), Path::new("/nonexistent"), image)
                .into_iter()
                .map(|key| key.auth.username)
                .collect()
        };
        assert_eq!(users("r.example.com/team/x:1"), ["b", "a", "c"]);
        assert_eq!(users("r.example.com/x"), ["a", "c"]);
        assert_eq!(users("other.example.com:5000/x"), ["d"]);
        assert_eq!(users("busybox"), ["e"]);
        assert!(users("localhost/x").is_empty());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.json");
        assert_eq!(matching(&[secret], &file, "r.example.com/team/x")[0].auth.password, "q:r");
        std::fs::write(&file, r#"{"auths": {"r.example.com": {"username": "file"}}}"#).unwrap();
        let of_file = matching(&[], &file, "r.example.com/team/x").remove(0);
        assert_eq!((of_file.auth.username.as_str(), of_file.secret), ("file", None));
        std::fs::write(&file, "{").unwrap();
        assert!(matching(&[], &file, "r.example.com/team/x").is_empty());
    }
}
