//! What a controller is started with.

use std::sync::Arc;

use client::Client;
use informer::{Clock, Informers, Key, Reconciler, Recorder, WorkQueue};
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::common::pod_control::PodControl;

/// Handed to every controller when it starts.
#[derive(Clone)]
pub(crate) struct Context {
    /// The controller's name, as in `--controllers` and in metrics.
    pub(crate) name: &'static str,
    /// Acts with the controller's own identity.
    pub(crate) client: Client,
    /// Shared by all controllers.
    pub(crate) informers: Informers,
    /// Writes events in the controller's name.
    pub(crate) recorder: Recorder,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Arc<Config>,
    pub(crate) stop: CancellationToken,
}

impl Context {
    /// An empty queue.
    pub(crate) fn queue(&self) -> WorkQueue<Key> {
        self.queue_named(queue_name(self.name))
    }

    /// An empty queue of another name, for controllers that have several.
    pub(crate) fn queue_named(&self, name: &'static str) -> WorkQueue<Key> {
        WorkQueue::new(name, self.clock.clone())
    }

    /// Creates and deletes pods in the controller's name.
    pub(crate) fn pod_control(&self) -> PodControl {
        PodControl { client: self.client.clone(), recorder: self.recorder.clone() }
    }

    /// Works on the queue until the end.
    pub(crate) async fn run<R: Reconciler>(&self, reconciler: R, queue: WorkQueue<Key>, workers: usize) {
        informer::run(self.name, Arc::new(reconciler), queue, workers, self.stop.clone()).await;
    }
}

/// What a controller's queue is called in metrics: dashboards know these names.
fn queue_name(controller: &'static str) -> &'static str {
    match controller {
        "bootstrap-signer-controller" => "bootstrap_signer_queue",
        "certificatesigningrequest-approving-controller"
        | "certificatesigningrequest-cleaner-controller"
        | "certificatesigningrequest-signing-controller" => "certificate",
        "clusterrole-aggregation-controller" => "ClusterRoleAggregator",
        "cronjob-controller" => "cronjob",
        "daemonset-controller" => "daemonset",
        "deployment-controller" => "deployment",
        "disruption-controller" => "disruption",
        "endpoints-controller" => "endpoint",
        "endpointslice-controller" => "endpoint_slice",
        "endpointslice-mirroring-controller" => "endpoint_slice_mirroring",
        "ephemeral-volume-controller" => "ephemeral_volume",
        "garbage-collector-controller" => "garbage_collector_attempt_to_delete",
        "horizontal-pod-autoscaler-controller" => "horizontalpodautoscaler",
        "job-controller" => "job",
        "kube-apiserver-serving-clustertrustbundle-publisher-controller" => "ca_cert_publisher_cluster_trust_bundles",
        "namespace-controller" => "namespace",
        "node-ipam-controller" => "cidrallocator_node",
        "node-lifecycle-controller" => "node_lifecycle_controller",
        "persistentvolume-binder-controller" => "volumes",
        "persistentvolume-expander-controller" => "volume_expand",
        "persistentvolume-protection-controller" => "pvprotection",
        "persistentvolumeclaim-protection-controller" => "pvcprotection",
        "pod-garbage-collector-controller" => "orphaned_pods_nodes",
        "replicaset-controller" => "replicaset",
        "replicationcontroller-controller" => "replicationmanager",
        "resourceclaim-controller" => "resource_claim",
        "resourcequota-controller" => "resourcequota_primary",
        "root-ca-certificate-publisher-controller" => "root_ca_cert_publisher",
        "service-cidr-controller" => "ipaddresses",
        "serviceaccount-controller" => "serviceaccount",
        "serviceaccount-token-controller" => "serviceaccount_tokens_service",
        "statefulset-controller" => "statefulset",
        "storageversion-garbage-collector-controller" => "storage_version_garbage_collector_storageversions",
        "taint-eviction-controller" => "noexec_taint_pod",
        "token-cleaner-controller" => "token_cleaner",
        "ttl-after-finished-controller" => "ttl_jobs_to_delete",
        "ttl-controller" => "ttlcontroller",
        "volumeattributesclass-protection-controller" => "vacprotection",
        // Ours alone, or without a queue of its own upstream.
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_queue_belongs_to_a_controller() {
        let renamed = crate::registry::names().filter(|&name| queue_name(name) != name).count();
        assert_eq!(renamed, 40, "a controller was renamed, or its queue never had another name");
    }
}
