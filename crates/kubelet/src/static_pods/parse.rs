//! A file's text as a pod of this node, with the defaults the API server would have given it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration};

use crate::pod::spec;

/// The pod of a file. Its uid follows from the text, so a changed file is another pod.
pub(super) fn pod(text: &str, file: &str, node: &str) -> Result<Pod, String> {
    let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let kind = value.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default();
    if kind != "Pod" {
        return Err(format!("kind is {kind:?} and not \"Pod\""));
    }
    let mut pod: Pod = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let Some(pod_spec) = &mut pod.spec else { return Err("no spec".to_owned()) };
    if pod_spec.containers.is_empty() {
        return Err("spec.containers is empty".to_owned());
    }
    let name = pod.metadata.name.clone().filter(|name| !name.is_empty()).ok_or("no metadata.name")?;
    let digest = node::oci::sha256(format!("{node}\0{file}\0{text}").as_bytes());
    let hash = digest.trim_start_matches("sha256:").chars().take(32).collect::<String>();
    let uid = pod.metadata.uid.clone().filter(|uid| !uid.is_empty()).unwrap_or_else(|| hash.clone());
    defaults(pod_spec, node);
    pod.metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    pod.metadata.namespace = pod.metadata.namespace.take().filter(|ns| !ns.is_empty()).or(Some("default".to_owned()));
    pod.metadata.uid = Some(uid);
    let annotations = pod.metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(spec::SOURCE.to_owned(), "file".to_owned());
    annotations.insert("kubernetes.io/config.hash".to_owned(), hash);
    pod.status = None;
    Ok(pod)
}

fn defaults(spec: &mut PodSpec, node: &str) {
    spec.node_name = Some(node.to_owned());
    spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
    spec.dns_policy.get_or_insert_with(|| "ClusterFirst".to_owned());
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.security_context.get_or_insert_default();
    spec.enable_service_links.get_or_insert(true);
    // Nothing that happens to the node moves it elsewhere.
    let everything = Toleration {
        effect: Some("NoExecute".to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_with(Vec::new);
    if !tolerations.contains(&everything) {
        tolerations.push(everything);
    }
    spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(of_container);
}

fn of_container(container: &mut Container) {
    container.termination_message_path.get_or_insert_with(|| "/dev/termination-log".to_owned());
    container.termination_message_policy.get_or_insert_with(|| "File".to_owned());
    let image = container.image.as_deref().unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or(image);
    let moving = !image.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    let policy = if moving { "Always" } else { "IfNotPresent" };
    container.image_pull_policy.get_or_insert_with(|| policy.to_owned());
    for port in container.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: \"r/i:1\"}\n";

    #[test]
    fn a_file_is_a_pod_of_this_node() {
        let one = pod(TEXT, "/f", "Node-1").unwrap();
        assert_eq!(spec::name(&one), "web-node-1");
        assert_eq!(spec::namespace(&one), "default");
        assert!(spec::is_static(&one) && !spec::is_mirror(&one));
        assert_eq!(spec::containers(&one)[0].image_pull_policy.as_deref(), Some("IfNotPresent"));
        assert_eq!(spec::uid(&one).len(), 32);
        assert_eq!(spec::uid(&one), spec::uid(&pod(TEXT, "/f", "Node-1").unwrap()));
        let other = pod(&TEXT.replace("i:1", "i"), "/f", "Node-1").unwrap();
        assert_ne!(spec::uid(&one), spec::uid(&other));
        assert_eq!(spec::containers(&other)[0].image_pull_policy.as_deref(), Some("Always"));
    }

    #[test]
    fn what_is_no_pod_is_refused() {
        for bad in ["", "kind: Service", "{", "kind: Pod", "kind: Pod\nmetadata: {name: x}\nspec: {containers: []}"] {
            assert!(pod(bad, "/f", "n").is_err(), "{bad:?}");
        }
    }
}
