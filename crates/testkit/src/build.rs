//! Builders for objects, so that a test says only what matters to it: `pod("a").on("n1").label("app", "web")`.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Namespace, Node, Pod, PodSpec, PodTemplateSpec, ServiceAccount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

fn meta(namespace: Option<&str>, name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..ObjectMeta::default() }
}

/// Changes that make sense for any object.
pub trait Build: client::Kind {
    /// In another namespace than `default`.
    fn in_namespace(mut self, namespace: &str) -> Self {
        self.metadata_mut().namespace = Some(namespace.to_owned());
        self
    }

    fn label(mut self, key: &str, value: &str) -> Self {
        let labels = self.metadata_mut().labels.get_or_insert_default();
        labels.insert(key.to_owned(), value.to_owned());
        self
    }

    fn annotation(mut self, key: &str, value: &str) -> Self {
        let annotations = self.metadata_mut().annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    fn finalizer(mut self, name: &str) -> Self {
        self.metadata_mut().finalizers.get_or_insert_default().push(name.to_owned());
        self
    }
}

impl<K: client::Kind> Build for K {}

/// A pod with one container, in `default`.
pub fn pod(name: &str) -> Pod {
    let container = Container { name: "main".to_owned(), image: Some("busybox".to_owned()), ..Container::default() };
    Pod {
        metadata: meta(Some("default"), name),
        spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
        ..Pod::default()
    }
}

/// Changes that make sense for pods.
pub trait BuildPod {
    /// Bound to a node.
    fn on(self, node: &str) -> Self;
    /// Asking for CPU and memory, such as `100m` and `64Mi`.
    fn requests(self, cpu: &str, memory: &str) -> Self;
}

impl BuildPod for Pod {
    fn on(mut self, node: &str) -> Self {
        self.spec.get_or_insert_default().node_name = Some(node.to_owned());
        self
    }

    fn requests(mut self, cpu: &str, memory: &str) -> Self {
        use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
        let requests: BTreeMap<String, Quantity> = [("cpu", cpu), ("memory", memory)]
            .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
            .into();
        for container in &mut self.spec.get_or_insert_default().containers {
            container.resources.get_or_insert_default().requests = Some(requests.clone());
        }
        self
    }
}

/// A ConfigMap with one entry, in `default`.
pub fn config_map(name: &str, key: &str, value: &str) -> ConfigMap {
    let data: BTreeMap<String, String> = [(key.to_owned(), value.to_owned())].into();
    ConfigMap { metadata: meta(Some("default"), name), data: Some(data), ..ConfigMap::default() }
}

pub fn namespace(name: &str) -> Namespace {
    Namespace { metadata: meta(None, name), ..Namespace::default() }
}

/// A service account, in `default`. Pods need one of the name `default` in their namespace.
pub fn service_account(name: &str) -> ServiceAccount {
    ServiceAccount { metadata: meta(Some("default"), name), ..ServiceAccount::default() }
}

pub fn node(name: &str) -> Node {
    Node { metadata: meta(None, name), ..Node::default() }
}

/// A Deployment of `replicas` pods labelled `app=<name>`, in `default`.
pub fn deployment(name: &str, replicas: i32) -> Deployment {
    let labels: BTreeMap<String, String> = [("app".to_owned(), name.to_owned())].into();
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(labels.clone()), ..ObjectMeta::default() }),
        spec: pod(name).spec,
    };
    let spec = DeploymentSpec {
        replicas: Some(replicas),
        selector: LabelSelector { match_labels: Some(labels), ..LabelSelector::default() },
        template,
        ..DeploymentSpec::default()
    };
    Deployment { metadata: meta(Some("default"), name), spec, ..Deployment::default() }
}
