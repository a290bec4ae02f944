//! `kubectl why`: why a pod is not Ready, in the order in which things happen to a pod. Upstream has no such command.

mod tell;

use machinery::value::{list, text};

use super::pods;
use crate::api::{Api, collect};
use crate::command::{Command, Invocation};
use crate::discovery::{query, segment};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use tell::{Found, Log};

pub static COMMAND: Command = Command {
    name: "why",
    aliases: &[],
    usage: "(POD | TYPE/NAME)",
    short: "Explain why a pod is not ready",
    flags: &[&[Flag::int("tail", "5", "How many last lines of logs are shown.")]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let [word] = &invocation.flags.arguments[..] else {
        return Err(invocation.usage("POD or TYPE/NAME is required for why"));
    };
    let object = pods::object(invocation, &word.clone()).await?;
    let pod = match text(&object, "kind") {
        "Pod" => object,
        kind => {
            // The one that has trouble is the one that is asked about.
            let mut all = pods::of(invocation, &object).await?;
            all.sort_by_key(pods::is_ready);
            let name = text(&object, "metadata.name").to_owned();
            let none = || Failure::Message(format!("{} {name} has no pods", kind.to_lowercase()));
            all.into_iter().next().ok_or_else(none)?
        }
    };
    let api = invocation.session.api()?;
    let (namespace, name) = (text(&pod, "metadata.namespace"), text(&pod, "metadata.name"));
    let field = format!("involvedObject.uid={}", text(&pod, "metadata.uid"));
    let path = format!("/api/v1/namespaces/{}/events{}", segment(namespace), query(&[("fieldSelector", &field)]));
    // Whoever may not see events or nodes is told the rest.
    let events = api.get(&path).await.map(|found| list(&found, "items").to_vec()).unwrap_or_default();
    let node = match text(&pod, "spec.nodeName") {
        "" => None,
        node => api.get(&format!("/api/v1/nodes/{}", segment(node))).await.ok(),
    };
    let mut logs = Vec::new();
    for (container, previous) in tell::worth_reading(&pod) {
        let tail = invocation.flags.int("tail").to_string();
        let lines = last_lines(&api, namespace, name, &container, previous, &tail).await;
        logs.push(Log { container, previous, lines });
    }
    let text = tell::tell(&Found { pod: &pod, events: &events, node: node.as_ref(), logs: &logs });
    invocation.print(&text)
}

async fn last_lines(api: &Api, namespace: &str, pod: &str, container: &str, previous: bool, tail: &str) -> Vec<String> {
    let before = if previous { "true" } else { "" };
    let pairs = query(&[("container", container), ("previous", before), ("tailLines", tail)]);
    let path = format!("/api/v1/namespaces/{}/pods/{}/log{pairs}", segment(namespace), segment(pod));
    let Ok((_, chunks)) = api.stream(http::Method::GET, &path, None, "*/*").await else { return Vec::new() };
    let bytes = collect(chunks).await.unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}
