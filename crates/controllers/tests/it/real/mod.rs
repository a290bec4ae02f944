//! Controllers against a real API server, each with its own identity and nothing but its own rights.

mod adapter;
mod balancer;
mod certificates;
mod custom;
mod devices;
mod election;
mod jobs;
mod migration;
mod protection;
mod quotas;
mod replicas;
mod revisions;
mod volumes;

use std::sync::Arc;

use client::{Client, Kind, Patch};
use controllers::Config;
use informer::{Clock, clock};
use k8s_openapi::api::core::v1::Pod;
use machinery::rest::User;
use serde_json::{Value, json};
use testkit::Cluster;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A cluster, and the administrator's client.
struct Rig {
    cluster: Cluster,
    client: Client,
}

impl Rig {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        Self { client: cluster.in_process(), cluster }
    }

    /// Runs controllers until what this answers is dropped.
    fn run(&self, controllers: &str) -> DropGuard {
        self.run_at(controllers, clock::Real::shared())
    }

    /// With a clock of their own.
    fn run_at(&self, controllers: &str, clock: Arc<dyn Clock>) -> DropGuard {
        let handler = self.cluster.handler();
        let clients = Arc::new(move |name: &str| {
            let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
            let user = User::new(format!("system:serviceaccount:kube-system:{name}"), groups);
            Client::in_process(handler.clone(), user)
        });
        let manager = User::new("system:kube-controller-manager", ["system:authenticated"]);
        let mut config = Config::new(clients, self.cluster.in_process_as(manager), clock);
        config.controllers = controllers.split(',').map(str::to_owned).collect();
        config.cluster_ca = Some(self.cluster.keys().authority_pem());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(
            async move { controllers::run(config, stopped).await.expect("the names of controllers are right") },
        );
        stop.drop_guard()
    }

    async fn create<K: Kind>(&self, value: Value) -> K {
        let object: K = serde_json::from_value(value).expect("an object");
        self.client.create(&object).await.expect("the object can be created")
    }

    async fn patch<K: Kind>(&self, namespace: &str, name: &str, patch: Value) -> K {
        self.client.patch::<K>(namespace, name, &Patch::Merge(patch)).await.expect("the object can be changed")
    }

    async fn patch_status<K: Kind>(&self, namespace: &str, name: &str, patch: Value) -> K {
        self.client.patch_status::<K>(namespace, name, &Patch::Merge(patch)).await.expect("its status can be changed")
    }

    async fn delete<K: Kind>(&self, namespace: &str, name: &str) {
        self.client.delete::<K>(namespace, name, &client::DeleteOptions::default()).await.expect("it can be deleted");
    }

    /// Waits for an object in a state.
    async fn until<K: Kind>(&self, namespace: &str, name: &str, what: &str, met: impl Fn(&K) -> bool) -> Arc<K> {
        let found = testkit::object::<K>(&self.client, namespace, name, what, |object| object.is_some_and(&met)).await;
        found.expect("it was there a moment ago")
    }

    async fn gone<K: Kind>(&self, namespace: &str, name: &str) {
        testkit::object::<K>(&self.client, namespace, name, &format!("{name} is gone"), |object| object.is_none())
            .await;
    }
}

/// A pod with more in it.
fn pod(name: &str, metadata: Value, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "img"}]},
    });
    for (part, more) in [("metadata", metadata), ("spec", spec)] {
        for (field, value) in more.as_object().into_iter().flatten() {
            pod[part][field] = value.clone();
        }
    }
    pod
}

fn finalizers(pod: &Pod) -> &[String] {
    pod.metadata.finalizers.as_deref().unwrap_or_default()
}
