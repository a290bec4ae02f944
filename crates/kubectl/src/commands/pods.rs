//! Which pod and which container a command is about: what `logs`, `exec`, `attach` and others have in common. No command itself.

use std::time::{Duration, Instant};

use machinery::status::go_quote;
use machinery::value::{list, text};
use serde_json::Value;

use crate::api::JSON;
use crate::command::Invocation;
use crate::discovery::query;
use crate::error::{Failure, Outcome};
use crate::resource::arguments::parse_single;
use crate::session::Session;

const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "status.conditions").iter().find(|condition| text(condition, "type") == kind)
}

/// Whether a condition is there and is true.
pub fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, "status") == "True")
}

pub fn is_ready(pod: &Value) -> bool {
    holds(pod, "Ready")
}

/// Containers, with what they are called in a list of all of them.
pub fn containers(pod: &Value) -> Vec<(String, &'static str)> {
    let of = |path: &str, kind: &'static str| -> Vec<(String, &'static str)> {
        list(pod, path).iter().map(|container| (text(container, "name").to_owned(), kind)).collect()
    };
    [of("spec.containers", ""), of("spec.ephemeralContainers", " (ephem)"), of("spec.initContainers", " (init)")]
        .concat()
}

fn all_names(pod: &Value) -> String {
    containers(pod).iter().map(|(name, kind)| format!("{name}{kind}")).collect::<Vec<_>>().join(", ")
}

/// The container that is meant: the one that was named, the one that the pod prefers, or the first.
pub fn container(invocation: &mut Invocation, pod: &Value, wanted: &str, quiet: bool) -> Outcome<String> {
    let known = containers(pod);
    let name = text(pod, "metadata.name");
    if !wanted.is_empty() {
        if !known.iter().any(|(container, _)| container == wanted) {
            return Err(Failure::Message(format!(
                "container {wanted} is not valid for pod {name} out of: {}",
                all_names(pod)
            )));
        }
        return Ok(wanted.to_owned());
    }
    let preferred = machinery::value::at(pod, "metadata.annotations").and_then(|all| all.get(DEFAULT_CONTAINER));
    if let Some(preferred) = preferred.and_then(Value::as_str).filter(|name| !name.is_empty()) {
        if known.iter().any(|(container, _)| container == preferred) {
            return Ok(preferred.to_owned());
        }
        invocation.streams.error(&format!("Default container name {} not found in pod {name}", go_quote(preferred)));
    }
    let Some((first, _)) = known.first() else {
        return Err(Failure::Message(format!("pod {name} has no containers")));
    };
    if known.len() > 1 && !quiet {
        invocation.streams.error(&format!("Defaulted container {} out of: {}", go_quote(first), all_names(pod)));
    }
    Ok(first.clone())
}

/// The container of a conversation. Who names none, in the annotation or here, gets the first.
pub fn container_to_talk_to(invocation: &mut Invocation, pod: &Value, wanted: &str, quiet: bool) -> Outcome<String> {
    let name = text(pod, "metadata.name");
    let known = containers(pod);
    let preferred = machinery::value::at(pod, "metadata.annotations").and_then(|all| all.get(DEFAULT_CONTAINER));
    let wanted = if wanted.is_empty() { preferred.and_then(Value::as_str).unwrap_or_default() } else { wanted };
    if !wanted.is_empty() && !known.iter().any(|(container, _)| container == wanted) {
        let all = all_names(pod);
        return Err(Failure::Message(format!("container {wanted} is not valid for pod {name} out of: {all}")));
    }
    if known.is_empty() {
        let namespace = text(pod, "metadata.namespace");
        return Err(Failure::Message(format!("pod {namespace}/{name} does not have any containers")));
    }
    container(invocation, pod, wanted, quiet)
}

/// The spec of a container, of whatever sort, and whether it is an ephemeral one.
pub fn spec_of<'a>(pod: &'a Value, name: &str) -> Option<(&'a Value, bool)> {
    let of = |path: &str| list(pod, path).iter().find(|container| text(container, "name") == name);
    let lasting = of("spec.containers").or_else(|| of("spec.initContainers"));
    lasting.map(|spec| (spec, false)).or_else(|| of("spec.ephemeralContainers").map(|spec| (spec, true)))
}

/// The object that a word of the command line means; a word without a type is a pod.
pub async fn object(invocation: &Invocation, word: &str) -> Outcome<Value> {
    let word = if word.contains('/') { word.to_owned() } else { format!("pods/{word}") };
    let (mapping, name) = parse_single(&invocation.session, &word).await?;
    let namespace = invocation.session.namespace()?;
    invocation.session.api()?.get(&mapping.path(&namespace, &name.unwrap_or_default(), "")).await
}

/// The pod of an object with which one can talk: the best one there is, or the first that comes within the time.
pub async fn one_of(invocation: &Invocation, object: &Value, patience: Duration) -> Outcome<Value> {
    let Some(selector) = selector(object, "attach to")? else { return Ok(object.clone()) };
    let api = invocation.session.api()?;
    let path = format!("/api/v1/namespaces/{}/pods", text(object, "metadata.namespace"));
    let found = api.get(&format!("{path}{}", query(&[("labelSelector", &selector)]))).await?;
    if let Some(first) = ordered(&found).into_iter().next() {
        return Ok(first);
    }
    let version = text(&found, "metadata.resourceVersion");
    let pairs = [("labelSelector", selector.as_str()), ("resourceVersion", version), ("watch", "true")];
    let mut watch = api.watch(&format!("{path}{}", query(&pairs)), JSON).await?;
    let first = async {
        while let Some((kind, pod)) = watch.next().await? {
            if matches!(kind.as_str(), "ADDED" | "MODIFIED") {
                return Ok(pod);
            }
        }
        Err(late())
    };
    tokio::time::timeout(patience, first).await.map_err(|_| late())?
}

fn late() -> Failure {
    Failure::message("timed out waiting for the condition")
}

/// Watches a pod until something holds of it.
pub async fn until(
    session: &Session,
    namespace: &str,
    name: &str,
    patience: Duration,
    mut holds: impl FnMut(&Value) -> bool,
) -> Outcome<Value> {
    let api = session.api()?;
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let field = format!("metadata.name={name}");
    let deadline = Instant::now() + patience;
    let gone = || {
        let of = machinery::gvk::GroupResource::new("", "pods");
        Failure::from(machinery::ApiError::not_found(&of, name))
    };
    loop {
        let found = api.get(&format!("{path}{}", query(&[("fieldSelector", &field)]))).await?;
        let pod = list(&found, "items").first().ok_or_else(gone)?;
        if holds(pod) {
            return Ok(pod.clone());
        }
        let version = text(&found, "metadata.resourceVersion");
        let pairs = [("fieldSelector", field.as_str()), ("resourceVersion", version), ("watch", "true")];
        let mut watch = api.watch(&format!("{path}{}", query(&pairs)), JSON).await?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, watch.next()).await {
                Err(_) => return Err(late()),
                Ok(Ok(Some((kind, _)))) if kind == "DELETED" => return Err(gone()),
                Ok(Ok(Some((_, pod)))) if holds(&pod) => return Ok(pod),
                Ok(Ok(Some(_))) => {}
                // A watch that ended is begun again, from what is there.
                Ok(Ok(None) | Err(_)) => break,
            }
        }
    }
}

/// The pods that an object stands for: itself, or those that its selector finds.
pub async fn of(invocation: &Invocation, object: &Value) -> Outcome<Vec<Value>> {
    let Some(selector) = selector(object, "get the logs from")? else { return Ok(vec![object.clone()]) };
    let namespace = text(object, "metadata.namespace");
    let path = format!("/api/v1/namespaces/{namespace}/pods{}", query(&[("labelSelector", &selector)]));
    Ok(ordered(&invocation.session.api()?.get(&path).await?))
}

/// The selector of the pods of an object; a pod has none.
fn selector(object: &Value, doing: &str) -> Outcome<Option<String>> {
    let kind = text(object, "kind");
    if kind == "Pod" {
        return Ok(None);
    }
    let version = text(object, "apiVersion").rsplit('/').next().unwrap_or_default();
    let cannot = |why: String| Failure::Message(format!("cannot {doing} *{version}.{kind}: {why}"));
    let labels = match kind {
        "Service" | "ReplicationController" => machinery::value::at(object, "spec.selector"),
        _ => machinery::value::at(object, "spec.selector.matchLabels"),
    };
    let Some(Value::Object(labels)) = labels else {
        return Err(cannot(match kind {
            "Service" => {
                format!("invalid service '{}': Service is defined without a selector", text(object, "metadata.name"))
            }
            _ => format!("selector for *{version}.{kind} not implemented"),
        }));
    };
    let mut selector: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    for expression in list(object, "spec.selector.matchExpressions") {
        let values: Vec<&str> = list(expression, "values").iter().filter_map(Value::as_str).collect();
        let key = text(expression, "key");
        selector.push(match text(expression, "operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    Ok(Some(selector.join(",")))
}

/// The pods of a list, the best first.
fn ordered(found: &Value) -> Vec<Value> {
    let mut pods: Vec<Value> = list(found, "items").to_vec();
    for pod in &mut pods {
        pod["kind"] = "Pod".into();
        pod["apiVersion"] = "v1".into();
    }
    pods.sort_by_key(rank);
    pods
}

/// Pods that run and are ready come first, then the older ones.
fn rank(pod: &Value) -> (bool, bool, bool, String) {
    let unscheduled = text(pod, "spec.nodeName").is_empty();
    let phase = text(pod, "status.phase");
    (unscheduled, phase == "Pending", !is_ready(pod), text(pod, "metadata.creationTimestamp").to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_answer_come_first() {
        let pod = |name: &str, node: &str, phase: &str, ready: &str| {
            json!({
                "metadata": {"name": name}, "spec": {"nodeName": node},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        let mut pods =
            [pod("a", "", "Pending", "False"), pod("b", "n", "Running", "False"), pod("c", "n", "Running", "True")];
        pods.sort_by_key(rank);
        let names: Vec<&str> = pods.iter().map(|pod| text(pod, "metadata.name")).collect();
        assert_eq!(names, ["c", "b", "a"]);
    }

    #[test]
    fn containers_of_every_sort_are_named() {
        let pod = json!({"spec": {
            "containers": [{"name": "a"}], "initContainers": [{"name": "b"}], "ephemeralContainers": [{"name": "c"}],
        }});
        assert_eq!(all_names(&pod), "a, c (ephem), b (init)");
    }
}
