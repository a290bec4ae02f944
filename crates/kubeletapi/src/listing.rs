//! Lists of pods: as the API has them, and as the runtime has them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use node::cri::{Error, Runtime, labels, v1};
use serde::Serialize;

/// A list in the API's form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodList {
    kind: &'static str,
    api_version: &'static str,
    metadata: BTreeMap<String, String>,
    items: Vec<Pod>,
}

impl PodList {
    pub fn new(items: Vec<Pod>) -> Self {
        Self { kind: "PodList", api_version: "v1", metadata: BTreeMap::new(), items }
    }
}

/// What runs, whoever asked for it.
pub async fn running(runtime: &dyn Runtime) -> Result<Vec<Pod>, Error> {
    let ready = v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() };
    let running = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    let (sandboxes, containers) = tokio::try_join!(
        runtime.list_sandboxes(v1::PodSandboxFilter { state: Some(ready), ..Default::default() }),
        runtime.list_containers(v1::ContainerFilter { state: Some(running), ..Default::default() }),
    )?;
    Ok(sandboxes.iter().map(|sandbox| pod(sandbox, &containers)).collect())
}

fn pod(sandbox: &v1::PodSandbox, containers: &[v1::Container]) -> Pod {
    let label = |key: &str| sandbox.labels.get(key).cloned();
    let mine = containers.iter().filter(|container| container.pod_sandbox_id == sandbox.id);
    let containers = mine.map(|container| Container {
        name: container.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or_default(),
        image: container.image.as_ref().map(|image| image.image.clone()),
        ..Container::default()
    });
    Pod {
        metadata: ObjectMeta {
            name: label(labels::POD_NAME),
            namespace: label(labels::POD_NAMESPACE),
            uid: label(labels::POD_UID),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { containers: containers.collect(), ..PodSpec::default() }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_with_its_containers_is_a_pod() {
        let tagged = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let sandbox = v1::PodSandbox {
            id: "s".into(),
            labels: tagged(&[(labels::POD_NAME, "p"), (labels::POD_NAMESPACE, "n"), (labels::POD_UID, "u")]),
            ..Default::default()
        };
        let container = |sandbox: &str| v1::Container {
            pod_sandbox_id: sandbox.into(),
            labels: tagged(&[(labels::CONTAINER_NAME, "c")]),
            ..Default::default()
        };
        let pod = pod(&sandbox, &[container("s"), container("other")]);
        assert_eq!(pod.metadata.name.as_deref(), Some("p"));
        assert_eq!(pod.spec.unwrap().containers.len(), 1);
        let list = serde_json::to_value(PodList::new(vec![])).unwrap();
        assert_eq!(list, serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}));
    }
}
