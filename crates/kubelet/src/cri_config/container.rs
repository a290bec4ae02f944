//! A container, as it is passed to the runtime.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use node::cri::{labels, v1};

use super::security::{self, ImageUser};
use super::{Error, NodeFacts};
use crate::pod::spec::{self, Member};
use crate::pod::{resources, state};
use rules::expansion::expand;

/// What of a container was prepared elsewhere.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub env: BTreeMap<String, String>,
    /// Files and directories shown in it.
    pub mounts: Vec<v1::Mount>,
    pub devices: Vec<v1::Device>,
    /// The image's reference in the runtime.
    pub image_ref: String,
    /// The user the image wants.
    pub image_user: ImageUser,
    /// For an ephemeral container: the id of the container whose processes it sees.
    pub target: Option<String>,
    /// How often it was started before.
    pub restarts: u32,
    /// The pod's user namespace, when it has one of its own.
    pub users: Option<v1::UserNamespace>,
}

pub fn config(
    pod: &Pod,
    member: &Member<'_>,
    mut prepared: Prepared,
    facts: &NodeFacts,
) -> Result<v1::ContainerConfig, Error> {
    let container = &*member.container;
    let mut context = security::context(pod, container, &prepared.image_user, prepared.target.as_deref(), facts)?;
    if let (Some(users), Some(options)) = (&prepared.users, &mut context.namespace_options) {
        // Files keep their owners outside and have the pod's inside.
        for mount in &mut prepared.mounts {
            mount.uid_mappings.clone_from(&users.uids);
            mount.gid_mappings.clone_from(&users.gids);
        }
        options.userns_options = Some(users.clone());
    }
    let env = &prepared.env;
    let expanded = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().map(|text| expand(text, |name| env.get(name).cloned())).collect()
    };
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt: prepared.restarts }),
        image: Some(v1::ImageSpec {
            image: prepared.image_ref,
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: env.iter().map(|(key, value)| v1::KeyValue { key: key.clone(), value: value.clone().into() }).collect(),
        mounts: prepared.mounts,
        devices: prepared.devices,
        labels: [
            (labels::POD_NAME, spec::name(pod)),
            (labels::POD_NAMESPACE, spec::namespace(pod)),
            (labels::POD_UID, spec::uid(pod)),
            (labels::CONTAINER_NAME, &container.name),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        annotations: annotations(pod, container, prepared.restarts),
        log_path: format!("{}/{}.log", container.name, prepared.restarts),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources::container_limits(pod, container, facts.memory)),
            security_context: Some(context),
        }),
        stop_signal: stop_signal(container),
        ..Default::default()
    })
}

/// Notes by which the container can be judged and stopped even when nobody knows its pod any more.
fn annotations(pod: &Pod, container: &Container, restarts: u32) -> BTreeMap<String, String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut notes = BTreeMap::from([
        (state::HASH.to_owned(), spec::hash(container)),
        (state::RESTART_COUNT.to_owned(), restarts.to_string()),
        (state::TERMINATION_MESSAGE_PATH.to_owned(), text(&container.termination_message_path)),
        (state::TERMINATION_MESSAGE_POLICY.to_owned(), text(&container.termination_message_policy)),
    ]);
    if let Some(grace) = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds) {
        notes.insert(state::TERMINATION_GRACE_PERIOD.to_owned(), grace.to_string());
    }
    if let Some(hook) = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref())
        && let Ok(text) = serde_json::to_string(hook)
    {
        notes.insert("io.kubernetes.container.preStopHandler".to_owned(), text);
    }
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty())
        && let Ok(text) = serde_json::to_string(ports)
    {
        notes.insert("io.kubernetes.container.ports".to_owned(), text);
    }
    notes
}

/// The signal that asks it to end, where the container names one.
fn stop_signal(container: &Container) -> i32 {
    let name = container.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref()).unwrap_or_default();
    v1::Signal::from_str_name(&format!("SIGNAL_{name}")).unwrap_or(v1::Signal::RuntimeDefault).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_expanded_and_notes_are_left() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"terminationGracePeriodSeconds": 7, "containers": [{
                "name": "c", "image": "i", "command": ["echo"], "args": ["$(A)", "$(B)"],
                "lifecycle": {"stopSignal": "SIGUSR1"},
            }]},
        }))
        .unwrap();
        let member = spec::member(&pod, "c").unwrap();
        let prepared = Prepared {
            env: BTreeMap::from([("A".to_owned(), "x".to_owned())]),
            mounts: vec![],
            devices: vec![],
            image_ref: "sha256:1".into(),
            image_user: ImageUser::default(),
            target: None,
            restarts: 2,
            users: None,
        };
        let config = config(&pod, &member, prepared, &NodeFacts { memory: 1 << 30, ..Default::default() }).unwrap();
        assert_eq!(config.args, ["x", "$(B)"]);
        assert_eq!(config.log_path, "c/2.log");
        assert_eq!(config.annotations[state::TERMINATION_GRACE_PERIOD], "7");
        assert_eq!(config.stop_signal(), v1::Signal::Sigusr1);
    }
}
