//! What a debugging container may do, by the name of a profile. Pure.

use machinery::value::{list_mut, remove, set, text};
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Legacy,
    General,
    Baseline,
    Restricted,
    Netadmin,
    Sysadmin,
}

/// How something is debugged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Ephemeral,
    Copy,
    Node,
}

/// What a copy keeps of its original.
#[derive(Debug, Clone, Copy)]
pub struct Keeps {
    pub labels: bool,
    pub annotations: bool,
    pub liveness: bool,
    pub readiness: bool,
    pub startup: bool,
    pub init_containers: bool,
}

impl Profile {
    pub fn named(name: &str) -> Result<Self, String> {
        Ok(match name {
            "legacy" => Self::Legacy,
            "general" => Self::General,
            "baseline" => Self::Baseline,
            "restricted" => Self::Restricted,
            "netadmin" => Self::Netadmin,
            "sysadmin" => Self::Sysadmin,
            other => return Err(format!("unknown profile: {other}")),
        })
    }

    /// Changes a pod and its debugging container as the profile wants them.
    pub fn apply(self, style: Style, keeps: Keeps, pod: &mut Value, container: &str) {
        match self {
            Self::Legacy => {}
            Self::General if style == Style::Node => without_context(pod, container),
            Self::General => add_capability(pod, container, "SYS_PTRACE"),
            Self::Baseline => without_context(pod, container),
            Self::Restricted => on(pod, container, |container| {
                container["securityContext"] = json!({
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "runAsNonRoot": true,
                    "seccompProfile": {"type": "RuntimeDefault"},
                });
            }),
            Self::Netadmin => {
                add_capability(pod, container, "NET_ADMIN");
                add_capability(pod, container, "NET_RAW");
            }
            Self::Sysadmin => on(pod, container, |container| set(container, "securityContext.privileged", true)),
        }
        match style {
            Style::Ephemeral => {}
            Style::Node => self.apply_to_node(pod, container),
            Style::Copy => self.apply_to_copy(keeps, pod),
        }
    }

    fn apply_to_node(self, pod: &mut Value, container: &str) {
        if matches!(self, Self::Legacy | Self::General | Self::Sysadmin) {
            set(pod, "spec.volumes", json!([{"name": "host-root", "hostPath": {"path": "/"}}]));
            on(pod, container, |container| {
                set(container, "volumeMounts", json!([{"mountPath": "/host", "name": "host-root"}]));
            });
        }
        if matches!(self, Self::Legacy | Self::General | Self::Netadmin | Self::Sysadmin) {
            for space in ["hostNetwork", "hostPID", "hostIPC"] {
                pod["spec"][space] = true.into();
            }
        }
    }

    fn apply_to_copy(self, keeps: Keeps, pod: &mut Value) {
        if self == Self::Legacy || !keeps.labels {
            remove(pod, "metadata.labels");
        }
        if self == Self::Legacy {
            return;
        }
        if !keeps.annotations {
            remove(pod, "metadata.annotations");
        }
        let probes =
            [("livenessProbe", keeps.liveness), ("readinessProbe", keeps.readiness), ("startupProbe", keeps.startup)];
        for container in list_mut(pod, "spec.containers") {
            for (probe, _) in probes.iter().filter(|(_, kept)| !kept) {
                remove(container, probe);
            }
        }
        if !keeps.init_containers {
            remove(pod, "spec.initContainers");
        }
        if pod["spec"].get("shareProcessNamespace").is_none() {
            pod["spec"]["shareProcessNamespace"] = true.into();
        }
    }
}

/// Changes a container, of whatever sort.
fn on(pod: &mut Value, name: &str, change: impl Fn(&mut Value)) {
    for path in ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"] {
        for container in list_mut(pod, path) {
            if text(container, "name") == name {
                change(container);
            }
        }
    }
}

fn without_context(pod: &mut Value, container: &str) {
    on(pod, container, |container| {
        remove(container, "securityContext");
    });
}

fn add_capability(pod: &mut Value, container: &str, capability: &str) {
    on(pod, container, |container| {
        let added = &mut container["securityContext"]["capabilities"]["add"];
        match added {
            Value::Array(added) => added.push(capability.into()),
            other => *other = json!([capability]),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Keeps = Keeps {
        labels: false,
        annotations: false,
        liveness: false,
        readiness: false,
        startup: false,
        init_containers: true,
    };

    fn applied(profile: Profile, style: Style) -> Value {
        let mut pod = json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"containers": [{"name": "x", "livenessProbe": {}}, {"name": "d"}], "initContainers": [{"name": "i"}]},
        });
        profile.apply(style, NOTHING, &mut pod, "d");
        pod
    }

    #[test]
    fn profiles_give_what_upstreams_give() {
        let ephemeral = |profile| applied(profile, Style::Ephemeral)["spec"]["containers"][1].clone();
        assert_eq!(ephemeral(Profile::Legacy), json!({"name": "d"}));
        assert_eq!(
            ephemeral(Profile::General),
            json!({"name": "d", "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}})
        );
        assert_eq!(
            ephemeral(Profile::Netadmin),
            json!({"name": "d", "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}})
        );
        assert_eq!(ephemeral(Profile::Sysadmin), json!({"name": "d", "securityContext": {"privileged": true}}));
        assert_eq!(ephemeral(Profile::Restricted)["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
        let node = applied(Profile::General, Style::Node);
        assert_eq!(node["spec"]["containers"][1]["volumeMounts"][0]["mountPath"], "/host");
        assert_eq!(node["spec"]["hostPID"], true);
        assert_eq!(applied(Profile::Baseline, Style::Node)["spec"].get("hostPID"), None);
        let copy = applied(Profile::General, Style::Copy);
        assert_eq!(copy["metadata"], json!({}));
        assert_eq!(copy["spec"]["containers"][0], json!({"name": "x"}));
        assert_eq!(copy["spec"]["shareProcessNamespace"], true);
        assert_eq!(applied(Profile::Legacy, Style::Copy)["metadata"], json!({"annotations": {"c": "d"}}));
        assert_eq!(Profile::named("x"), Err("unknown profile: x".to_owned()));
    }
}
