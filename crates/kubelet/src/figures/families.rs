//! The families of figures: names, words and bounds are upstream's, so that its dashboards and alerts work here.

use figures::{Buckets, Counter, Family, Histogram};

/// The customary upper bounds, in seconds.
pub(super) const USUAL: Buckets = Buckets::At(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
/// Of calls to the runtime.
const CALLS: Buckets = Buckets::Exponential { start: 0.005, factor: 2.5, count: 14 };
/// Of pods that start.
const STARTS: Buckets = Buckets::At(&[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
]);
/// Of images that are pulled.
const PULLS: Buckets = Buckets::At(&[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0,
    3600.0,
]);
/// Of statuses on their way to the API.
const STATUSES: Buckets = Buckets::At(&[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0]);

/// Declares what one kubelet counts, in the order in which it is written. A process may hold several, so they are no statics.
macro_rules! families {
    ($($(#[$about:meta])* $name:ident: $kind:ident = $args:tt;)*) => {
        /// What one kubelet counts.
        #[derive(Debug)]
        pub struct Families {
            $($(#[$about])* pub $name: $kind,)*
        }

        impl Families {
            pub(super) fn all(&self) -> Vec<&dyn Family> {
                vec![$(&self.$name),*]
            }
        }

        impl Default for Families {
            fn default() -> Self {
                Self { $($name: $kind::new $args,)* }
            }
        }
    };
}

families! {
    /// Pods refused, by reason.
    refusals: Counter = (
        "kubelet_admission_rejections_total",
        "[ALPHA] Cumulative number pod admission rejections by the Kubelet.",
        &["reason"]
    );
    /// How long changes of cgroups take, by kind.
    cgroups: Histogram = (
        "kubelet_cgroup_manager_duration_seconds",
        "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.",
        &["operation_type"],
        USUAL
    );
    /// Streams of events that could not be had.
    failed_streams: Counter = (
        "kubelet_evented_pleg_connection_error_count",
        "[ALPHA] The number of errors encountered during the establishment of streaming connection with the CRI runtime.",
        &[]
    );
    /// Streams of events from the runtime.
    streams: Counter = (
        "kubelet_evented_pleg_connection_success_count",
        "[ALPHA] The number of times a streaming client was obtained to receive CRI Events.",
        &[]
    );
    /// Pods ended for the node's sake, by signal.
    evictions: Counter = (
        "kubelet_evictions",
        "[ALPHA] Cumulative number of pod evictions by eviction signal",
        &["eviction_signal"]
    );
    /// How long pulls take, by the image's size.
    pulls: Histogram = (
        "kubelet_image_pull_duration_seconds",
        "[ALPHA] Duration in seconds to pull an image.",
        &["image_size_in_bytes"],
        PULLS
    );
    /// How long reading a pod's state takes.
    reads: Histogram = (
        "kubelet_pleg_pod_relist_duration_seconds",
        "[ALPHA] Duration in seconds for relisting a single pod in PLEG.",
        &[],
        USUAL
    );
    /// The same, under the name that alerts look for.
    relists: Histogram = (
        "kubelet_pleg_relist_duration_seconds",
        "[ALPHA] Duration in seconds for relisting pods in PLEG.",
        &[],
        USUAL
    );
    /// From seeing a pod to its running.
    starts: Histogram = (
        "kubelet_pod_start_duration_seconds",
        "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
        &[],
        STARTS
    );
    /// From a pod's creation to its running, without pulls and init containers.
    starts_alone: Histogram = (
        "kubelet_pod_start_sli_duration_seconds",
        "[ALPHA] Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
        &[],
        STARTS
    );
    /// From a pod's creation to its running.
    whole_starts: Histogram = (
        "kubelet_pod_start_total_duration_seconds",
        "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
        &[],
        STARTS
    );
    /// From a change of a status to its being in the API.
    statuses: Histogram = (
        "kubelet_pod_status_sync_duration_seconds",
        "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
        &[],
        STATUSES
    );
    /// How long turns of pods' workers take, by kind.
    turns: Histogram = (
        "kubelet_pod_worker_duration_seconds",
        "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
        &["operation_type"],
        USUAL
    );
    /// From seeing a pod to its worker's beginning.
    workers: Histogram = (
        "kubelet_pod_worker_start_duration_seconds",
        "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.",
        &[],
        USUAL
    );
    /// Pods ended for critical ones, by resource.
    preemptions: Counter = (
        "kubelet_preemptions",
        "[ALPHA] Cumulative number of pod preemptions by preemption resource",
        &["preemption_signal"]
    );
    /// How long sandboxes take, by handler.
    sandboxes: Histogram = (
        "kubelet_run_podsandbox_duration_seconds",
        "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
        &["runtime_handler"],
        USUAL
    );
    /// Sandboxes that were not made, by handler.
    failed_sandboxes: Counter = (
        "kubelet_run_podsandbox_errors_total",
        "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
        &["runtime_handler"]
    );
    /// How long calls to the runtime take, by name.
    call_times: Histogram = (
        "kubelet_runtime_operations_duration_seconds",
        "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
        &["operation_type"],
        CALLS
    );
    /// Calls to the runtime that failed, by name.
    failed_calls: Counter = (
        "kubelet_runtime_operations_errors_total",
        "[ALPHA] Cumulative number of runtime operation errors by operation type.",
        &["operation_type"]
    );
    /// Calls to the runtime, by name.
    calls: Counter = (
        "kubelet_runtime_operations_total",
        "[ALPHA] Cumulative number of runtime operations by operation type.",
        &["operation_type"]
    );
    /// Containers that did not start, by reason and kind.
    failed_containers: Counter = (
        "kubelet_started_containers_errors_total",
        "[ALPHA] Cumulative number of errors when starting containers",
        &["code", "container_type"]
    );
    /// Containers begun, by kind.
    started_containers: Counter = (
        "kubelet_started_containers_total",
        "[ALPHA] Cumulative number of containers started",
        &["container_type"]
    );
    /// Pods whose sandbox was not made.
    failed_pods: Counter = (
        "kubelet_started_pods_errors_total",
        "[ALPHA] Cumulative number of errors when starting pods",
        &[]
    );
    /// Pods whose sandbox was begun.
    started_pods: Counter = ("kubelet_started_pods_total", "[ALPHA] Cumulative number of pods started", &[]);
    /// Containers that ended, by kind, exit code and reason.
    ended_containers: Counter = (
        "kubelet_terminated_containers_total",
        "[ALPHA] Cumulative number of container terminations.",
        &["container_type", "exit_code", "reason"]
    );
}

/// The class of an image's size, in upstream's words.
pub fn image_size(bytes: u64) -> &'static str {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match bytes {
        0 => "N/A",
        _ if bytes <= 10 * MIB => "0-10MB",
        _ if bytes <= 100 * MIB => "10MB-100MB",
        _ if bytes <= 500 * MIB => "100MB-500MB",
        _ if bytes <= GIB => "500MB-1GB",
        _ if bytes <= 5 * GIB => "1GB-5GB",
        _ if bytes <= 10 * GIB => "5GB-10GB",
        _ if bytes <= 20 * GIB => "10GB-20GB",
        _ if bytes <= 30 * GIB => "20GB-30GB",
        _ if bytes <= 40 * GIB => "30GB-40GB",
        _ if bytes <= 60 * GIB => "40GB-60GB",
        _ if bytes <= 100 * GIB => "60GB-100GB",
        _ => "GT100GB",
    }
}
