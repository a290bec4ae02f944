//! What the controllers of workloads count, under upstream's names.

use controllerkit::metrics::MILLISECONDS;
use figures::{Buckets, Counter, Gauge, Histogram};

figures::families! {
    pub(crate) const ALL;

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

/// Appends all of them.
pub fn write(text: &mut String) {
    figures::write(ALL, text);
}
