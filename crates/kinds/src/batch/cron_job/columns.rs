//! What a table shows of CronJobs.

use machinery::{Value, value};
use serde_json::json;

use crate::batch::job::columns::JOB_SPEC;
use crate::table::cells::{age, containers, is_set, name, selector, since, text_or};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, Printer, boolean, integer, of, text};

const CRON_SPEC: &str = "io.k8s.api.batch.v1.CronJobSpec";
const CRON_STATUS: &str = "io.k8s.api.batch.v1.CronJobStatus";

pub static TABLE: Printer = Printer::new(
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
