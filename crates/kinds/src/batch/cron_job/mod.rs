//! CronJobs.

pub mod columns;

use machinery::status::FieldError;
use machinery::{Value, value};
use rules::cron::Schedule;
use serde_json::json;

use crate::batch::job::spec::{default_patterns, job_spec};
use crate::batch::name_warning;
use crate::checks::workloads::template_warnings;
use crate::checks::{At, Errors};
use crate::core::pod;
use crate::core::pod::defaults;
use crate::strategy::{Flags, Strategy};

pub struct CronJobs;

impl Strategy for CronJobs {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, object: &mut Value) {
        defaults::default(object, "spec.jobTemplate.spec.template.spec");
        value::set_default(object, "spec.concurrencyPolicy", "Allow");
        value::set_default(object, "spec.suspend", false);
        value::set_default(object, "spec.successfulJobsHistoryLimit", 3);
        value::set_default(object, "spec.failedJobsHistoryLimit", 1);
        default_patterns(object, "spec.jobTemplate.spec");
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, "spec.jobTemplate.spec.template.spec"));
        value::remove(object, "spec.jobTemplate.spec.scheduling");
        value::set(object, "status", json!({}));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, "spec.jobTemplate.spec.template.spec"));
        value::remove(new, "spec.jobTemplate.spec.scheduling");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        cron_spec(&root.at("spec"), None, &mut errors);
        let name = root.at("metadata.name");
        if name.text().len() > 52 {
            errors.invalid_text(&name, "must be no more than 52 characters");
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        cron_spec(&new.at("spec"), Some(&old.at("spec")), &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings: Vec<String> = name_warning(new, old).into_iter().collect();
        warnings.extend(template_warnings(new, old, "spec.jobTemplate.spec.template"));
        if value::text(new, "spec.schedule").contains("TZ") {
            warnings.push("spec.schedule: CRON_TZ or TZ used in schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
        }
        warnings
    }
}

fn cron_spec(spec: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let schedule = spec.at("schedule");
    if !schedule.text().is_empty() {
        if let Err(why) = Schedule::parse(schedule.text()) {
            errors.invalid(&schedule, why);
        }
        let knew_zone = old.is_some_and(|old| old.text_at("schedule").contains("TZ"));
        if schedule.text().contains("TZ") {
            if knew_zone && spec.has("timeZone") {
                errors.invalid(&schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
            } else if !knew_zone {
                errors.invalid(&schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
            }
        }
    }
    errors.not_negative(&spec.at("startingDeadlineSeconds"));
    let zone = spec.at("timeZone");
    if old.is_none_or(|old| old.at("timeZone").value() != zone.value()) {
        time_zone(&zone, errors);
    }
    errors.required_one_of(&spec.at("concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    let job = spec.at("jobTemplate.spec");
    job_spec(&job, errors);
    if job.has("selector") {
        errors.invalid(&job.at("selector"), "`selector` will be auto-generated");
    }
    if job.at("manualSelector").flag() {
        let at = job.at("manualSelector");
        errors.push(FieldError::not_supported(at.to_string(), true, ["nil", "false"]));
    }
    errors.not_negative(&spec.at("successfulJobsHistoryLimit"));
    errors.not_negative(&spec.at("failedJobsHistoryLimit"));
    // Upstream says last what the schema alone can say.
    errors.required_text(&schedule);
}

fn time_zone(at: &At<'_, '_>, errors: &mut Errors) {
    if !at.is_set() {
        return;
    }
    let zone = at.text();
    if zone.is_empty() {
        return errors.invalid(at, "timeZone must be nil or non-empty string");
    }
    let legal = |part: &str| {
        (1..=14).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+'))
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
    };
    if !zone.split('/').all(legal) {
        return errors.invalid(at, format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        errors.invalid(at, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    if jiff::tz::TimeZone::get(zone).is_err() {
        errors.invalid(at, format!("unknown time zone {zone}"));
    }
}
