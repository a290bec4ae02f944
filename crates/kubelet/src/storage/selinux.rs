//! SELinux labels of volumes. Pure.
//!
//! Where a machine has SELinux, a container sees only files with its own label. Giving every file of a volume that label takes as long as there are
//! files; a file system that is mounted with it has it at once. So drivers that can are asked to mount with the label of the pod, and the
//! runtime labels the files of the others.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, SELinuxOptions};
use node::selinux::Label;

use crate::pod::spec;

/// The label that a volume of a pod is mounted with; nothing if its files are labelled one by one. `usual` is what files get on this machine.
pub(crate) fn mount_label(pod: &Pod, volume: &str, usual: &Label) -> Result<Option<String>, String> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let of_pod = context.and_then(|context| context.se_linux_options.as_ref());
    let users = spec::members(pod).filter(|member| {
        let mut mounts = member.container.volume_mounts.iter().flatten();
        mounts.any(|mount| mount.name == volume)
    });
    let labels: BTreeSet<Option<String>> = users
        .map(|member| {
            let own = member.container.security_context.as_ref().and_then(|context| context.se_linux_options.clone());
            own.as_ref().or(of_pod).and_then(|options| file_label(options, usual))
        })
        .collect();
    if labels.len() > 1 {
        let labels: Vec<String> = labels.into_iter().map(Option::unwrap_or_default).collect();
        return Err(format!("multiple SELinux labels found: {}", labels.join(",")));
    }
    let one_by_one = context.and_then(|context| context.se_linux_change_policy.as_deref()) == Some("Recursive");
    Ok(labels.into_iter().flatten().next().filter(|_| !one_by_one))
}

/// The label of files that processes with these options may use. Without a level the runtime chooses one for each pod, which nobody knows before.
fn file_label(options: &SELinuxOptions, usual: &Label) -> Option<String> {
    let level = options.level.clone().filter(|level| !level.is_empty())?;
    let user = options.user.clone().filter(|user| !user.is_empty()).unwrap_or_else(|| usual.user.clone());
    Some(Label { user, level, ..usual.clone() }.to_string())
}

/// As an option of a mount. Levels have commas in them.
pub(crate) fn option(label: &str) -> String {
    format!("context={label:?}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn usual() -> Label {
        let [user, role, kind, level] = ["system_u", "object_r", "container_file_t", "s0"].map(str::to_owned);
        Label { user, role, kind, level }
    }

    fn check(of_pod: Value, of_containers: &[Value]) -> Result<Option<String>, String> {
        let containers: Vec<Value> = of_containers
            .iter()
            .map(|options| {
                json!({"name": "c", "securityContext": {"seLinuxOptions": options}, "volumeMounts": [
                    {"name": "v", "mountPath": "/v"},
                ]})
            })
            .chain([json!({"name": "other", "securityContext": {"seLinuxOptions": {"level": "s0:c7"}}})])
            .collect();
        let pod = json!({"spec": {"securityContext": of_pod, "containers": containers}});
        mount_label(&serde_json::from_value(pod).unwrap(), "v", &usual())
    }

    #[test]
    fn a_volume_has_the_level_of_the_containers_that_use_it() {
        let level = |level: &str| json!({"level": level});
        let label = "system_u:object_r:container_file_t:s0:c1,c2".to_owned();
        assert_eq!(check(json!({"seLinuxOptions": level("s0:c1,c2")}), &[Value::Null]), Ok(Some(label.clone())));
        assert_eq!(check(json!({}), &[level("s0:c1,c2"), level("s0:c1,c2")]), Ok(Some(label.clone())));
        assert_eq!(option(&label), "context=\"system_u:object_r:container_file_t:s0:c1,c2\"");
        let process = json!({"user": "u", "role": "r", "type": "container_t", "level": "s0:c3"});
        assert_eq!(check(json!({}), &[process]), Ok(Some("u:object_r:container_file_t:s0:c3".to_owned())));
        assert_eq!(check(json!({}), &[Value::Null]), Ok(None));
        let recursive = json!({"seLinuxOptions": level("s0:c1"), "seLinuxChangePolicy": "Recursive"});
        assert_eq!(check(recursive, &[Value::Null]), Ok(None));
        let several = check(json!({}), &[level("s0:c1"), level("s0:c2")]).unwrap_err();
        assert!(
            several.starts_with("multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,"),
            "{several}"
        );
    }
}
