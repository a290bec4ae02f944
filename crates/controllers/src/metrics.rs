//! What the controllers count, under upstream's names: [`write()`] is what `/metrics` of a controller manager shows of them.

use controllerkit::metrics::MILLISECONDS;
pub(crate) use controllerkit::metrics::{Collect, collected};
use figures::{Buckets, Counter, Gauge, Histogram};

const COUNTS: Buckets = Buckets::Exponential { start: 2.0, factor: 2.0, count: 15 };

figures::families! {
    pub(crate) const ALL;

    RUNNING: Gauge = ("running_managed_controllers", "[BETA] Indicates where instances of a controller are currently running", &["name", "manager"]);
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
}

/// Appends the figures of every controller of this process.
pub fn write(text: &mut String) {
    figures::write(ALL, text);
    workloads::metrics::write(text);
    controllerkit::metrics::write(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_family_has_two_names_for_itself() {
        let mut text = String::new();
        RUNNING.set(&["metrics-test", "test"], 1.0);
        write(&mut text);
        assert!(text.contains("# TYPE garbagecollector_controller_resources_sync_error_total counter\n"), "{text}");
        assert!(text.contains("# TYPE cronjob_controller_job_creation_skew_duration_seconds histogram\n"), "{text}");
        let mut heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let count = heads.len();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), count, "a name comes twice");
    }
}
