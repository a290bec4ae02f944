//! PodResizeValidator and NodeDeclaredFeatureValidator: a pod that runs changes only as its node can follow. What the node
//! cannot hold, or its kubelet does not say that it can do, is refused here instead of being put off there for ever.

use machinery::object::Object;
use machinery::quantity::Quantity;
use machinery::status::{ApiError, Cause};
use machinery::{Value, value};
use rules::pod_resources::{Amounts, Side, amounts, charged};

use super::{Operation, Request};
use crate::verbs::Api;

/// The pod, if the request changes the spec of one that is on a node.
fn changed<'a>(
    request: &Request<'_>,
    new: Option<&'a Value>,
    old: Option<&'a Value>,
) -> Option<(&'a Value, &'a Value)> {
    let name = &request.resource.name;
    let pods = name.group.is_empty() && name.resource == "pods" && request.operation == Operation::Update;
    let (new, old) = (new?, old?);
    let on_node = !value::text(new, "spec.nodeName").is_empty();
    (pods && on_node && new.get("spec") != old.get("spec")).then_some((new, old))
}

fn node(api: &Api, request: &Request<'_>, pod: &Value) -> Result<std::sync::Arc<Object>, ApiError> {
    let name = value::text(pod, "spec.nodeName");
    let node = api.registry.stored("", "nodes").and_then(|nodes| nodes.cache.get(name));
    node.ok_or_else(|| request.forbid(pod, &format!("node {name:?} not found")))
}

pub fn fits(api: &Api, request: &Request<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    if request.info.subresource != "resize" {
        return Ok(());
    }
    let Some((pod, _)) = changed(request, new, old) else { return Ok(()) };
    let node = node(api, request, pod)?;
    let refuse = |why: &str, reason: &str| {
        let mut error = request.forbid(pod, why);
        let cause = Cause { reason: reason.to_owned(), message: String::new(), field: String::new() };
        error.details.get_or_insert_default().causes.push(cause);
        error
    };
    if let Some(system) = node.meta().label("kubernetes.io/os").filter(|system| *system != "linux") {
        let name = &node.meta().name;
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return Err(refuse(&why, "UnsupportedPlatform"));
    }
    let allocatable = amounts(value::at(&node.to_value(), "status.allocatable"));
    match too_much(&charged(pod, Side::Requests), &allocatable) {
        Some(why) => Err(refuse(&why, "NodeCapacity")),
        None => Ok(()),
    }
}

fn too_much(asked: &Amounts, allocatable: &Amounts) -> Option<String> {
    let mut over = Vec::new();
    for name in ["cpu", "memory"] {
        let amount = |of: &Amounts| of.get(name).cloned().unwrap_or(Quantity::ZERO);
        let number = |amount: &Quantity| if name == "cpu" { amount.milli_value() } else { amount.value() };
        let (asked, room) = (amount(asked), amount(allocatable));
        if asked > room {
            over.push(format!("{name}, requested: {}, allocatable: {}", number(&asked), number(&room)));
        }
    }
    (!over.is_empty()).then(|| format!("node didn't have enough allocatable resources: {}", over.join("; ")))
}

pub fn is_declared(api: &Api, request: &Request<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    if !matches!(request.info.subresource.as_str(), "" | "resize") {
        return Ok(());
    }
    let Some((pod, before)) = changed(request, new, old) else { return Ok(()) };
    let mut wanted = needed(pod, before);
    if wanted.is_empty() {
        return Ok(());
    }
    let node = node(api, request, pod)?.to_value();
    wanted.retain(|feature| !value::list(&node, "status.declaredFeatures").iter().any(|declared| declared == feature));
    if wanted.is_empty() {
        return Ok(());
    }
    let why = format!(
        "pod update requires features {} which are not available on node {:?}",
        wanted.join(", "),
        value::text(&node, "metadata.name")
    );
    Err(request.forbid(pod, &why))
}

/// The features of a kubelet that a change of a pod relies on.
fn needed(new: &Value, old: &Value) -> Vec<&'static str> {
    let mut features = Vec::new();
    if value::at(new, "spec.resources") != value::at(old, "spec.resources") {
        features.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let init = |pod: &'_ Value| value::list(pod, "spec.initContainers").to_vec();
    let resized = |(new, old): (Value, Value)| {
        value::text(&old, "restartPolicy") != "Always" && new.get("resources") != old.get("resources")
    };
    if init(new).into_iter().zip(init(old)).any(resized) {
        features.push("InPlacePodVerticalScalingInitContainers");
    }
    let volumes = value::list(new, "spec.volumes").iter().zip(value::list(old, "spec.volumes"));
    let grown = |(new, old): (&Value, &Value)| {
        let limit = |volume: &Value| value::at(volume, "emptyDir.sizeLimit").cloned();
        value::text(new, "emptyDir.medium") == "Memory"
            && new.get("name") == old.get("name")
            && limit(new).zip(limit(old)).is_some_and(|(new, old)| new != old)
    };
    if volumes.clone().any(grown) {
        features.push("InPlacePodVerticalScalingMemoryBackedVolumes");
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_holds_what_it_is_large_enough_for() {
        let check = |asked: Value, room: Value, expect: Option<&str>| {
            assert_eq!(too_much(&amounts(Some(&asked)), &amounts(Some(&room))).as_deref(), expect);
        };
        let room = json!({"cpu": "2", "memory": "1Gi"});
        check(json!({"cpu": "2", "memory": "1Gi"}), room.clone(), None);
        check(json!({"example.com/gpu": "9"}), room.clone(), None);
        check(
            json!({"cpu": "2500m", "memory": "2Gi"}),
            room,
            Some(
                "node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824",
            ),
        );
    }

    #[test]
    fn changes_rely_on_what_the_kubelet_can_do() {
        let check = |new: Value, old: Value, expect: &[&str]| {
            assert_eq!(needed(&json!({"spec": new}), &json!({"spec": old})), expect, "{new} {old}");
        };
        let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
        check(json!({"containers": [{"resources": cpu("1")}]}), json!({"containers": [{"resources": cpu("2")}]}), &[]);
        check(json!({"resources": cpu("1")}), json!({}), &["InPlacePodLevelResourcesVerticalScaling"]);
        let init = |cpu: Value, policy: Value| json!({"initContainers": [{"resources": cpu, "restartPolicy": policy}]});
        check(init(cpu("1"), json!(null)), init(cpu("2"), json!(null)), &["InPlacePodVerticalScalingInitContainers"]);
        check(init(cpu("1"), json!("Always")), init(cpu("2"), json!("Always")), &[]);
        let memory =
            |limit: &str| json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": limit}}]});
        check(memory("1Mi"), memory("2Mi"), &["InPlacePodVerticalScalingMemoryBackedVolumes"]);
    }
}
