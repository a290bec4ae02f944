//! `kubectl trace`: every hop on the way of an object and of what it owns, as a waterfall. Upstream has no such command; the server
//! has to be this one.
//!
//! `gather` asks the server and the nodes, `story` puts together what they remember (pure), `way` says what became
//! of a pod's time until it was ready (pure), `waterfall` draws it (pure).

mod gather;
mod story;
mod waterfall;
mod way;

use std::time::Duration;

use machinery::value::text;
use serde_json::Value;

use super::pods;
use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::discovery::query;
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::remote::terminal;
use crate::resource::arguments::parse_single;
use story::Story;

pub static COMMAND: Command = Command {
    name: "trace",
    aliases: &[],
    usage: "(POD | TYPE/NAME)",
    short: "Show every hop on the way of an object, timed",
    flags: &[&[
        Flag::bool("follow", "Wait for the object if it is not there yet, and until its pods are ready.").short('f'),
        Flag::bool("all", "Show everything that is remembered, not only what happened last."),
        Flag::string("output", "", "json for every span; a waterfall otherwise.").short('o'),
        Flag::duration("timeout", "5m0s", "How long --follow waits."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// Where nobody says how wide the terminal is.
const WIDTH: usize = 120;

async fn run(invocation: &mut Invocation) -> Outcome {
    let [word] = &invocation.flags.arguments[..] else {
        return Err(invocation.usage("POD or TYPE/NAME is required for trace"));
    };
    let word = word.clone();
    let output = invocation.flags.text("output").to_owned();
    if !matches!(output.as_str(), "" | "json") {
        return Err(invocation.usage(format_args!("--output accepts only json, not {output}")));
    }
    let object = if invocation.flags.is("follow") {
        let patience = invocation.flags.duration("timeout");
        let late = |_| Failure::message("timed out waiting for the condition");
        tokio::time::timeout(patience, settled(invocation, &word)).await.map_err(late)??
    } else {
        pods::object(invocation, &word).await?
    };
    let gathered = gather::gather(invocation, &object).await?;
    let story = Story::of(&gathered, invocation.flags.is("all"));
    if output == "json" {
        return invocation.print(&format!("{:#}\n", story.json()));
    }
    let width = if invocation.streams.terminal { terminal::size().map(|size| usize::from(size.0)) } else { None };
    invocation.print(&waterfall::draw(&story, width.unwrap_or(WIDTH)))
}

/// The object, once it is there and its pods are ready.
async fn settled(invocation: &Invocation, word: &str) -> Outcome<Value> {
    let object = there(invocation, word).await?;
    // A kind without pods is settled when it is there.
    let Ok(mut known) = pods::of(invocation, &object).await else { return Ok(object) };
    let namespace = text(&object, "metadata.namespace").to_owned();
    while !is_settled(&object, &known) {
        match known.iter().find(|pod| !is_ready_or_over(pod)) {
            Some(pod) => {
                let name = text(pod, "metadata.name");
                // A pod that goes meanwhile is no longer waited for.
                drop(pods::until(&invocation.session, &namespace, name, FOREVER, is_ready_or_over).await);
            }
            None => next_pod(invocation, &object).await?,
        }
        known = pods::of(invocation, &object).await?;
    }
    Ok(object)
}

/// Longer than any `--timeout` that makes sense; that one ends the wait.
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);

/// Whether there are as many pods as are wanted, and all of them are ready.
fn is_settled(object: &Value, pods: &[Value]) -> bool {
    let wanted = machinery::value::at(object, "spec.replicas").and_then(Value::as_u64).unwrap_or(1);
    pods.len() as u64 >= wanted && pods.iter().all(is_ready_or_over)
}

fn is_ready_or_over(pod: &Value) -> bool {
    matches!(text(pod, "status.phase"), "Succeeded" | "Failed") || pods::is_ready(pod)
}

/// Returns after the next change of a pod in the object's namespace.
async fn next_pod(invocation: &Invocation, object: &Value) -> Outcome {
    let path = format!("/api/v1/namespaces/{}/pods", text(object, "metadata.namespace"));
    let mut watch = invocation.session.api()?.watch(&format!("{path}{}", query(&[("watch", "true")])), JSON).await?;
    watch.next().await.map(drop)
}

/// The object; one that is not there yet is waited for.
async fn there(invocation: &Invocation, word: &str) -> Outcome<Value> {
    let word = if word.contains('/') { word.to_owned() } else { format!("pods/{word}") };
    let (mapping, name) = parse_single(&invocation.session, &word).await?;
    let (namespace, name) = (invocation.session.namespace()?, name.unwrap_or_default());
    let api = invocation.session.api()?;
    let field = format!("metadata.name={name}");
    let pairs = [("fieldSelector", field.as_str()), ("watch", "true")];
    loop {
        // A watch from nowhere begins with what is there.
        let path = format!("{}{}", mapping.path(&namespace, "", ""), query(&pairs));
        let mut watch = api.watch(&path, JSON).await?;
        while let Some((kind, object)) = watch.next().await? {
            if kind == "ADDED" || kind == "MODIFIED" {
                return Ok(object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settled_is_as_many_ready_pods_as_are_wanted() {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let waits = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let done = json!({"status": {"phase": "Succeeded"}});
        let two = json!({"spec": {"replicas": 2}});
        assert!(!is_settled(&two, std::slice::from_ref(&ready)));
        assert!(!is_settled(&two, &[ready.clone(), waits.clone()]));
        assert!(is_settled(&two, &[ready.clone(), ready.clone()]));
        assert!(is_settled(&json!({"spec": {"replicas": 0}}), &[]));
        assert!(!is_settled(&json!({"kind": "Pod"}), &[waits]));
        assert!(is_settled(&json!({"kind": "Pod"}), &[done]));
    }
}
