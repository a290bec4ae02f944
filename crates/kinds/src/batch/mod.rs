//! The group `batch`: pods that come to an end.

pub mod cron_job;
pub mod job;

use machinery::{Value, names, value};

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("cronjobs", "CronJob").strategy(&cron_job::CronJobs).columns(&cron_job::columns::TABLE),
    Kind::new("jobs", "Job").strategy(&job::Jobs).columns(&job::columns::TABLE),
];

/// What a new object's name does to the names of its pods, if it does.
fn name_warning(new: &Value, old: Option<&Value>) -> Option<String> {
    let problems = names::is_dns1123_label(value::text(new, "metadata.name"));
    let detail =
        "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended";
    (old.is_none() && !problems.is_empty()).then(|| format!("metadata.name: {detail}: [{}]", problems.join(" ")))
}
