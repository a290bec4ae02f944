//! batch: Jobs and CronJobs.

use jiff::Timestamp;
use machinery::{Value, time, value};
use serde_json::json;

use super::cells::{age, between, containers, is_set, is_true, name, number, selector, since, text_or};
use super::core::{CONTAINERS, IMAGES};
use super::{AGE, NAME, Printer, boolean, integer, of, own, text};

/// The printer of a kind of batch.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    match kind {
        "CronJob" => Some(&CRON_JOB),
        "Job" => Some(&JOB),
        _ => None,
    }
}

const JOB_SPEC: &str = "io.k8s.api.batch.v1.JobSpec";
const CRON_SPEC: &str = "io.k8s.api.batch.v1.CronJobSpec";
const CRON_STATUS: &str = "io.k8s.api.batch.v1.CronJobStatus";

static JOB: Printer = Printer::new(
    &[
        NAME,
        text("Status", own("How far the job is.")),
        text("Completions", of("io.k8s.api.batch.v1.JobStatus", "succeeded")),
        text("Duration", own("How long the job took, or has taken so far.")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        text("Selector", of(JOB_SPEC, "selector")).wide(),
    ],
    |job, now| {
        let [containers, images] = containers(job, "spec.template.spec");
        vec![
            name(job),
            json!(status(job)),
            json!(completions(job)),
            json!(duration(job, now)),
            age(job, now),
            containers,
            images,
            json!(selector(job, "spec.selector")),
        ]
    },
);

fn status(job: &Value) -> &'static str {
    if is_true(job, "Complete") {
        return "Complete";
    }
    if is_true(job, "Failed") {
        return "Failed";
    }
    if is_set(job, "metadata.deletionTimestamp") {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
        .into_iter()
        .find(|kind| is_true(job, kind))
        .unwrap_or("Running")
}

fn completions(job: &Value) -> String {
    let succeeded = number(job, "status.succeeded");
    match (value::int(job, "spec.completions"), number(job, "spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let at = |path| time::parse_clamped(value::text(job, path));
    match (at("status.startTime"), at("status.completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => between(start, end.unwrap_or(now)),
    }
}

static CRON_JOB: Printer = Printer::new(
    &[
        NAME,
        text("Schedule", of(CRON_SPEC, "schedule")),
        text("Timezone", of(CRON_SPEC, "timeZone")),
        boolean("Suspend", of(CRON_SPEC, "suspend")),
        integer("Active", of(CRON_STATUS, "active")),
        text("Last Schedule", of(CRON_STATUS, "lastScheduleTime")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        text("Selector", of(JOB_SPEC, "selector")).wide(),
    ],
    |cron, now| {
        let [containers, images] = containers(cron, "spec.jobTemplate.spec.template.spec");
        let suspended = match value::at(cron, "spec.suspend").and_then(Value::as_bool) {
            None => "<unset>",
            Some(true) => "True",
            Some(false) => "False",
        };
        let last = "status.lastScheduleTime";
        vec![
            name(cron),
            json!(value::text(cron, "spec.schedule")),
            json!(text_or(cron, "spec.timeZone", "<none>")),
            json!(suspended),
            json!(value::list(cron, "status.active").len()),
            json!(if is_set(cron, last) { since(cron, last, now) } else { "<none>".to_owned() }),
            age(cron, now),
            containers,
            images,
            json!(selector(cron, "spec.jobTemplate.spec.selector")),
        ]
    },
);
