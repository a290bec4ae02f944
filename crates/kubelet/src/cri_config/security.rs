//! Users, groups, capabilities and profiles of a container: the pod's settings, overridden by the container's.

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SeccompProfile, SecurityContext};
use node::cri::v1;

use super::{Error, NodeFacts};
use crate::pod::spec;

/// Hidden from a container unless it asks for `procMount: Unmasked`.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The user an image wants to run as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageUser {
    pub uid: Option<i64>,
    /// By name, when not by number.
    pub name: String,
}

impl ImageUser {
    /// An image that says neither number nor name runs as root.
    fn number(&self) -> Option<i64> {
        self.uid.or(self.name.is_empty().then_some(0))
    }
}

/// A container's rights, as they are passed to the runtime.
pub fn context(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
    target: Option<&str>,
    facts: &NodeFacts,
) -> Result<v1::LinuxContainerSecurityContext, Error> {
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.clone()).unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    verify_non_root(pod, container, &of_pod, &own, image_user)?;
    let user = own.run_as_user.or(of_pod.run_as_user);
    let mut groups: Vec<i64> = of_pod.fs_group.into_iter().collect();
    groups.extend(of_pod.supplemental_groups.iter().flatten());
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| if unmasked { vec![] } else { list.iter().map(|p| (*p).to_owned()).collect() };
    let mut namespaces = namespaces(pod);
    if let Some(target) = target
        && namespaces.pid() == v1::NamespaceMode::Container
    {
        namespaces.set_pid(v1::NamespaceMode::Target);
        namespaces.target_id = target.to_owned();
    }
    let capabilities = own.capabilities.as_ref().map(|c| v1::Capability {
        add_capabilities: c.add.clone().unwrap_or_default(),
        drop_capabilities: c.drop.clone().unwrap_or_default(),
        add_ambient_capabilities: Vec::new(),
    });
    Ok(v1::LinuxContainerSecurityContext {
        capabilities,
        privileged: own.privileged == Some(true),
        namespace_options: Some(namespaces),
        selinux_options: own.se_linux_options.as_ref().or(of_pod.se_linux_options.as_ref()).map(selinux),
        run_as_user: user.or(image_user.number()).map(|value| v1::Int64Value { value }),
        run_as_username: if user.is_none() && image_user.uid.is_none() {
            image_user.name.clone()
        } else {
            String::new()
        },
        run_as_group: own.run_as_group.or(of_pod.run_as_group).map(|value| v1::Int64Value { value }),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups,
        supplemental_groups_policy: groups_policy(&of_pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(seccomp(own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref()), facts)?),
        apparmor: apparmor(&own, &of_pod)?,
    })
}

/// The namespaces a pod's containers live in.
pub fn namespaces(pod: &Pod) -> v1::NamespaceOption {
    let spec = pod.spec.as_ref();
    let flag = |read: fn(&k8s_openapi::api::core::v1::PodSpec) -> Option<bool>| spec.and_then(read) == Some(true);
    let host = |on: bool| if on { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod };
    let pid = if flag(|s| s.host_pid) {
        v1::NamespaceMode::Node
    } else if flag(|s| s.share_process_namespace) {
        v1::NamespaceMode::Pod
    } else {
        v1::NamespaceMode::Container
    };
    v1::NamespaceOption {
        network: host(spec::is_host_network(pod)).into(),
        pid: pid.into(),
        ipc: host(flag(|s| s.host_ipc)).into(),
        ..Default::default()
    }
}

/// Whether any container of the pod may do everything.
pub fn any_privileged(pod: &Pod) -> bool {
    spec::members(pod).any(|m| m.container.security_context.as_ref().is_some_and(|sc| sc.privileged == Some(true)))
}

/// How group memberships of the image are combined with the pod's.
pub fn groups_policy(context: &PodSecurityContext) -> i32 {
    match context.supplemental_groups_policy.as_deref() {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict.into(),
        _ => v1::SupplementalGroupsPolicy::Merge.into(),
    }
}

/// SELinux labels, as they are.
pub fn selinux(options: &k8s_openapi::api::core::v1::SELinuxOptions) -> v1::SeLinuxOption {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    v1::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

fn verify_non_root(
    pod: &Pod,
    container: &Container,
    of_pod: &PodSecurityContext,
    own: &SecurityContext,
    image: &ImageUser,
) -> Result<(), Error> {
    if own.run_as_non_root.or(of_pod.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let whom = format!("(pod: {:?}, container: {})", spec::long_name(pod), container.name);
    match (own.run_as_user.or(of_pod.run_as_user), image.number()) {
        (Some(0), _) => Err(Error::Other(format!("container's runAsUser breaks non-root policy {whom}"))),
        (Some(_), _) => Ok(()),
        (None, Some(0)) => Err(Error::Other(format!("container has runAsNonRoot and image will run as root {whom}"))),
        (None, Some(_)) => Ok(()),
        (None, None) => Err(Error::Other(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {whom}",
            image.name
        ))),
    }
}

fn seccomp(profile: Option<&SeccompProfile>, facts: &NodeFacts) -> Result<v1::SecurityProfile, Error> {
    use v1::security_profile::ProfileType;
    let (kind, path) = match profile.map(|p| p.type_.as_str()) {
        Some("RuntimeDefault") => (ProfileType::RuntimeDefault, String::new()),
        Some("Localhost") => {
            let name = profile.and_then(|p| p.localhost_profile.as_deref()).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| {
                Error::Other("localhostProfile must be set if seccompProfile type is Localhost.".into())
            })?;
            (ProfileType::Localhost, facts.seccomp_dir.join(name).to_string_lossy().into_owned())
        }
        _ => (ProfileType::Unconfined, String::new()),
    };
    Ok(v1::SecurityProfile { profile_type: kind.into(), localhost_ref: path })
}

fn apparmor(own: &SecurityContext, of_pod: &PodSecurityContext) -> Result<Option<v1::SecurityProfile>, Error> {
    use v1::security_profile::ProfileType;
    let Some(profile) = own.app_armor_profile.as_ref().or(of_pod.app_armor_profile.as_ref()) else { return Ok(None) };
    let (kind, name) = match profile.type_.as_str() {
        "RuntimeDefault" => (ProfileType::RuntimeDefault, String::new()),
        "Localhost" => {
            let name = profile.localhost_profile.clone().filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| Error::Other("missing localhost apparmor profile name".into()))?;
            (ProfileType::Localhost, name)
        }
        _ => (ProfileType::Unconfined, String::new()),
    };
    Ok(Some(v1::SecurityProfile { profile_type: kind.into(), localhost_ref: name }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn context_of(
        pod: serde_json::Value,
        own: serde_json::Value,
        image: ImageUser,
    ) -> Result<v1::LinuxContainerSecurityContext, Error> {
        let container: Container = serde_json::from_value(json!({"name": "c", "securityContext": own})).unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "securityContext": pod},
        }))
        .unwrap();
        context(&pod, &container, &image, None, &NodeFacts { seccomp_dir: "/sec".into(), ..Default::default() })
    }

    #[test]
    fn the_container_overrides_the_pod_which_overrides_the_image() {
        let image = ImageUser { uid: Some(7), name: String::new() };
        let user = |pod, own| context_of(pod, own, image.clone()).unwrap().run_as_user.unwrap().value;
        assert_eq!(user(json!({}), json!({})), 7);
        assert_eq!(user(json!({"runAsUser": 8}), json!({})), 8);
        assert_eq!(user(json!({"runAsUser": 8}), json!({"runAsUser": 9})), 9);
        let named = ImageUser { uid: None, name: "nobody".into() };
        assert_eq!(context_of(json!({}), json!({}), named).unwrap().run_as_username, "nobody");
    }

    #[test]
    fn root_is_refused_where_it_was_forbidden() {
        let check = |own: serde_json::Value, image: ImageUser, expect: Option<&str>| {
            let result = context_of(json!({"runAsNonRoot": true}), own, image);
            assert_eq!(result.err().map(|e| e.to_string()).as_deref(), expect);
        };
        let root = ImageUser { uid: Some(0), name: String::new() };
        let whom = "(pod: \"p_ns(u)\", container: c)";
        check(json!({}), root.clone(), Some(&format!("container has runAsNonRoot and image will run as root {whom}")));
        check(
            json!({"runAsUser": 0}),
            root.clone(),
            Some(&format!("container's runAsUser breaks non-root policy {whom}")),
        );
        check(json!({"runAsUser": 5}), root, None);
        // Most images name nobody.
        let unnamed = ImageUser::default();
        check(
            json!({}),
            unnamed.clone(),
            Some(&format!("container has runAsNonRoot and image will run as root {whom}")),
        );
        check(json!({"runAsUser": 5}), unnamed, None);
        let named = ImageUser { uid: None, name: "nobody".into() };
        let message =
            "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root";
        check(json!({}), named, Some(&format!("{message} {whom}")));
    }

    #[test]
    fn profiles_paths_and_groups() {
        let got = context_of(
            json!({"fsGroup": 5, "supplementalGroups": [6], "seccompProfile": {"type": "Localhost", "localhostProfile": "x.json"}}),
            json!({"procMount": "Unmasked", "allowPrivilegeEscalation": false}),
            ImageUser::default(),
        )
        .unwrap();
        assert_eq!(got.supplemental_groups, [5, 6]);
        assert_eq!(got.seccomp.unwrap().localhost_ref, "/sec/x.json");
        assert!(got.masked_paths.is_empty() && got.no_new_privs);
    }
}
