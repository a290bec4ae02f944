//! batch: Jobs and CronJobs.

use jiff::Timestamp;
use machinery::{Value, time, value};
use serde_json::json;

use crate::table::cells::{age, between, containers, is_set, is_true, name, number, selector};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, Printer, of, own, text};

pub const JOB_SPEC: &str = "io.k8s.api.batch.v1.JobSpec";

pub static TABLE: Printer = Printer::new(
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
