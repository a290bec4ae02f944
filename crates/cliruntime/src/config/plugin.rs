//! Credential plug-ins as a kubeconfig describes them.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::config::{Interactive, Plugin};
use machinery::status::go_quote;
use serde_json::{Value, json};

use super::connect::content;
use super::file::Entry;
use crate::error::{Failure, Outcome};

/// The program that a user's entry names, and what it is told.
pub(super) fn plugin(exec: &Value, origin: &Path, cluster: &Entry) -> Outcome<Plugin> {
    let text = |name: &str| exec.get(name).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion");
    if !matches!(version, "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1") {
        return Err(Failure::Message(format!("exec plugin: invalid apiVersion {}", go_quote(version))));
    }
    let command = Path::new(text("command"));
    let base = origin.parent().unwrap_or(Path::new(""));
    let bare = command.components().count() <= 1;
    let list = |name: &str| exec.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let pair = |variable: &Value| {
        let part = |name: &str| variable.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        (part("name"), part("value"))
    };
    let interactive = match text("interactiveMode") {
        "Never" => Interactive::Never,
        "Always" => Interactive::Always,
        _ => Interactive::IfAvailable,
    };
    let wants = exec.get("provideClusterInfo").and_then(Value::as_bool).unwrap_or_default();
    Ok(Plugin {
        input_taken: None,
        interactive,
        cluster: wants.then(|| cluster_info(cluster)),
        install_hint: text("installHint").to_owned(),
        command: if bare { command.to_owned() } else { base.join(command) },
        args: list("args").iter().filter_map(|arg| arg.as_str().map(str::to_owned)).collect(),
        env: list("env").iter().map(pair).collect(),
        api_version: version.to_owned(),
    })
}

/// What a plugin is told of the cluster.
fn cluster_info(cluster: &Entry) -> Value {
    let mut info = json!({"server": cluster.text("server"), "config": null});
    for field in ["tls-server-name", "proxy-url"] {
        if !cluster.text(field).is_empty() {
            info[field] = cluster.text(field).into();
        }
    }
    if cluster.flag("insecure-skip-tls-verify") {
        info["insecure-skip-tls-verify"] = true.into();
    }
    if let Ok(Some(authority)) = content(cluster, "certificate-authority") {
        info["certificate-authority-data"] = STANDARD.encode(authority).into();
    }
    if let Some(config) = cluster
        .fields
        .get("extensions")
        .and_then(Value::as_array)
        .and_then(|all| all.iter().find(|one| one["name"] == "client.authentication.k8s.io/exec"))
    {
        info["config"] = config["extension"].clone();
    }
    info
}
