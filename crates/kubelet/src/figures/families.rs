//! The families of figures: names, words and bounds are upstream's, so that its dashboards and alerts work here.

use super::Family;

/// The customary upper bounds, in seconds.
pub(super) const USUAL: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Of calls to the runtime: 5 ms, and two and a half times as much for each further one.
const CALLS: &[f64] = &[
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];
/// Of pods that start.
const STARTS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// Of images that are pulled.
const PULLS: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0,
    3600.0,
];
/// Of statuses on their way to the API.
const STATUSES: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

const fn family(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Family {
    Family { name, help, labels }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// Calls to the runtime, by name.
    Calls,
    /// Those that failed.
    FailedCalls,
    /// Sandboxes that were not made, by handler.
    FailedSandboxes,
    /// Pods ended for the node's sake, by signal.
    Evictions,
    /// Pods ended for critical ones, by resource.
    Preemptions,
    /// Pods refused, by reason.
    Refusals,
    /// Pods whose sandbox was begun.
    StartedPods,
    /// Those that failed.
    FailedPods,
    /// Containers begun, by kind.
    StartedContainers,
    /// Those that failed, by kind and reason.
    FailedContainers,
    /// Streams of events from the runtime.
    Streams,
    /// Those that could not be had.
    FailedStreams,
}

impl Count {
    /// All, in the order in which they are told.
    pub(super) const ALL: [Self; 12] = [
        Self::Refusals,
        Self::FailedStreams,
        Self::Streams,
        Self::Evictions,
        Self::Preemptions,
        Self::FailedSandboxes,
        Self::FailedCalls,
        Self::Calls,
        Self::FailedContainers,
        Self::StartedContainers,
        Self::FailedPods,
        Self::StartedPods,
    ];

    pub(super) const fn family(self) -> Family {
        match self {
            Self::Calls => family(
                "kubelet_runtime_operations_total",
                "Cumulative number of runtime operations by operation type.",
                &["operation_type"],
            ),
            Self::FailedCalls => family(
                "kubelet_runtime_operations_errors_total",
                "Cumulative number of runtime operation errors by operation type.",
                &["operation_type"],
            ),
            Self::FailedSandboxes => family(
                "kubelet_run_podsandbox_errors_total",
                "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
                &["runtime_handler"],
            ),
            Self::Evictions => family(
                "kubelet_evictions",
                "Cumulative number of pod evictions by eviction signal",
                &["eviction_signal"],
            ),
            Self::Preemptions => family(
                "kubelet_preemptions",
                "Cumulative number of pod preemptions by preemption resource",
                &["preemption_signal"],
            ),
            Self::Refusals => family(
                "kubelet_admission_rejections_total",
                "Cumulative number pod admission rejections by the Kubelet.",
                &["reason"],
            ),
            Self::StartedPods => family("kubelet_started_pods_total", "Cumulative number of pods started", &[]),
            Self::FailedPods => {
                family("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods", &[])
            }
            Self::StartedContainers => family(
                "kubelet_started_containers_total",
                "Cumulative number of containers started",
                &["container_type"],
            ),
            Self::FailedContainers => family(
                "kubelet_started_containers_errors_total",
                "Cumulative number of errors when starting containers",
                &["code", "container_type"],
            ),
            Self::Streams => family(
                "kubelet_evented_pleg_connection_success_count",
                "The number of times a streaming client was obtained to receive CRI Events.",
                &[],
            ),
            Self::FailedStreams => family(
                "kubelet_evented_pleg_connection_error_count",
                "The number of errors encountered during the establishment of streaming connection with the CRI runtime.",
                &[],
            ),
        }
    }
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Time {
    /// Calls to the runtime, by name.
    Calls,
    /// Sandboxes, by handler.
    Sandboxes,
    /// Changes of cgroups, by kind.
    Cgroups,
    /// Pulls, by the image's size.
    Pulls,
    /// Reading the state of a pod. There is no other relist, so it stands for both of upstream's.
    Reads,
    /// From seeing a pod to its running.
    Starts,
    /// From a pod's creation to its running, without pulls and init containers.
    StartsAlone,
    /// From a pod's creation to its running.
    WholeStarts,
    /// From a change of a status to its being in the API.
    Statuses,
    /// A turn of a pod's worker, by kind.
    Turns,
    /// From seeing a pod to its worker's beginning.
    Workers,
}

impl Time {
    /// All, in the order in which they are told.
    pub(super) const ALL: [Self; 11] = [
        Self::Cgroups,
        Self::Pulls,
        Self::Reads,
        Self::Starts,
        Self::StartsAlone,
        Self::WholeStarts,
        Self::Statuses,
        Self::Turns,
        Self::Workers,
        Self::Sandboxes,
        Self::Calls,
    ];

    /// The family, what it is told as beside, and its bounds.
    pub(super) const fn family(self) -> (Family, Option<Family>, &'static [f64]) {
        match self {
            Self::Calls => (
                family(
                    "kubelet_runtime_operations_duration_seconds",
                    "Duration in seconds of runtime operations. Broken down by operation type.",
                    &["operation_type"],
                ),
                None,
                CALLS,
            ),
            Self::Sandboxes => (
                family(
                    "kubelet_run_podsandbox_duration_seconds",
                    "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
                    &["runtime_handler"],
                ),
                None,
                USUAL,
            ),
            Self::Cgroups => (
                family(
                    "kubelet_cgroup_manager_duration_seconds",
                    "Duration in seconds for cgroup manager operations. Broken down by method.",
                    &["operation_type"],
                ),
                None,
                USUAL,
            ),
            Self::Pulls => (
                family(
                    "kubelet_image_pull_duration_seconds",
                    "Duration in seconds to pull an image.",
                    &["image_size_in_bytes"],
                ),
                None,
                PULLS,
            ),
            Self::Reads => (
                family(
                    "kubelet_pleg_pod_relist_duration_seconds",
                    "Duration in seconds for relisting a single pod in PLEG.",
                    &[],
                ),
                Some(family(
                    "kubelet_pleg_relist_duration_seconds",
                    "Duration in seconds for relisting pods in PLEG.",
                    &[],
                )),
                USUAL,
            ),
            Self::Starts => (
                family(
                    "kubelet_pod_start_duration_seconds",
                    "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
                    &[],
                ),
                None,
                STARTS,
            ),
            Self::StartsAlone => (
                family(
                    "kubelet_pod_start_sli_duration_seconds",
                    "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
                    &[],
                ),
                None,
                STARTS,
            ),
            Self::WholeStarts => (
                family(
                    "kubelet_pod_start_total_duration_seconds",
                    "Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
                    &[],
                ),
                None,
                STARTS,
            ),
            Self::Statuses => (
                family(
                    "kubelet_pod_status_sync_duration_seconds",
                    "Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
                    &[],
                ),
                None,
                STATUSES,
            ),
            Self::Turns => (
                family(
                    "kubelet_pod_worker_duration_seconds",
                    "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
                    &["operation_type"],
                ),
                None,
                USUAL,
            ),
            Self::Workers => (
                family(
                    "kubelet_pod_worker_start_duration_seconds",
                    "Duration in seconds from kubelet seeing a pod to starting a worker.",
                    &[],
                ),
                None,
                USUAL,
            ),
        }
    }
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
