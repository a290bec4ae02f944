//! Small plug-ins that fill in one thing each: ingress classes, taints of new nodes, topology labels, tolerations for
//! devices, pull policies, node selectors of namespaces.

use std::collections::{BTreeMap, BTreeSet};

use machinery::status::{ApiError, FieldError};
use machinery::{Value, value};
use rules::names::{NOT_READY, is_extended};
use serde_json::json;
use storage::cache::Filter;

use super::pods::{List, containers, placed, spec};
use super::storage::newest_default;
use super::{Operation, Request};
use crate::verbs::Api;

const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";

pub fn ingress_class(api: &Api, request: &Request<'_>, ingress: &mut Value) {
    if request.operation != Operation::Create || !request.is_for("networking.k8s.io", "ingresses") {
        return;
    }
    let annotated =
        value::at(ingress, "metadata.annotations").is_some_and(|all| all.get("kubernetes.io/ingress.class").is_some());
    if annotated || value::at(ingress, "spec.ingressClassName").is_some_and(|class| !class.is_null()) {
        return;
    }
    let Some(classes) = api.registry.stored("networking.k8s.io", "ingressclasses") else { return };
    let (all, _) = classes.cache.list(&Filter::everything(), None, 0);
    if let Some(name) = newest_default(&all, &["ingressclass.kubernetes.io/is-default-class"]) {
        value::set(ingress, "spec.ingressClassName", name);
    }
}

/// TaintNodesByCondition: a new node is not ready until somebody has seen it to be.
pub fn taint_new_node(request: &Request<'_>, node: &mut Value) {
    if request.operation != Operation::Create || !request.is_for("", "nodes") {
        return;
    }
    let mut taints = value::list(node, "spec.taints").to_vec();
    let key = NOT_READY;
    let present =
        taints.iter().any(|taint| value::text(taint, "key") == key && value::text(taint, "effect") == "NoSchedule");
    if !present {
        taints.push(json!({"key": key, "effect": "NoSchedule"}));
        value::set(node, "spec.taints", taints);
    }
}

/// PodTopologyLabels: a pod carries the zone and region of its node, when it is bound or made there.
pub fn topology_labels(api: &Api, request: &Request<'_>, new: &mut Value) {
    let bound = request.resource.name.group.is_empty()
        && request.resource.name.resource == "pods"
        && request.info.subresource == "binding";
    let made = request.is_for("", "pods");
    if request.operation != Operation::Create || !(bound || made) {
        return;
    }
    let node = match bound {
        true if value::text(new, "target.kind") != "Node" => return,
        true => value::text(new, "target.name"),
        false => value::text(new, "spec.nodeName"),
    };
    let node = api.registry.stored("", "nodes").and_then(|nodes| nodes.cache.get(node));
    let Some(node) = node else { return };
    for key in TOPOLOGY {
        if let Some(text) = node.meta().label(key) {
            let labels = value::object_mut(new, "metadata").entry("labels").or_insert_with(|| json!({}));
            value::as_object_mut(labels).insert(key.to_owned(), text.into());
        }
    }
}

/// ExtendedResourceToleration: who asks for a device tolerates the taint of nodes kept for it.
pub fn tolerate_devices(request: &Request<'_>, pod: &mut Value) {
    if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is_for("", "pods") {
        return;
    }
    let names: BTreeSet<String> = placed(spec(pod), &[List::Plain, List::Init])
        .filter_map(|(_, _, container)| value::at(container, "resources.requests").and_then(Value::as_object))
        .flat_map(|requests| requests.keys())
        .filter(|name| is_extended(name))
        .cloned()
        .collect();
    let mut tolerations = value::list(pod, "spec.tolerations").to_vec();
    for name in names {
        let toleration = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
            value::set(pod, "spec.tolerations", tolerations.clone());
        }
    }
}

fn images(pod: &Value) -> BTreeSet<&str> {
    containers(spec(pod)).map(|container| value::text(container, "image")).collect()
}

/// Whether it writes a pod, and not one whose images were all checked before.
fn brings_images(request: &Request<'_>, pod: &Value, old: Option<&Value>) -> bool {
    matches!(request.operation, Operation::Create | Operation::Update)
        && request.is_for("", "pods")
        && old.is_none_or(|old| !images(pod).is_subset(&images(old)))
}

/// AlwaysPullImages: the registry checks the credentials each time, also for images that are there already.
pub fn always_pull(request: &Request<'_>, pod: &mut Value, old: Option<&Value>) {
    if !brings_images(request, pod, old) {
        return;
    }
    for list in ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"] {
        for container in value::list_mut(pod, list) {
            value::set(container, "imagePullPolicy", "Always");
        }
    }
    for volume in value::list_mut(pod, "spec.volumes") {
        if volume.get("image").is_some() {
            value::set(volume, "image.pullPolicy", "Always");
        }
    }
}

/// AlwaysPullImages, after everybody else had their say.
pub fn check_always_pull(request: &Request<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    let Some(pod) = new.filter(|pod| brings_images(request, pod, old)) else { return Ok(()) };
    let mut problems = Vec::new();
    for (list, at, container) in placed(spec(pod), &List::ALL) {
        let policy = value::text(container, "imagePullPolicy");
        if policy != "Always" {
            problems.push((format!("spec.{}[{at}].imagePullPolicy", list.field()), policy));
        }
    }
    for (at, volume) in value::list(pod, "spec.volumes").iter().enumerate() {
        let policy = value::text(volume, "image.pullPolicy");
        if volume.get("image").is_some() && policy != "Always" {
            problems.push((format!("spec.volumes[{at}].image.pullPolicy"), policy));
        }
    }
    let messages: Vec<String> = problems
        .into_iter()
        .map(|(at, policy)| request.forbid(pod, &FieldError::not_supported(at, policy, ["Always"]).to_string()).message)
        .collect();
    match super::together(&messages) {
        Some(message) => {
            let mut error = request.forbid(pod, "");
            error.message = message;
            Err(error)
        }
        None => Ok(()),
    }
}

/// The labels of a plain selector: `a=b,c=d`.
fn plain_labels(text: &str) -> Result<Vec<(String, String)>, ApiError> {
    let mut labels = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, wanted) =
            pair.split_once('=').ok_or_else(|| ApiError::internal(format!("invalid selector: {text}")))?;
        labels.push((key.trim().to_owned(), wanted.trim_start_matches('=').trim().to_owned()));
    }
    Ok(labels)
}

/// PodNodeSelector: the namespace's selector, or the cluster's default, becomes part of the pod's; and the pod's uses no
/// labels but those its namespace may.
pub fn node_selector(
    selectors: &BTreeMap<String, String>,
    api: &Api,
    request: &Request<'_>,
    pod: &mut Value,
) -> Result<(), ApiError> {
    if request.operation != Operation::Create || !request.is_for("", "pods") {
        return Ok(());
    }
    let namespace = api.registry.stored("", "namespaces").and_then(|all| all.cache.get(&request.info.namespace));
    let Some(namespace) = namespace.map(|namespace| namespace.to_value()) else { return Ok(()) };
    let annotation =
        value::at(&namespace, "metadata.annotations").and_then(|all| all.get(NODE_SELECTOR)).and_then(Value::as_str);
    let default = selectors.get("clusterDefaultNodeSelector").map(String::as_str);
    for (key, wanted) in plain_labels(annotation.or(default).unwrap_or_default())? {
        let own = value::at(pod, "spec.nodeSelector").and_then(|own| own.get(&key)).and_then(Value::as_str);
        if own.is_some_and(|own| own != wanted) {
            return Err(request.forbid(pod, "pod node label selector conflicts with its namespace node label selector"));
        }
        let labels = value::object_mut(pod, "spec").entry("nodeSelector").or_insert_with(|| json!({}));
        value::as_object_mut(labels).insert(key, wanted.into());
    }
    let allowed = plain_labels(selectors.get(&request.info.namespace).map_or("", String::as_str))?;
    let own = value::at(pod, "spec.nodeSelector").and_then(Value::as_object).into_iter().flatten();
    // A namespace that nothing was said about may use every label.
    let foreign =
        |key: &String, wanted: &Value| !allowed.iter().any(|(known, text)| known == key && wanted == text.as_str());
    if !allowed.is_empty() && own.into_iter().any(|(key, wanted)| foreign(key, wanted)) {
        return Err(request.forbid(pod, "pod node label selector labels conflict with its namespace whitelist"));
    }
    Ok(())
}

/// LimitPodHardAntiAffinityTopology: a pod may insist on a node without certain others, not on a whole zone.
pub fn limit_anti_affinity(request: &Request<'_>, new: Option<&Value>) -> Result<(), ApiError> {
    const HOST: &str = "kubernetes.io/hostname";
    let written = matches!(request.operation, Operation::Create | Operation::Update) && request.is_for("", "pods");
    let Some(pod) = new.filter(|_| written) else { return Ok(()) };
    let terms = value::list(pod, "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    match terms.iter().map(|term| value::text(term, "topologyKey")).find(|key| *key != HOST) {
        Some(key) => {
            let why = format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOST} is allowed"
            );
            Err(ApiError::forbidden(&request.resource.name, value::text(pod, "metadata.name"), &why))
        }
        None => Ok(()),
    }
}

/// DenyServiceExternalIPs: nobody draws the traffic of addresses that are not theirs.
pub fn deny_external_ips(request: &Request<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    let Some(service) = new.filter(|_| request.is_for("", "services")) else { return Ok(()) };
    let before = old.map_or(&[][..], |old| value::list(old, "spec.externalIPs"));
    if value::list(service, "spec.externalIPs").iter().all(|ip| before.contains(ip)) {
        return Ok(());
    }
    Err(request.forbid(service, "Use of external IPs is denied by admission control"))
}
