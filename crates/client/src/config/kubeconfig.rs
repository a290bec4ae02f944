//! Reads a kubeconfig: the file that kubectl and everybody else reads.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{Config, Credentials, Error, Impersonate, Plugin, Trust, read};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    clusters: Vec<Named<Cluster>>,
    #[serde(default)]
    contexts: Vec<Named<Context>>,
    #[serde(default)]
    users: Vec<Named<User>>,
    #[serde(default)]
    current_context: String,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "context", alias = "user")]
    value: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
    namespace: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
    #[serde(rename = "as-groups", default)]
    impersonate_groups: Vec<String>,
    exec: Option<Exec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exec {
    command: PathBuf,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    api_version: String,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    value: String,
}

/// Reads one context of a file; without a name, the current one.
pub(super) fn load(path: &Path, context: Option<&str>) -> Result<Config, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    // Messages must not quote the file: it holds keys and tokens.
    let options = serde_saphyr::options! { with_snippet: false };
    let file: File = serde_saphyr::from_str_with_options(&text, options)
        .map_err(|error| Error::Kubeconfig { path: path.to_owned(), message: error.to_string() })?;
    // Relative paths in it are meant from where it lies.
    select(file, context, path.parent().unwrap_or(Path::new(".")))
}

fn select(file: File, context: Option<&str>, directory: &Path) -> Result<Config, Error> {
    let name = context.unwrap_or(&file.current_context);
    let context = find("context", &file.contexts, name)?;
    let cluster = find("cluster", &file.clusters, &context.cluster)?;
    let nobody = User::default();
    let user = if context.user.is_empty() { &nobody } else { find("user", &file.users, &context.user)? };
    let mut config = Config::new(&cluster.server);
    config.server_name.clone_from(&cluster.tls_server_name);
    config.trust = trust(cluster, directory)?;
    config.credentials = credentials(user, directory)?;
    if let Some(namespace) = context.namespace.as_ref().filter(|namespace| !namespace.is_empty()) {
        config.namespace.clone_from(namespace);
    }
    config.impersonate = user
        .impersonate
        .as_ref()
        .map(|name| Impersonate { user: name.clone(), groups: user.impersonate_groups.clone() });
    Ok(config)
}

fn find<'a, T>(what: &'static str, entries: &'a [Named<T>], name: &str) -> Result<&'a T, Error> {
    let entry = entries.iter().find(|entry| entry.name == name);
    entry.map(|entry| &entry.value).ok_or_else(|| Error::Missing { what, name: name.to_owned() })
}

fn trust(cluster: &Cluster, directory: &Path) -> Result<Trust, Error> {
    if cluster.insecure_skip_tls_verify {
        return Ok(Trust::Insecure);
    }
    let pem = content(
        "certificate authority",
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
        directory,
    )?;
    pem.map_or(Ok(Trust::System), |pem| Trust::bundle(&pem))
}

fn credentials(user: &User, directory: &Path) -> Result<Credentials, Error> {
    // In kubectl's order: a token file wins over a token, both over a plugin.
    let credentials = if let Some(path) = &user.token_file {
        Credentials::token_file(directory.join(path))
    } else if let Some(token) = user.token.as_ref().filter(|token| !token.is_empty()) {
        Credentials::token(token)?
    } else if let Some(exec) = &user.exec {
        Credentials::plugin(plugin(exec, directory))
    } else {
        Credentials::default()
    };
    if user.client_certificate_data.is_none()
        && user.client_key_data.is_none()
        && let (Some(chain), Some(key)) = (&user.client_certificate, &user.client_key)
    {
        return credentials.and_certificate_files(directory.join(chain), directory.join(key));
    }
    let chain = content(
        "client certificate",
        user.client_certificate_data.as_deref(),
        user.client_certificate.as_deref(),
        directory,
    )?;
    let key = content("client key", user.client_key_data.as_deref(), user.client_key.as_deref(), directory)?;
    match (chain, key) {
        (Some(chain), Some(key)) => credentials.and_certificate(&chain, &key),
        (None, None) => Ok(credentials),
        _ => Err(Error::Pem { what: "client certificate", message: "certificate and key come together".to_owned() }),
    }
}

fn plugin(exec: &Exec, directory: &Path) -> Plugin {
    // A bare name is looked up in PATH; a relative path is meant from the file.
    let bare = exec.command.components().count() == 1;
    Plugin {
        command: if bare { exec.command.clone() } else { directory.join(&exec.command) },
        args: exec.args.clone().unwrap_or_default(),
        env: exec.env.iter().flatten().map(|variable| (variable.name.clone(), variable.value.clone())).collect(),
        api_version: exec.api_version.clone(),
        // Parts of a cluster have no terminal.
        ..Plugin::default()
    }
}

/// PEM given in place (base64), or in a file.
fn content(
    what: &'static str,
    data: Option<&str>,
    path: Option<&Path>,
    directory: &Path,
) -> Result<Option<Vec<u8>>, Error> {
    match (data.filter(|data| !data.is_empty()), path) {
        (Some(data), _) => {
            let compact: String = data.split_ascii_whitespace().collect();
            let decoded = STANDARD.decode(compact);
            decoded.map(Some).map_err(|error| Error::Pem { what, message: error.to_string() })
        }
        (None, Some(path)) => read(&directory.join(path)).map(Some),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Config, Error> {
        select(serde_saphyr::from_str(text).expect("YAML"), None, Path::new("/nowhere"))
    }

    const TOKEN: &str = r#"
apiVersion: v1
kind: Config
preferences: {}
current-context: here
clusters:
- name: c
  cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true, tls-server-name: kubernetes}
contexts:
- name: here
  context: {cluster: c, user: u, namespace: team}
users:
- name: u
  user: {token: secret, as: someone, as-groups: [a, b]}
"#;

    #[test]
    fn the_current_context_is_read() {
        let config = check(TOKEN).expect("a configuration");
        assert_eq!(config.server, "https://127.0.0.1:6443");
        assert_eq!(config.server_name.as_deref(), Some("kubernetes"));
        assert_eq!(config.namespace, "team");
        assert!(matches!(config.trust, Trust::Insecure));
        let groups = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(config.impersonate, Some(Impersonate { user: "someone".to_owned(), groups }));
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn what_is_named_must_be_there() {
        let error = check(&TOKEN.replace("user: u,", "user: other,")).expect_err("no such user");
        assert_eq!(error.to_string(), "kubeconfig has no user \"other\"");
        let error = check(&TOKEN.replace("current-context: here", "current-context: there")).expect_err("no context");
        assert_eq!(error.to_string(), "kubeconfig has no context \"there\"");
    }

    #[test]
    fn data_must_be_base64_of_pem() {
        for data in ["\"%%%\"", "aGVsbG8="] {
            let text = TOKEN.replace("insecure-skip-tls-verify: true", &format!("certificate-authority-data: {data}"));
            assert!(matches!(check(&text), Err(Error::Pem { .. })), "{data}");
        }
    }
}
