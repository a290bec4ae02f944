//! Which pod and which container a command is about: what `logs`, `exec` and `attach` have in common. No command itself.

use machinery::status::go_quote;
use machinery::value::{list, text};
use serde_json::Value;

use crate::command::Invocation;
use crate::discovery::query;
use crate::error::{Failure, Outcome};

const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Containers, with what they are called in a list of all of them.
pub fn containers(pod: &Value) -> Vec<(String, &'static str)> {
    let of = |path: &str, kind: &'static str| -> Vec<(String, &'static str)> {
        list(pod, path).iter().map(|container| (text(container, "name").to_owned(), kind)).collect()
    };
    [of("spec.containers", ""), of("spec.initContainers", " (init)"), of("spec.ephemeralContainers", " (ephem)")]
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

/// The pods that an object stands for: itself, or those that its selector finds.
pub async fn of(invocation: &Invocation, object: &Value) -> Outcome<Vec<Value>> {
    let kind = text(object, "kind");
    if kind == "Pod" {
        return Ok(vec![object.clone()]);
    }
    let labels = match kind {
        "Service" | "ReplicationController" => machinery::value::at(object, "spec.selector"),
        _ => machinery::value::at(object, "spec.selector.matchLabels"),
    };
    let Some(Value::Object(labels)) = labels else {
        return Err(Failure::Message(format!("selector for {} not implemented", kind)));
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
    let namespace = text(object, "metadata.namespace");
    let path = format!("/api/v1/namespaces/{namespace}/pods{}", query(&[("labelSelector", &selector.join(","))]));
    let found = invocation.session.api()?.get(&path).await?;
    let mut pods: Vec<Value> = list(&found, "items").to_vec();
    for pod in &mut pods {
        pod["kind"] = "Pod".into();
        pod["apiVersion"] = "v1".into();
    }
    pods.sort_by_key(rank);
    Ok(pods)
}

/// Pods that run and are ready come first, then the older ones.
fn rank(pod: &Value) -> (bool, bool, bool, String) {
    let ready = list(pod, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True");
    let unscheduled = text(pod, "spec.nodeName").is_empty();
    let phase = text(pod, "status.phase");
    (unscheduled, phase == "Pending", !ready, text(pod, "metadata.creationTimestamp").to_owned())
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
        assert_eq!(all_names(&pod), "a, b (init), c (ephem)");
    }
}
