//! Jobs and cron jobs.

use machinery::{Value, duration, time, value};

use super::template::template;
use crate::Error;
use crate::show::{Scene, at, or, selector, text_or, truth};
use crate::writer::{Writer, put};

pub fn job(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    show_selector(out, scene.object, "spec.selector");
    scene.labels(out);
    scene.annotations(out);
    scene.controlled_by(out);
    let optional = |out: &mut Writer, title: &str, path: &str| {
        if scene.at(path).is_some() {
            out.field(0, title, or(scene.object, path, ""));
        }
    };
    optional(out, "Parallelism", "spec.parallelism");
    out.field(0, "Completions", or(scene.object, "spec.completions", "<unset>"));
    optional(out, "Completion Mode", "spec.completionMode");
    optional(out, "Suspend", "spec.suspend");
    optional(out, "Backoff Limit", "spec.backoffLimit");
    optional(out, "TTL Seconds After Finished", "spec.ttlSecondsAfterFinished");
    let [start, end] = ["status.startTime", "status.completionTime"].map(|path| time::parse_clamped(scene.text(path)));
    if start.is_some() {
        out.field(0, "Start Time", scene.date(scene.object, "status.startTime"));
    }
    if end.is_some() {
        out.field(0, "Completed At", scene.date(scene.object, "status.completionTime"));
    }
    if let (Some(start), Some(end)) = (start, end) {
        out.field(0, "Duration", duration::human(end.duration_since(start).as_secs()));
    }
    if let Some(seconds) = scene.at("spec.activeDeadlineSeconds") {
        out.field(0, "Active Deadline Seconds", format_args!("{seconds}s"));
    }
    let [active, succeeded, failed] =
        ["active", "succeeded", "failed"].map(|field| scene.int(&format!("status.{field}")));
    let ready = scene.at("status.ready").map_or_else(String::new, |ready| format!(" ({ready} Ready)"));
    out.field(0, "Pods Statuses", format_args!("{active} Active{ready} / {succeeded} Succeeded / {failed} Failed"));
    if scene.text("spec.completionMode") == "Indexed" {
        out.field(0, "Completed Indexes", indexes(scene.text("status.completedIndexes")));
    }
    template(out, Some(scene.at("spec.template").unwrap_or(&Value::Null)));
    scene.events(out);
    Ok(())
}

fn show_selector(out: &mut Writer, of: &Value, path: &str) {
    match selector(of, path) {
        Ok(selector) => out.field(0, "Selector", selector),
        Err(error) => out.field(0, "Selector", format_args!("Failed to get selector: {error}")),
    }
}

/// The first 50 letters of a list of indexes and what completes the last of these.
fn indexes(indexes: &str) -> String {
    const ENOUGH: usize = 50;
    match indexes.bytes().enumerate().skip(ENOUGH).find(|(_, byte)| *byte == b',') {
        Some((comma, _)) => format!("{}...", &indexes[..=comma]),
        None => text_or(indexes, "<none>").to_owned(),
    }
}

pub fn cron_job(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    scene.labels(out);
    scene.annotations(out);
    out.field(0, "Schedule", scene.text("spec.schedule"));
    out.field(0, "Concurrency Policy", scene.text("spec.concurrencyPolicy"));
    out.field(0, "Suspend", truth(scene.at("spec.suspend")));
    for (title, path) in [
        ("Time Zone", "spec.timeZone"),
        ("Successful Job History Limit", "spec.successfulJobsHistoryLimit"),
        ("Failed Job History Limit", "spec.failedJobsHistoryLimit"),
    ] {
        out.field(0, title, or(scene.object, path, "<unset>"));
    }
    match scene.at("spec.startingDeadlineSeconds") {
        Some(seconds) => out.field(0, "Starting Deadline Seconds", format_args!("{seconds}s")),
        None => out.field(0, "Starting Deadline Seconds", "<unset>"),
    }
    job_template(out, scene.at("spec.jobTemplate").unwrap_or(&Value::Null));
    match scene.at("status.lastScheduleTime") {
        Some(_) => out.field(0, "Last Schedule Time", scene.date(scene.object, "status.lastScheduleTime")),
        None => out.field(0, "Last Schedule Time", "<unset>"),
    }
    let active: Vec<&str> = scene.list("status.active").iter().map(|job| value::text(job, "name")).collect();
    // A list that has nothing in it is not the same as none.
    let none = if scene.at("status.active").is_some_and(|list| !list.is_null()) { "" } else { "<none>" };
    out.field(0, "Active Jobs", text_or(&active.join(", "), none));
    scene.events(out);
    Ok(())
}

fn job_template(out: &mut Writer, of: &Value) {
    match at(of, "spec.selector") {
        Some(_) => show_selector(out, of, "spec.selector"),
        None => out.field(0, "Selector", "<unset>"),
    }
    out.field(0, "Parallelism", or(of, "spec.parallelism", "<unset>"));
    out.field(0, "Completions", or(of, "spec.completions", "<unset>"));
    if let Some(seconds) = at(of, "spec.activeDeadlineSeconds") {
        put!(out, 0, "Active Deadline Seconds:\t{seconds}s\n");
    }
    template(out, Some(at(of, "spec.template").unwrap_or(&Value::Null)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_indexes_are_cut_after_a_comma() {
        assert_eq!(indexes(""), "<none>");
        assert_eq!(indexes("1-5,7"), "1-5,7");
        let long: String = (10..60).map(|index| format!("{index},")).collect();
        let cut: String = (10..27).map(|index| format!("{index},")).collect();
        assert_eq!(indexes(&long), format!("{cut}..."));
    }
}
