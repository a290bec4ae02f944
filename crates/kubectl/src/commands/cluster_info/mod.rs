//! `kubectl cluster-info`.

mod dump;

use machinery::value::{list, text};

use crate::command::{Command, Invocation};
use crate::discovery::query;
use crate::error::Outcome;

pub static COMMAND: Command = Command {
    name: "cluster-info",
    aliases: &["clusterinfo"],
    usage: "[flags]",
    short: "Display cluster information",
    flags: &[],
    children: &[&dump::COMMAND],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// What is said at the end, however it ended.
const FURTHER: &str = "\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.";

async fn run(invocation: &mut Invocation) -> Outcome {
    let server = invocation.session.connection()?.client.server.clone();
    let path = format!(
        "/api/v1/namespaces/kube-system/services{}",
        query(&[("labelSelector", "kubernetes.io/cluster-service=true")])
    );
    let found = match invocation.session.api()?.get(&path).await {
        Ok(found) => found,
        Err(error) => {
            invocation.say(FURTHER)?;
            return Err(error);
        }
    };
    let colour = |name: &str, link: &str, terminal: bool| {
        if terminal {
            format!("\u{1b}[0;32m{name}\u{1b}[0m is running at \u{1b}[0;33m{link}\u{1b}[0m")
        } else {
            format!("{name} is running at {link}")
        }
    };
    let terminal = invocation.streams.terminal;
    invocation.say(&colour("Kubernetes control plane", &server, terminal))?;
    for service in list(&found, "items") {
        let name = text(service, "metadata.name");
        let port = list(service, "spec.ports").first();
        let port_name = port.map_or("", |port| text(port, "name"));
        let secure = port_name == "https"
            || port.and_then(|port| port.get("port")).and_then(serde_json::Value::as_i64) == Some(443);
        let mut link = if secure { format!("https:{name}:") } else { name.to_owned() };
        if !port_name.is_empty() {
            link = format!("{}:{port_name}", link.trim_end_matches(':'));
        }
        let labels =
            machinery::value::at(service, "metadata.labels").and_then(|labels| labels.get("kubernetes.io/name"));
        let shown = labels.and_then(serde_json::Value::as_str).unwrap_or(name).to_owned();
        let link = format!("{server}/api/v1/namespaces/{}/services/{link}/proxy", text(service, "metadata.namespace"));
        invocation.say(&colour(&shown, &link, terminal))?;
    }
    invocation.say(FURTHER)
}
