//! What a pod was given, apart from what it asks for: resources that change while it runs are asked for in its
//! specification, given when the node has them, and in force once the runtime has them.
//!
//! ```text
//! specification ──(fits)──► allocated ──(runtime updated)──► in force
//! ```
//! The last two are kept in a file beside the pod's volumes, so that a kubelet that starts anew neither takes a request for a
//! grant nor a grant for the present state.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::resources::{milli, value};
use super::spec;

/// The resources that can change while a container runs.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// What a pod was given and what is in force.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// By the container's name.
    containers: BTreeMap<String, ResourceRequirements>,
    /// Of the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<ResourceRequirements>,
    /// What containers run with, by the runtime's id.
    #[serde(default)]
    in_force: BTreeMap<String, ResourceRequirements>,
}

impl Allocation {
    /// All that the specification asks for.
    pub fn of(pod: &Pod) -> Self {
        let all = spec::init_containers(pod).iter().chain(spec::containers(pod));
        let containers = all.map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default())).collect();
        let pod = pod.spec.as_ref().and_then(|spec| spec.resources.clone());
        Self { containers, pod, in_force: BTreeMap::new() }
    }

    /// Whether the specification asks for something else than was given.
    pub fn differs(&self, pod: &Pod) -> bool {
        let all = spec::init_containers(pod).iter().chain(spec::containers(pod));
        let mut pairs = all.map(|c| (self.containers.get(&c.name), c.resources.as_ref()));
        let whole = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        pairs.any(|(given, asked)| !same(given, asked)) || !same(self.pod.as_ref(), whole)
    }

    /// Gives what the specification asks for. What is in force stays so.
    pub fn grant(&mut self, pod: &Pod) {
        let in_force = std::mem::take(&mut self.in_force);
        *self = Self { in_force, ..Self::of(pod) };
    }

    /// The pod as it was granted.
    pub fn apply(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        if !self.differs(pod) {
            return pod.clone();
        }
        let mut granted = Pod::clone(pod);
        if let Some(spec) = &mut granted.spec {
            spec.resources.clone_from(&self.pod);
            for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
                if let Some(given) = self.containers.get(&container.name) {
                    container.resources = Some(given.clone());
                }
            }
        }
        Arc::new(granted)
    }

    /// What a container runs with; nothing when it was made before anybody kept a note of it.
    pub fn in_force(&self, id: &str) -> Option<&ResourceRequirements> {
        self.in_force.get(id)
    }

    /// Notes what a container runs with.
    pub fn note(&mut self, id: &str, resources: Option<&ResourceRequirements>) {
        self.in_force.insert(id.to_owned(), resources.cloned().unwrap_or_default());
    }

    /// Forgets the containers that are gone.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.in_force.retain(|id, _| is_there(id));
    }

    /// What has to change about a container that runs; nothing when it has what it was given.
    pub fn change(&self, id: &str, container: &Container) -> Option<Change> {
        let present = self.in_force.get(id)?;
        let given = container.resources.as_ref();
        if same(Some(present), given) {
            return None;
        }
        let restart = RESIZABLE.into_iter().any(|name| {
            let policy = container.resize_policy.iter().flatten().find(|policy| policy.resource_name == name);
            policy.is_some_and(|policy| policy.restart_policy == "RestartContainer")
                && !same_of(name, Some(present), given)
        });
        Some(if restart { Change::Restart } else { Change::InPlace })
    }

    /// Reads the file; nothing when there is none that can be read.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file(dir)).ok()?).ok()
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let unfinished = dir.join("allocation.json.tmp");
        std::fs::write(&unfinished, serde_json::to_vec(self)?)?;
        std::fs::rename(unfinished, file(dir))
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("allocation.json")
}

/// How a container gets what it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    InPlace,
    /// By being started anew.
    Restart,
}

fn same(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    RESIZABLE.into_iter().all(|name| same_of(name, a, b))
}

fn same_of(name: &str, a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    let amounts = |resources: Option<&ResourceRequirements>| {
        let unit = if name == "cpu" { milli } else { value };
        let list = |list: Option<&BTreeMap<String, _>>| list.and_then(|list| list.get(name)).map(unit);
        resources.map_or((None, None), |r| (list(r.requests.as_ref()), list(r.limits.as_ref())))
    };
    amounts(a) == amounts(b)
}

/// What events about a resize say: `Pod resize started: {"containers":[…],"generation":2}`.
pub fn summary(prefix: &str, pod: &Pod, error: &str) -> String {
    let list = |containers: &[Container]| -> Vec<serde_json::Value> {
        containers
            .iter()
            .map(|c| json!({"name": c.name, "resources": c.resources.clone().unwrap_or_default()}))
            .collect()
    };
    // Written by hand because the order of the fields is part of what people read.
    let mut parts = Vec::new();
    for (name, containers) in [("initContainers", spec::init_containers(pod)), ("containers", spec::containers(pod))] {
        if !containers.is_empty() {
            parts.push(format!("{name:?}:{}", serde_json::Value::from(list(containers))));
        }
    }
    parts.push(format!("\"generation\":{}", pod.metadata.generation.unwrap_or(0)));
    if !error.is_empty() {
        parts.push(format!("\"error\":{}", serde_json::Value::from(error)));
    }
    format!("{prefix}: {{{}}}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str, memory: &str) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": "p", "generation": 2}, "spec": {"containers": [{
            "name": "c",
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
            "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
        }]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn what_is_asked_for_given_and_in_force_are_three_things() {
        let (small, more_cpu, more_memory) = (pod("100m", "1Gi"), pod("0.2", "1Gi"), pod("100m", "2Gi"));
        let mut allocation = Allocation::of(&small);
        assert!(!allocation.differs(&pod("0.1", "1024Mi")) && allocation.differs(&more_cpu));
        assert_eq!(allocation.apply(&more_cpu).spec, small.spec);
        let container = |pod: &Pod| spec::containers(pod)[0].clone();
        assert_eq!(allocation.change("id", &container(&more_cpu)), None);
        allocation.note("id", container(&small).resources.as_ref());
        allocation.grant(&more_cpu);
        assert_eq!(allocation.change("id", &container(&more_cpu)), Some(Change::InPlace));
        assert_eq!(allocation.change("id", &container(&more_memory)), Some(Change::Restart));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Allocation::read(dir.path()), None);
        allocation.write(&dir.path().join("pod")).unwrap();
        assert_eq!(Allocation::read(&dir.path().join("pod")), Some(allocation.clone()));
        allocation.note("id2", None);
        assert!(allocation.in_force("id").is_some());
        allocation.keep(|id| id != "id");
        assert_eq!((allocation.in_force("id"), allocation.in_force("id2").is_some()), (None, true));
    }

    #[test]
    fn events_say_what_was_asked_for() {
        assert_eq!(
            summary("Pod resize started", &pod("1", "1Gi"), ""),
            "Pod resize started: {\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{\"cpu\":\"1\",\"memory\":\"1Gi\"}}}],\"generation\":2}"
        );
    }
}
