//! A text as a pod of this node, with the defaults the API server would have given it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration};

use crate::pod::spec;

/// Where a text is from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    File(&'a str),
    Url(&'a str),
}

/// The pod of a text. Its uid follows from what it says, so a changed pod is another pod.
pub(super) fn pod(text: &str, source: Source<'_>, node: &str) -> Result<Pod, String> {
    let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    one(value, source, node)
}

/// The pods of a text: one, or a list of them. All of them are good, or none is.
pub(super) fn pods(text: &str, source: Source<'_>, node: &str) -> Result<Vec<Pod>, String> {
    let mut value: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if value.get("kind").and_then(|kind| kind.as_str()) != Some("PodList") {
        return Ok(vec![one(value, source, node)?]);
    }
    let items = value.get_mut("items").and_then(|items| items.as_array_mut()).map(std::mem::take).unwrap_or_default();
    let item = |mut item: serde_json::Value| {
        if let Some(object) = item.as_object_mut() {
            // In a list the kind goes without saying.
            object.entry("apiVersion").or_insert_with(|| "v1".into());
            object.entry("kind").or_insert_with(|| "Pod".into());
        }
        one(item, source, node)
    };
    items.into_iter().map(item).collect()
}

fn one(value: serde_json::Value, source: Source<'_>, node: &str) -> Result<Pod, String> {
    let kind = value.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default();
    if kind != "Pod" {
        return Err(format!("kind is {kind:?} and not \"Pod\""));
    }
    let identity = match source {
        Source::File(file) => format!("{node}\0{file}\0{value}"),
        Source::Url(url) => format!("{url}\0{value}"),
    };
    let mut pod: Pod = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if let Some(what) = references(&pod) {
        return Err(format!("static pods may not reference {what}"));
    }
    let Some(pod_spec) = &mut pod.spec else { return Err("no spec".to_owned()) };
    if pod_spec.containers.is_empty() {
        return Err("spec.containers is empty".to_owned());
    }
    let name = pod.metadata.name.clone().filter(|name| !name.is_empty()).ok_or("no metadata.name")?;
    let digest = node::oci::sha256(identity.as_bytes());
    let hash = digest.trim_start_matches("sha256:").chars().take(32).collect::<String>();
    let uid = pod.metadata.uid.clone().filter(|uid| !uid.is_empty()).unwrap_or_else(|| hash.clone());
    defaults(pod_spec, node);
    if matches!(source, Source::File(_)) {
        tolerate_everything(pod_spec);
    }
    pod.metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    pod.metadata.namespace = pod.metadata.namespace.take().filter(|ns| !ns.is_empty()).or(Some("default".to_owned()));
    pod.metadata.uid = Some(uid);
    let annotations = pod.metadata.annotations.get_or_insert_with(BTreeMap::new);
    let name_of_source = if matches!(source, Source::File(_)) { "file" } else { "http" };
    annotations.insert(spec::SOURCE.to_owned(), name_of_source.to_owned());
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
    spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(of_container);
}

/// Nothing that happens to the node moves it elsewhere.
fn tolerate_everything(spec: &mut PodSpec) {
    let everything = Toleration {
        effect: Some("NoExecute".to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_with(Vec::new);
    if !tolerations.contains(&everything) {
        tolerations.push(everything);
    }
}

/// What of the API the pod refers to, which it must not: nobody checked that it may.
fn references(pod: &Pod) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    if spec.service_account_name.as_ref().is_some_and(|name| !name.is_empty()) {
        return Some("serviceaccounts");
    }
    let (mut secret, mut config_map) = (spec.image_pull_secrets.iter().flatten().next().is_some(), false);
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for source in container.env_from.iter().flatten() {
            secret |= source.secret_ref.is_some();
            config_map |= source.config_map_ref.is_some();
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            secret |= source.secret_key_ref.is_some();
            config_map |= source.config_map_key_ref.is_some();
        }
    }
    let volumes = || spec.volumes.iter().flatten();
    let projected = || volumes().flat_map(|volume| volume.projected.iter().flat_map(|p| p.sources.iter().flatten()));
    secret |= volumes().any(|volume| volume.secret.is_some()) || projected().any(|source| source.secret.is_some());
    config_map |=
        volumes().any(|volume| volume.config_map.is_some()) || projected().any(|source| source.config_map.is_some());
    if secret {
        return Some("secrets");
    }
    if config_map {
        return Some("configmaps");
    }
    if spec.resource_claims.iter().flatten().next().is_some() {
        return Some("resourceclaims");
    }
    volumes().find_map(|volume| {
        let sources = || volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        let of = |present: bool, what: &'static str| present.then_some(what);
        of(volume.csi.is_some(), "csidrivers (via CSI volumes)")
            .or(of(volume.persistent_volume_claim.is_some(), "persistentvolumeclaims"))
            .or(of(volume.ephemeral.is_some(), "persistentvolumeclaims (via ephemeral volumes)"))
            .or(of(
                sources().any(|source| source.service_account_token.is_some()),
                "serviceaccounts (via projected volumes)",
            ))
            .or(of(sources().any(|source| source.cluster_trust_bundle.is_some()), "clustertrustbundles"))
            .or(of(sources().any(|source| source.pod_certificate.is_some()), "podcertificates"))
    })
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
        let file = Source::File("/f");
        let one = pod(TEXT, file, "Node-1").unwrap();
        assert_eq!(spec::name(&one), "web-node-1");
        assert_eq!(spec::namespace(&one), "default");
        assert!(spec::is_static(&one) && !spec::is_mirror(&one));
        assert_eq!(spec::containers(&one)[0].image_pull_policy.as_deref(), Some("IfNotPresent"));
        assert_eq!(spec::uid(&one).len(), 32);
        assert_eq!(spec::uid(&one), spec::uid(&pod(TEXT, file, "Node-1").unwrap()));
        let other = pod(&TEXT.replace("i:1", "i"), file, "Node-1").unwrap();
        assert_ne!(spec::uid(&one), spec::uid(&other));
        assert_eq!(spec::containers(&other)[0].image_pull_policy.as_deref(), Some("Always"));
    }

    #[test]
    fn what_is_no_pod_is_refused() {
        for bad in ["", "kind: Service", "{", "kind: Pod", "kind: Pod\nmetadata: {name: x}\nspec: {containers: []}"] {
            assert!(pod(bad, Source::File("/f"), "n").is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_belongs_to_the_api_cannot_be_used() {
        let check = |more: &str, what: &str| {
            let text = format!("{TEXT}{more}");
            let expect = format!("static pods may not reference {what}");
            assert_eq!(pod(&text, Source::File("/f"), "n").unwrap_err(), expect);
        };
        check("  serviceAccountName: x\n", "serviceaccounts");
        check("  imagePullSecrets: [{name: x}]\n", "secrets");
        check("  volumes: [{name: v, configMap: {name: x}}]\n", "configmaps");
        check("  volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]\n", "persistentvolumeclaims");
        let token = "projected: {sources: [{serviceAccountToken: {path: t}}]}";
        check(&format!("  volumes: [{{name: v, {token}}}]\n"), "serviceaccounts (via projected volumes)");
    }
}
