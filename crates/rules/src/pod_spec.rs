//! Reading a pod's specification: its containers of three kinds, its policies, its names.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};

/// Which list of the specification a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Init,
    Regular,
    Ephemeral,
}

/// A container of the specification.
#[derive(Debug, Clone)]
pub struct Member<'a> {
    pub kind: Kind,
    /// Its place in that list.
    pub index: usize,
    /// The container; ephemeral ones in the shape of the others.
    pub container: Cow<'a, Container>,
    /// For an ephemeral container: whose processes it sees.
    pub target: Option<&'a str>,
}

impl Member<'_> {
    /// A sidecar: an init container that keeps running beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.kind == Kind::Init && is_sidecar(&self.container)
    }
}

/// An init container that is restarted whatever happens: a sidecar.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

pub fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
}

pub fn containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

pub fn ephemeral_containers(pod: &Pod) -> &[EphemeralContainer] {
    pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default()
}

/// All containers: init ones, regular ones, ephemeral ones.
pub fn members(pod: &Pod) -> impl Iterator<Item = Member<'_>> {
    let member =
        |kind| move |(index, container)| Member { kind, index, container: Cow::Borrowed(container), target: None };
    let ephemeral = ephemeral_containers(pod).iter().enumerate().map(|(index, container)| Member {
        kind: Kind::Ephemeral,
        index,
        container: Cow::Owned(as_container(container)),
        target: container.target_container_name.as_deref().filter(|name| !name.is_empty()),
    });
    init_containers(pod)
        .iter()
        .enumerate()
        .map(member(Kind::Init))
        .chain(containers(pod).iter().enumerate().map(member(Kind::Regular)))
        .chain(ephemeral)
}

/// The container with this name.
pub fn member<'a>(pod: &'a Pod, name: &str) -> Option<Member<'a>> {
    members(pod).find(|member| member.container.name == name)
}

/// An ephemeral container has every field of a container, and its target.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let e = ephemeral.clone();
    Container {
        args: e.args,
        command: e.command,
        env: e.env,
        env_from: e.env_from,
        image: e.image,
        image_pull_policy: e.image_pull_policy,
        lifecycle: e.lifecycle,
        liveness_probe: e.liveness_probe,
        name: e.name,
        ports: e.ports,
        readiness_probe: e.readiness_probe,
        resize_policy: e.resize_policy,
        resources: e.resources,
        restart_policy: e.restart_policy,
        restart_policy_rules: e.restart_policy_rules,
        security_context: e.security_context,
        startup_probe: e.startup_probe,
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path,
        termination_message_policy: e.termination_message_policy,
        tty: e.tty,
        volume_devices: e.volume_devices,
        volume_mounts: e.volume_mounts,
        working_dir: e.working_dir,
    }
}

/// Whether a container that ended with this code is started again.
pub fn restarts_after(container: &Container, pod: &Pod, exit_code: i32) -> bool {
    let by_policy = |policy: &str| match policy {
        "OnFailure" => exit_code != 0,
        "Never" => false,
        _ => true,
    };
    if let Some(policy) = container.restart_policy.as_deref() {
        let restarts = |action: &str| matches!(action, "Restart" | "RestartAllContainers");
        return rule(container, exit_code).is_some_and(restarts) || by_policy(policy);
    }
    by_policy(restart_policy(pod))
}

/// The action of the first rule that this end of the container fits.
fn rule(container: &Container, exit_code: i32) -> Option<&str> {
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    let matching = rules.iter().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.as_deref().unwrap_or_default().contains(&exit_code);
            match codes.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        })
    });
    matching.map(|rule| rule.action.as_str())
}

/// Whether this end of the container starts the whole pod over.
pub fn restarts_all(container: &Container, exit_code: i32) -> bool {
    rule(container, exit_code) == Some("RestartAllContainers")
}

/// Whether any end of any container could start the whole pod over.
pub fn could_restart_all(pod: &Pod) -> bool {
    let mut rules = members(pod).flat_map(|member| member.container.restart_policy_rules.clone().unwrap_or_default());
    rules.any(|rule| rule.action == "RestartAllContainers")
}

/// `spec.restartPolicy`, `Always` when it is not given.
pub fn restart_policy(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always")
}

pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// The pod's UID. A mirror pod's is that of the static pod it stands for.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// As upstream writes a pod in messages: `name_namespace(uid)`.
pub fn long_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// Whether the pod shares the node's network.
pub fn is_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true))
}

/// The annotation of the source a pod came from.
pub const SOURCE: &str = "kubernetes.io/config.source";
/// The annotation that marks the API's image of a static pod; its value is the static pod's hash.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether the pod comes from a file or URL of this node and not from the API.
pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source != "api")
}

/// Whether the pod is the API's image of a static pod.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ContainerRestartRule, ContainerRestartRuleOnExitCodes, PodSpec};

    #[test]
    fn restart_follows_rules_then_the_containers_policy_then_the_pods() {
        let rule = |operator: &str, values: &[i32]| ContainerRestartRule {
            action: "Restart".into(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: operator.into(),
                values: Some(values.to_vec()),
            }),
        };
        let check =
            |pod_policy: &str, policy: Option<&str>, rules: Vec<ContainerRestartRule>, code: i32, expect: bool| {
                let spec = PodSpec { restart_policy: Some(pod_policy.into()), ..Default::default() };
                let pod = Pod { spec: Some(spec), ..Default::default() };
                let container = Container {
                    restart_policy: policy.map(Into::into),
                    restart_policy_rules: Some(rules),
                    ..Default::default()
                };
                assert_eq!(restarts_after(&container, &pod, code), expect, "{pod_policy} {policy:?} {code}");
            };
        check("Always", None, vec![], 0, true);
        check("OnFailure", None, vec![], 0, false);
        check("OnFailure", None, vec![], 1, true);
        check("Never", None, vec![], 1, false);
        check("Never", Some("OnFailure"), vec![], 1, true);
        check("Always", Some("Never"), vec![], 1, false);
        check("Never", Some("Never"), vec![rule("In", &[42])], 42, true);
        check("Never", Some("Never"), vec![rule("In", &[42])], 41, false);
        check("Never", Some("Never"), vec![rule("NotIn", &[1])], 42, true);
        let all = ContainerRestartRule { action: "RestartAllContainers".into(), ..rule("In", &[7]) };
        check("Never", Some("Never"), vec![all.clone()], 7, true);
        let container = Container { restart_policy_rules: Some(vec![rule("In", &[1]), all]), ..Default::default() };
        assert!(restarts_all(&container, 7) && !restarts_all(&container, 1) && !restarts_all(&container, 0));
    }
}
