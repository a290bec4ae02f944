//! A pod's sandbox, as it is passed to the runtime.

use k8s_openapi::api::core::v1::Pod;
use node::cri::{labels, v1};

use super::{Error, NodeFacts, dns, hosts, log_folder, security};
use crate::pod::spec;

/// The configuration of the sandbox with this attempt; warnings about it, for events.
pub fn config(
    pod: &Pod,
    attempt: u32,
    cgroup_parent: &str,
    facts: &NodeFacts,
) -> Result<(v1::PodSandboxConfig, Vec<String>), Error> {
    let (dns, warnings) = dns::config(pod, facts);
    let hostname = if spec::is_host_network(pod) { String::new() } else { hosts::kernel_name(pod, facts)? };
    let mut all_labels = pod.metadata.labels.clone().unwrap_or_default();
    all_labels.extend([
        (labels::POD_NAME.to_owned(), spec::name(pod).to_owned()),
        (labels::POD_NAMESPACE.to_owned(), spec::namespace(pod).to_owned()),
        (labels::POD_UID.to_owned(), spec::uid(pod).to_owned()),
    ]);
    let config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: spec::name(pod).to_owned(),
            uid: spec::uid(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            attempt,
        }),
        hostname,
        log_directory: log_folder(facts, pod).to_string_lossy().into_owned(),
        dns_config: Some(dns),
        port_mappings: ports(pod),
        labels: all_labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        linux: Some(linux(pod, cgroup_parent)),
    };
    Ok((config, warnings))
}

/// Puts the sandbox into a user namespace of its own.
pub fn with_users(mut config: v1::PodSandboxConfig, users: Option<v1::UserNamespace>) -> v1::PodSandboxConfig {
    let context = config.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    if let Some(options) = context.and_then(|context| context.namespace_options.as_mut()) {
        options.userns_options = users;
    }
    config
}

/// Ports of the node that lead to the pod. In the node's network there is nothing to lead.
fn ports(pod: &Pod) -> Vec<v1::PortMapping> {
    if spec::is_host_network(pod) {
        return Vec::new();
    }
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c));
    let all = sidecars.chain(spec::containers(pod)).flat_map(|c| c.ports.iter().flatten());
    all.filter(|port| port.host_port.unwrap_or(0) > 0)
        .map(|port| v1::PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => v1::Protocol::Udp,
                Some("SCTP") => v1::Protocol::Sctp,
                _ => v1::Protocol::Tcp,
            }
            .into(),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

fn linux(pod: &Pod, cgroup_parent: &str) -> v1::LinuxPodSandboxConfig {
    let context = pod.spec.as_ref().and_then(|s| s.security_context.clone()).unwrap_or_default();
    let mut groups: Vec<i64> = context.fs_group.into_iter().collect();
    groups.extend(context.supplemental_groups.iter().flatten());
    let sysctls = context.sysctls.iter().flatten();
    v1::LinuxPodSandboxConfig {
        cgroup_parent: cgroup_parent.to_owned(),
        // Written with slashes too; the runtime knows them by dots only.
        sysctls: sysctls.map(|s| (dotted(&s.name), s.value.clone())).collect(),
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(security::namespaces(pod)),
            selinux_options: context.se_linux_options.as_ref().map(security::selinux),
            run_as_user: context.run_as_user.map(|value| v1::Int64Value { value }),
            run_as_group: context.run_as_group.map(|value| v1::Int64Value { value }),
            supplemental_groups: groups,
            supplemental_groups_policy: security::groups_policy(&context),
            privileged: security::any_privileged(pod),
            seccomp: Some(v1::SecurityProfile {
                profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
                localhost_ref: String::new(),
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A kernel parameter's name as the runtime knows it. `net/ipv4/conf/eth0.1/x` is `net.ipv4.conf.eth0/1.x`: in the form with slashes, slashes and dots change places.
pub(crate) fn dotted(name: &str) -> String {
    let first = name.find(['.', '/']);
    if first.is_some_and(|at| name.as_bytes()[at] == b'/') {
        name.chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect()
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctls_are_written_with_dots() {
        assert_eq!(dotted("net/ipv4/conf/eth0.1/x"), "net.ipv4.conf.eth0/1.x");
        assert_eq!(dotted("net.ipv4.ip_local_port_range"), "net.ipv4.ip_local_port_range");
    }

    #[test]
    fn host_ports_are_mapped_unless_the_network_is_the_hosts() {
        let pod = |host: bool| -> Pod {
            serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": {
                "hostNetwork": host,
                "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]}],
            }}))
            .unwrap()
        };
        let (config, _) = config(&pod(false), 2, "/kubepods", &NodeFacts::default()).unwrap();
        assert_eq!(config.port_mappings.len(), 1);
        assert_eq!(config.metadata.unwrap().attempt, 2);
        assert!(ports(&pod(true)).is_empty());
    }
}
