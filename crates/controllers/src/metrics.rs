//! What the controllers count, under upstream's names: [`write()`] is what `/metrics` of a controller manager shows of them.
//!
//! Families that follow events are counted as those happen. What only has to be right when somebody looks (how many volumes, how many nodes of a zone) is
//! collected from the caches at that moment: a controller registers a [`Collect`] for as long as it runs.

use std::sync::{Arc, Weak};

use figures::{Buckets, Counter, Family, Gauge, Histogram};
use parking_lot::Mutex;

/// Latencies from a millisecond on, twice as long fifteen times.
const MILLISECONDS: Buckets = Buckets::Exponential { start: 0.001, factor: 2.0, count: 15 };
const COUNTS: Buckets = Buckets::Exponential { start: 2.0, factor: 2.0, count: 15 };

macro_rules! families {
    ($($name:ident: $kind:ident = $args:tt;)*) => {
        $(pub(crate) static $name: $kind = $kind::new $args;)*
        const ALL: &[&dyn Family] = &[$(&$name),*];
    };
}

families! {
    RUNNING: Gauge = ("running_managed_controllers", "[BETA] Indicates where instances of a controller are currently running", &["name", "manager"]);

    JOB_SYNC_SECONDS: Histogram = (
        "job_controller_job_sync_duration_seconds", "[STABLE] The time it took to sync a job",
        &["completion_mode", "result", "action"], Buckets::Exponential { start: 0.004, factor: 2.0, count: 15 }
    );
    JOB_SYNCS: Counter = ("job_controller_job_syncs_total", "[STABLE] The number of job syncs", &["completion_mode", "result", "action"]);
    JOBS_FINISHED: Counter = ("job_controller_jobs_finished_total", "[STABLE] The number of finished jobs", &["completion_mode", "result", "reason"]);
    JOBS_OF_OTHERS: Counter = (
        "job_controller_jobs_by_external_controller_total", "[ALPHA] The number of Jobs managed by an external controller", &["controller_name"]
    );
    JOB_PODS_FINISHED: Counter = (
        "job_controller_job_pods_finished_total", "[STABLE] The number of finished Pods that are fully tracked", &["completion_mode", "result"]
    );
    JOB_FAILURE_POLICY: Counter = (
        "job_controller_pod_failures_handled_by_failure_policy_total",
        "[BETA] The number of failed Pods handled by failure policy with\n\t\t\trespect to the failure policy action applied based on the matched\n\t\t\trule. Possible values of the action label correspond to the\n\t\t\tpossible values for the failure policy rule action, which are:\n\t\t\t\"FailJob\", \"Ignore\" and \"Count\".",
        &["action"]
    );
    JOB_TRACKED_PODS: Counter = (
        "job_controller_terminated_pods_tracking_finalizer_total",
        "[BETA] The number of terminated pods (phase=Failed|Succeeded)\nthat have the finalizer batch.kubernetes.io/job-tracking\nThe event label can be \"add\" or \"delete\".",
        &["event"]
    );
    JOB_INDEXES_FINISHED: Counter = (
        "job_controller_job_finished_indexes_total",
        "[ALPHA] The number of finished indexes. Possible values for the\n\t\t\tstatus label are: \"succeeded\", \"failed\". Possible values for the\n\t\t\tbackoffLimit label are: \"perIndex\" and \"global\"",
        &["status", "backoffLimit"]
    );
    JOB_PODS_CREATED: Counter = (
        "job_controller_job_pods_creation_total",
        "[ALPHA] The number of Pods created by the Job controller labelled with a reason for the Pod creation.\nThis metric also distinguishes between Pods created using different PodReplacementPolicy settings.\nPossible values of the \"reason\" label are:\n\"new\", \"recreate_terminating_or_failed\", \"recreate_failed\".\nPossible values of the \"status\" label are:\n\"succeeded\", \"failed\".",
        &["reason", "status"]
    );
    JOB_STALE: Counter = (
        "job_controller_stale_sync_skips_total", "[ALPHA] Total number of Job syncs skipped due to a stale watch cache.", &["group", "resource"]
    );
    DAEMON_STALE: Counter = (
        "daemonset_controller_stale_sync_skips_total", "[ALPHA] Total number of DaemonSet syncs skipped due to a stale watch cache.", &["group", "resource"]
    );
    STATEFUL_STALE: Counter = (
        "statefulset_controller_stale_sync_skips_total", "[ALPHA] Total number of StatefulSet syncs skipped due to a stale watch cache.", &["group", "resource"]
    );
    REPLICA_STALE: Counter = (
        "replicaset_controller_stale_sync_skips_total", "[ALPHA] Total number of ReplicaSet syncs skipped due to a stale watch cache.", &["group", "resource"]
    );
    REPLICA_AGE_RATIO: Histogram = (
        "replicaset_controller_sorting_deletion_age_ratio",
        "[ALPHA] The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time). Should be <2. The intent of this metric is to measure the rough efficacy of the sorting (and deletion) of pods when a replicaset scales down. This only considers Ready pods when calculating and reporting.",
        &[], Buckets::Exponential { start: 0.25, factor: 2.0, count: 6 }
    );
    STATEFUL_MAX_UNAVAILABLE: Gauge = (
        "statefulset_controller_statefulset_max_unavailable", "[ALPHA] Maximum number of unavailable pods allowed during StatefulSet rolling updates",
        &["statefulset_namespace", "statefulset_name", "pod_management_policy"]
    );
    STATEFUL_UNAVAILABLE: Gauge = (
        "statefulset_controller_statefulset_unavailable_replicas", "[ALPHA] Current number of unavailable pods in StatefulSet",
        &["statefulset_namespace", "statefulset_name", "pod_management_policy"]
    );
    CRON_SKEW: Histogram = (
        "cronjob_controller_job_creation_skew_duration_seconds",
        "[STABLE] Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
        &[], Buckets::Exponential { start: 1.0, factor: 2.0, count: 10 }
    );
    TTL_DELETION_SECONDS: Histogram = (
        "ttl_after_finished_controller_job_deletion_duration_seconds",
        "[ALPHA] The time it took to delete the job since it became eligible for deletion",
        &[], Buckets::Exponential { start: 0.1, factor: 2.0, count: 14 }
    );

    SLICE_ADDED: Histogram = ("endpoint_slice_controller_endpoints_added_per_sync", "[BETA] Number of endpoints added on each Service sync", &[], COUNTS);
    SLICE_REMOVED: Histogram = ("endpoint_slice_controller_endpoints_removed_per_sync", "[BETA] Number of endpoints removed on each Service sync", &[], COUNTS);
    SLICE_ENDPOINTS: Gauge = ("endpoint_slice_controller_endpoints_desired", "[BETA] Number of endpoints desired", &[]);
    SLICES: Gauge = ("endpoint_slice_controller_num_endpoint_slices", "[BETA] Number of EndpointSlices", &[]);
    SLICES_DESIRED: Gauge = (
        "endpoint_slice_controller_desired_endpoint_slices", "[BETA] Number of EndpointSlices that would exist with perfect endpoint allocation", &[]
    );
    SLICE_CHANGES: Counter = ("endpoint_slice_controller_changes", "[ALPHA] Number of EndpointSlice changes", &["operation"]);
    SLICES_CHANGED: Histogram = (
        "endpoint_slice_controller_endpointslices_changed_per_sync", "[ALPHA] Number of EndpointSlices changed on each Service sync",
        &["topology", "traffic_distribution"], Buckets::At(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
    );
    SLICE_SYNCS: Counter = ("endpoint_slice_controller_syncs", "[ALPHA] Number of EndpointSlice syncs", &["result"]);
    SERVICES_BY_TRAFFIC: Gauge = (
        "endpoint_slice_controller_services_count_by_traffic_distribution", "[BETA] Number of Services using some specific trafficDistribution",
        &["traffic_distribution"]
    );
    MIRROR_ADDED: Histogram = ("endpoint_slice_mirroring_controller_endpoints_added_per_sync", "[ALPHA] Number of endpoints added on each Endpoints sync", &[], COUNTS);
    MIRROR_REMOVED: Histogram = ("endpoint_slice_mirroring_controller_endpoints_removed_per_sync", "[ALPHA] Number of endpoints removed on each Endpoints sync", &[], COUNTS);
    MIRROR_SECONDS: Histogram = ("endpoint_slice_mirroring_controller_endpoints_sync_duration", "[ALPHA] Duration of syncEndpoints() in seconds", &[], MILLISECONDS);
    MIRROR_ENDPOINTS: Gauge = ("endpoint_slice_mirroring_controller_endpoints_desired", "[ALPHA] Number of endpoints desired", &[]);
    MIRRORS: Gauge = ("endpoint_slice_mirroring_controller_num_endpoint_slices", "[ALPHA] Number of EndpointSlices", &[]);
    MIRRORS_DESIRED: Gauge = (
        "endpoint_slice_mirroring_controller_desired_endpoint_slices", "[ALPHA] Number of EndpointSlices that would exist with perfect endpoint allocation", &[]
    );
    MIRROR_CHANGES: Counter = ("endpoint_slice_mirroring_controller_changes", "[ALPHA] Number of EndpointSlice changes", &["operation"]);

    GARBAGE_ERRORS: Counter = ("garbagecollector_controller_resources_sync_error_total", "[ALPHA] Number of garbage collector resources sync errors", &[]);
    POD_GC: Counter = (
        "pod_gc_collector_force_delete_pods_total", "[ALPHA] Number of pods that are being forcefully deleted since the Pod GC Controller started.",
        &["namespace", "reason"]
    );
    POD_GC_ERRORS: Counter = (
        "pod_gc_collector_force_delete_pod_errors_total",
        "[ALPHA] Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
        &["namespace", "reason"]
    );
    TAINT_DELETIONS: Counter = ("taint_eviction_controller_pod_deletions_total", "[ALPHA] Total number of Pods deleted by TaintEvictionController since its start.", &[]);
    TAINT_DELETION_SECONDS: Histogram = (
        "taint_eviction_controller_pod_deletion_duration_seconds",
        "[ALPHA] Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
        &[], Buckets::At(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0])
    );
    DEVICE_TAINT_DELETIONS: Counter = (
        "device_taint_eviction_controller_pod_deletions_total",
        "[ALPHA] Total number of Pods deleted by DeviceTaintEvictionController since its start.", &[]
    );
    DEVICE_TAINT_DELETION_SECONDS: Histogram = (
        "device_taint_eviction_controller_pod_deletion_duration_seconds",
        "[ALPHA] Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController.",
        &[], Buckets::At(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0])
    );
    RESOURCE_CLAIMS_CREATED: Counter = (
        "dynamic_resource_allocation_resourceclaim_creates_total",
        "[ALPHA] Number of ResourceClaims creation requests, categorized by creation status, admin access, and owning API group and kind (either Pod or scheduling.k8s.io/PodGroup)",
        &["status", "admin_access", "owner_api_group", "owner_api_kind"]
    );
    NODE_EVICTIONS: Counter = (
        "node_collector_evictions_total", "[STABLE] Number of Node evictions that happened since current instance of NodeController started.", &["zone"]
    );
    NODE_HEALTH_SECONDS: Histogram = (
        "node_collector_update_node_health_duration_seconds", "[ALPHA] Duration in seconds for NodeController to update the health of a single node.",
        &[], Buckets::Exponential { start: 0.001, factor: 4.0, count: 8 }
    );
    CIDR_ALLOCATIONS: Counter = (
        "node_ipam_controller_cidrset_cidrs_allocations_total", "[ALPHA] Counter measuring total number of CIDR allocations.", &["clusterCIDR"]
    );
    CIDR_RELEASES: Counter = (
        "node_ipam_controller_cidrset_cidrs_releases_total", "[ALPHA] Counter measuring total number of CIDR releases.", &["clusterCIDR"]
    );
    CIDR_MOST: Gauge = ("node_ipam_controller_cirdset_max_cidrs", "[ALPHA] Maximum number of CIDRs that can be allocated.", &["clusterCIDR"]);
    CIDR_USAGE: Gauge = ("node_ipam_controller_cidrset_usage_cidrs", "[ALPHA] Gauge measuring percentage of allocated CIDRs.", &["clusterCIDR"]);
    ROOT_CA_SYNCS: Counter = ("root_ca_cert_publisher_sync_total", "[ALPHA] Number of namespace syncs happened in root ca cert publisher.", &["code"]);
    ROOT_CA_SECONDS: Histogram = (
        "root_ca_cert_publisher_sync_duration_seconds", "[ALPHA] Number of namespace syncs happened in root ca cert publisher.", &["code"], MILLISECONDS
    );
    TRUST_BUNDLE_SYNCS: Counter = (
        "clustertrustbundle_publisher_sync_total", "[ALPHA] Number of syncs that occurred in cluster trust bundle publisher.", &["code"]
    );
    TRUST_BUNDLE_SECONDS: Histogram = (
        "clustertrustbundle_publisher_sync_duration_seconds", "[ALPHA] The time it took to sync a cluster trust bundle.", &["code"], MILLISECONDS
    );
    FORCED_DETACHES: Counter = (
        "attach_detach_controller_attachdetach_controller_forced_detaches", "[ALPHA] Number of times the A/D Controller performed a forced detach", &["reason"]
    );
    EPHEMERAL_CREATED: Counter = ("ephemeral_volume_controller_create_total", "[ALPHA] Number of PersistentVolumeClaim creation requests", &[]);
    EPHEMERAL_FAILED: Counter = ("ephemeral_volume_controller_create_failures_total", "[ALPHA] Number of PersistentVolumeClaim creation requests", &[]);

    SCALER_TURNS: Counter = (
        "horizontal_pod_autoscaler_controller_reconciliations_total",
        "[BETA] Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
        &["action", "error"]
    );
    SCALER_SECONDS: Histogram = (
        "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
        "[BETA] The time(seconds) that the HPA controller takes to reconcile once. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
        &["action", "error"], MILLISECONDS
    );
    SCALER_METRICS: Counter = (
        "horizontal_pod_autoscaler_controller_metric_computation_total",
        "[BETA] Number of metric computations. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
        &["action", "error", "metric_type"]
    );
    SCALER_METRIC_SECONDS: Histogram = (
        "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
        "[BETA] The time(seconds) that the HPA controller takes to calculate one metric. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. The label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
        &["action", "error", "metric_type"], MILLISECONDS
    );
    SCALERS: Gauge = ("horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers", "[ALPHA] Current number of controlled HPA objects.", &[]);
    SCALER_DESIRED: Gauge = (
        "horizontal_pod_autoscaler_controller_desired_replicas", "[ALPHA] Current desired replica count for HPA objects.", &["namespace", "hpa_name"]
    );
}

/// Something that knows its figures when it is asked.
pub(crate) trait Collect: Send + Sync {
    fn collect(&self, text: &mut String);
}

static COLLECTORS: Mutex<Vec<Weak<dyn Collect>>> = Mutex::new(Vec::new());

/// Asks a collector whenever somebody looks, as long as what this answers is held.
pub(crate) fn collected<C: Collect + 'static>(collector: C) -> Arc<dyn Collect> {
    let collector: Arc<dyn Collect> = Arc::new(collector);
    let mut all = COLLECTORS.lock();
    all.retain(|known| known.strong_count() > 0);
    all.push(Arc::downgrade(&collector));
    collector
}

/// Appends the figures of every controller of this process.
pub fn write(text: &mut String) {
    figures::write(ALL, text);
    let collectors: Vec<Arc<dyn Collect>> = COLLECTORS.lock().iter().filter_map(Weak::upgrade).collect();
    collectors.iter().for_each(|collector| collector.collect(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Answer;

    impl Collect for Answer {
        fn collect(&self, text: &mut String) {
            text.push_str("answer_of_the_test 42\n");
        }
    }

    #[test]
    fn collectors_are_asked_as_long_as_they_are_held() {
        let held = collected(Answer);
        let mut text = String::new();
        write(&mut text);
        assert!(text.contains("answer_of_the_test 42\n"));
        assert!(text.contains("# TYPE garbagecollector_controller_resources_sync_error_total counter\n"), "{text}");
        drop(held);
        text.clear();
        write(&mut text);
        assert!(!text.contains("answer_of_the_test"));
    }

    #[test]
    fn no_family_has_two_names_for_itself() {
        let mut text = String::new();
        RUNNING.set(&["metrics-test", "test"], 1.0);
        write(&mut text);
        let mut heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let count = heads.len();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), count, "a name comes twice");
    }
}
