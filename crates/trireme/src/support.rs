//! `trireme support`: one archive with what somebody needs who is to help, and nothing that they must not have.
//!
//! What is in it is chosen, not filtered out of everything: health, figures, versions, which objects there are of the kinds that say how a cluster is, the ends of
//! logs, the names and sizes of files. No Secret, no ConfigMap, no key, no environment of a pod. Logs and configuration are looked through besides, line by
//! line, for what looks like a token or a key.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use client::{Client, Gvr, ListParams};
use node::tar::{Entry, archive};
use serde_json::Value;

use crate::component::Failure;
use crate::standalone::connect;

/// How much of a log's end.
const LOG: usize = 256 << 10;
/// How many objects of a kind.
const OBJECTS: u32 = 500;
/// How many files of the data directory are named.
const FILES: usize = 5_000;

#[derive(Debug, clap::Args)]
pub struct Support {
    /// The data directory of the server or agent on this machine.
    #[arg(long, value_name = "DIR", env = "TRIREME_DATA_DIR", default_value = "/var/lib/trireme")]
    data_dir: PathBuf,
    /// The archive to write; it must not exist.
    file: PathBuf,
}

/// Makes it. What cannot be had is said in it, in its place.
pub async fn run(options: &Support) -> Result<(), Failure> {
    let mut entries = vec![
        text("version", format!("trireme {} (Kubernetes {})\n", env!("CARGO_PKG_VERSION"), rules::names::VERSION)),
        text("machine", machine()),
        text("files", files(&options.data_dir)),
        text("config.yaml", log(Path::new(crate::config_file::FILE))),
        text("server.log", log(&options.data_dir.join("log"))),
        text("etcd.log", log(&options.data_dir.join("etcd/log"))),
        text("containerd.log", log(&options.data_dir.join("agent/containerd/log"))),
    ];
    match connect(&options.data_dir.join("admin.kubeconfig")) {
        Ok(client) => entries.extend(cluster(&client).await),
        Err(error) => entries.push(text("cluster", format!("{error}\n"))),
    }
    let mut out = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut out, 0o600);
    let failed = |error: std::io::Error| Failure::from(format!("{}: {error}", options.file.display()));
    let mut out = out.write(true).create_new(true).open(&options.file).map_err(failed)?;
    std::io::Write::write_all(&mut out, &archive(&entries)).map_err(failed)?;
    println!("{} written; look through it before you give it away", options.file.display());
    Ok(())
}

fn text(name: &str, content: String) -> Entry {
    Entry::file(&format!("trireme-support/{name}"), 0o600, content.into_bytes())
}

fn machine() -> String {
    let mut all = String::new();
    for path in ["/proc/version", "/proc/cmdline", "/proc/loadavg", "/proc/meminfo", "/proc/cgroups", "/etc/os-release"]
    {
        let content = fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
        let _ = writeln!(all, "--- {path}\n{}", redacted(&content));
    }
    all
}

/// The names, sizes and modes of the files below a directory.
fn files(directory: &Path) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let (mut all, mut pending, mut count) = (String::new(), vec![directory.to_owned()], 0);
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            count += 1;
            if count > FILES {
                all.push_str("and more\n");
                return all;
            }
            let _ =
                writeln!(all, "{:o} {:>12} {}", metadata.permissions().mode(), metadata.len(), entry.path().display());
            // Not into containers and volumes.
            let pods = ["containerd", "kubelet"].iter().any(|name| entry.file_name() == *name);
            if metadata.is_dir() && !pods {
                pending.push(entry.path());
            }
        }
    }
    all
}

/// The end of a log, line by line without what looks secret.
fn log(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => redacted(&String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG)..])),
        Err(error) => format!("{}: {error}\n", path.display()),
    }
}

/// A text without tokens and keys. A line that has one keeps its other words.
fn redacted(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        inside |= line.contains("-----BEGIN") && line.contains("PRIVATE KEY");
        if inside {
            inside = !line.contains("-----END");
            out.push_str("[key]\n");
            continue;
        }
        let named = ["token:", "password", "secret:", "authorization:"].iter().any(|word| {
            line.to_ascii_lowercase()
                .split_whitespace()
                .next()
                .is_some_and(|first| first.trim_matches(['"', '-']).starts_with(word))
        });
        if named {
            let _ = writeln!(out, "{}: [removed]", line.split(':').next().unwrap_or_default());
            continue;
        }
        let words: Vec<&str> = line.split(' ').map(|word| if is_secret(word) { "[token]" } else { word }).collect();
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    out
}

/// Whether a word has the form of a join token or of a signed one.
fn is_secret(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'', ',', ';', '(', ')']).rsplit('=').next().unwrap_or(word);
    let join = word.split('@').next().and_then(|bearer| bearer.split_once('.')).is_some_and(|(id, secret)| {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)
    });
    join || (word.starts_with("eyJ") && word.matches('.').count() == 2)
}

async fn cluster(client: &Client) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, path) in [
        ("readyz", "/readyz?verbose"),
        ("livez", "/livez?verbose"),
        ("metrics", "/metrics"),
        ("api-version", "/version"),
    ] {
        let answer = match client.raw(path).await {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("{error}\n"),
        };
        entries.push(text(name, answer));
    }
    for (group, version, plural) in [
        ("", "v1", "nodes"),
        ("", "v1", "namespaces"),
        ("", "v1", "events"),
        ("coordination.k8s.io", "v1", "leases"),
        ("apps", "v1", "deployments"),
        ("discovery.k8s.io", "v1", "endpointslices"),
        ("apiregistration.k8s.io", "v1", "apiservices"),
        ("", "v1", "pods"),
    ] {
        let params = ListParams { limit: Some(OBJECTS), ..ListParams::default() };
        let answer = match client.dynamic(&Gvr::new(group, version, plural)).list("", &params).await {
            Ok(list) => list.items.iter().map(|object| shown(object) + "\n").collect(),
            Err(error) => format!("{error}\n"),
        };
        entries.push(text(&format!("objects/{plural}"), answer));
    }
    entries
}

/// An object without what users put into it: its metadata but for annotations, and its status. Of a Lease and an Event, all.
fn shown(object: &Value) -> String {
    let mut object = object.clone();
    let whole = ["Lease", "Event", "EndpointSlice"].iter().any(|kind| object["kind"] == **kind);
    if let Some(map) = object.as_object_mut() {
        map.retain(|field, _| whole || matches!(field.as_str(), "kind" | "apiVersion" | "metadata" | "status"));
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("annotations");
        metadata.remove("managedFields");
    }
    object.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_looks_secret_is_not_in_it() {
        for (line, expect) in [
            ("joined with abcdef.0123456789abcdef@sha256:00", "joined with [token]\n"),
            ("--token=abcdef.0123456789abcdef", "[token]\n"),
            ("Bearer eyJhbGciOi.eyJpc3Mi.c2ln", "Bearer [token]\n"),
            ("token: anything at all", "token: [removed]\n"),
            ("an ordinary line of v1.37.0", "an ordinary line of v1.37.0\n"),
        ] {
            assert_eq!(redacted(line), expect, "{line}");
        }
        let key = "before\n-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\nafter";
        let text = redacted(key);
        assert!(!text.contains("MIGH") && text.starts_with("before\n") && text.ends_with("after\n"), "{text}");
    }

    #[test]
    fn objects_are_shown_without_what_users_put_into_them() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "a", "annotations": {"x": "secret"}},
            "spec": {"containers": [{"env": [{"value": "secret"}]}]}, "status": {"phase": "Running"}});
        let text = shown(&pod);
        assert!(text.contains("Running") && !text.contains("secret"), "{text}");
    }
}
