//! Jobs and CronJobs.

use std::collections::HashSet;

use machinery::object::Field;
use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;
use machinery::{Value, names, time, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::apps::template_warnings;
use super::common::{At, Errors};
use super::cron;
use super::names::domain_prefixed_path;
use super::pod::{self, defaults, spec as pod_spec};

/// The labels that tie pods to their job: the new ones and the ones from before.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

const TEMPLATE_LABELS: &str = "spec.template.metadata.labels";

const MOST_PARALLEL: i64 = 100_000;
/// Above so many completions, an indexed job with a limit per index has tighter bounds.
const MANY_COMPLETIONS: i64 = 100_000;
const MOST_PARALLEL_OF_MANY: i64 = 10_000;
const MOST_FAILED_OF_MANY: i64 = 10_000;
const OMITTED: &str = "<omitted>";

/// A job without labels has those of its pods. Whether it was given some.
fn label_as_template(job: &mut Value) -> bool {
    let unlabelled =
        value::at(job, "metadata.labels").and_then(Value::as_object).is_none_or(|labels| labels.is_empty());
    let labels =
        value::at(job, TEMPLATE_LABELS).and_then(Value::as_object).filter(|labels| unlabelled && !labels.is_empty());
    let Some(labels) = labels.cloned() else { return false };
    value::set(job, "metadata.labels", Value::Object(labels));
    true
}

/// Jobs.
pub struct Jobs;

impl Strategy for Jobs {
    fn fields(&self) -> &'static [Field] {
        const { &[Field::count("status.successful").found_at(&["status.succeeded"])] }
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, job: &mut Value) {
        defaults::default(job, "spec.template.spec");
        if value::at(job, "spec.completions").is_none() && value::at(job, "spec.parallelism").is_none() {
            value::set(job, "spec.completions", 1);
        }
        value::set_default(job, "spec.parallelism", 1);
        let per_index = value::at(job, "spec.backoffLimitPerIndex").is_some();
        value::set_default(job, "spec.backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
        // A job that is not there yet is given them as its pods will have them.
        if value::at(job, "metadata.uid").is_some() {
            label_as_template(job);
        }
        value::set_default(job, "spec.completionMode", "NonIndexed");
        value::set_default(job, "spec.suspend", false);
        let fails = value::at(job, "spec.podFailurePolicy").is_some();
        value::set_default(job, "spec.podReplacementPolicy", if fails { "Failed" } else { "TerminatingOrFailed" });
        value::set_default(job, "spec.manualSelector", false);
        default_patterns(job, "spec");
    }

    fn take_labels(&self, job: &mut Value) -> bool {
        label_as_template(job)
    }

    fn return_labels(&self, job: &mut Value) {
        if value::at(job, "metadata.labels") == value::at(job, TEMPLATE_LABELS) {
            value::remove(job, "metadata.labels");
        }
    }

    /// A job chooses its pods by its own uid, unless the user insists on another way.
    fn prepare_for_create(&self, job: &mut Value) {
        pod::drop_disabled(value::at_mut(job, "spec.template.spec"));
        value::remove(job, "spec.scheduling");
        value::set(job, "status", json!({}));
        if value::flag(job, "spec.manualSelector") {
            label_as_template(job);
            return;
        }
        let uid = value::text(job, "metadata.uid").to_owned();
        let name = value::text(job, "metadata.name").to_owned();
        let template = value::object_mut(job, "spec").entry("template").or_insert(Value::Null);
        let metadata = value::object_mut(template, "metadata");
        let labels = value::as_object_mut(metadata.entry("labels").or_insert(Value::Null));
        for label in UID_LABELS {
            labels.insert(label.to_owned(), json!(uid));
        }
        for label in NAME_LABELS {
            labels.insert(label.to_owned(), json!(name));
        }
        if let Some(spec) = value::at_mut(job, "spec").and_then(Value::as_object_mut) {
            let selector = spec.entry("selector").or_insert_with(|| json!({}));
            value::object_mut(selector, "matchLabels").insert(UID_LABELS[0].to_owned(), json!(uid));
        }
        // Upstream fills in defaults whenever it reads an object, so this one has the new labels from the beginning.
        label_as_template(job);
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, "spec.template.spec"));
        value::remove(new, "spec.scheduling");
        label_as_template(new);
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(job);
        generated_selector(&root, &mut errors);
        job_spec(&root.at("spec"), &mut errors);
        chosen_pods(&root.at("spec"), &mut errors);
        host_names(&root, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        let (spec, before) = (fresh.at("spec"), stale.at("spec"));
        job_spec(&spec, &mut errors);
        chosen_pods(&spec, &mut errors);
        completions(&spec, &before, &mut errors);
        errors.immutable(&spec.at("selector"), &before.at("selector"));
        template_update(&spec, &stale, &mut errors);
        for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
            errors.immutable(&spec.at(field), &before.at(field));
        }
        host_names(&fresh, &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        job_status(&At::root(new), &mut errors);
        status_update(&At::root(new), &At::root(old), &mut errors);
        errors.into_vec()
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        let problems = names::is_dns1123_label(value::text(new, "metadata.name"));
        if old.is_none() && !problems.is_empty() {
            let detail = "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended";
            warnings.push(format!("metadata.name: {detail}: [{}]", problems.join(" ")));
        }
        let spec = value::at(new, "spec").unwrap_or(&Value::Null);
        let number = |field: &str| value::int(spec, field);
        if value::text(spec, "completionMode") == "Indexed"
            && number("completions").is_some_and(|completions| completions > MANY_COMPLETIONS)
            && number("parallelism").is_some_and(|parallelism| parallelism > MOST_PARALLEL_OF_MANY)
        {
            warnings.push("In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail".to_owned());
        }
        warnings.extend(template_warnings(new, old, "spec.template"));
        warnings
    }
}

/// A condition that is waited for is waited for to be true.
fn default_patterns(object: &mut Value, spec: &str) {
    for rule in value::list_mut(object, &format!("{spec}.podFailurePolicy.rules")) {
        for pattern in value::list_mut(rule, "onPodConditions") {
            value::set_default(pattern, "status", "True");
        }
    }
}

fn generated_selector(job: &At<'_, '_>, errors: &mut Errors) {
    let chosen = job.at("spec.selector");
    if job.at("spec.manualSelector").flag() || !chosen.is_set() {
        return;
    }
    let (uid, name) = (job.text_at("metadata.uid"), job.text_at("metadata.name"));
    let metadata = job.at("spec.template.metadata");
    let labels = metadata.at("labels");
    let expected: Vec<(&str, &str)> =
        UID_LABELS.iter().map(|label| (*label, uid)).chain(NAME_LABELS.iter().map(|label| (*label, name))).collect();
    for (label, wanted) in &expected {
        let given = labels.key(label);
        if !given.is_set() {
            errors.required(&given, format!("must be '{wanted}'"));
        } else if given.text() != *wanted {
            errors.invalid_value(&given, labels.value().clone(), format!("must be '{wanted}'"));
        }
    }
    // What is no selector is told of where it is checked.
    let Ok(selector) = LabelSelector::from_value(chosen.value()) else { return };
    if !selector.matches(|key| expected.iter().find(|(label, _)| *label == key).map(|(_, value)| *value)) {
        errors.invalid(&chosen, "`selector` not auto-generated");
    }
}

fn chosen_pods(spec: &At<'_, '_>, errors: &mut Errors) {
    let chosen = spec.at("selector");
    if chosen.is_set() {
        errors.label_selector(&chosen);
    } else {
        errors.required(&chosen, "");
    }
    let labels = spec.at("template.metadata.labels");
    let Ok(selector) = LabelSelector::from_value(chosen.value()) else { return };
    // Without a selector nothing is chosen.
    if !chosen.is_set() || !selector.matches_labels(labels.value()) {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
}

/// The pods of an indexed job are hosts that are called after it.
fn host_names(job: &At<'_, '_>, errors: &mut Errors) {
    let completions = job.at("spec.completions").int().unwrap_or(0);
    if job.at("spec.completionMode").text() != "Indexed" || completions <= 0 {
        return;
    }
    let name = job.at("metadata.name");
    let last = format!("{}-{}", name.text(), completions - 1);
    if !names::is_dns1123_label(&last).is_empty() {
        errors.invalid_text(&name, format!("will not able to create pod with invalid DNS label: {last}"));
    }
}

/// What jobs and the templates of jobs must have right.
fn job_spec(spec: &At<'_, '_>, errors: &mut Errors) {
    let number = |field: &str| spec.at(field).int();
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(&spec.at(field));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&spec.at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    managed_by(&spec.at("managedBy"), errors);
    let mode = spec.at("completionMode");
    errors.one_of_if_set(&mode, &["NonIndexed", "Indexed"]);
    if mode.text() == "Indexed" {
        indexed(spec, errors);
    } else if !mode.is_set() || mode.text() == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if number(field).is_some() {
                errors.invalid(&spec.at(field), "requires indexed completion mode");
            }
        }
    }
    let failure = spec.at("podFailurePolicy");
    if failure.is_set() {
        failure_policy(spec, &failure, errors);
    }
    let success = spec.at("successPolicy");
    if success.is_set() {
        if mode.text() == "Indexed" {
            success_policy(spec, &success, errors);
        } else {
            errors.invalid(&success, "requires indexed completion mode");
        }
    }
    let supported: &[&str] = if failure.is_set() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    errors.one_of_if_set(&spec.at("podReplacementPolicy"), supported);
    let template = spec.at("template");
    pod_spec::validate_template(&template, errors);
    let policy = template.at("spec.restartPolicy");
    match policy.text() {
        "Always" | "" => errors.required(&policy, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if failure.is_set() => {
            errors.invalid(&policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => errors.not_supported(&policy, &["OnFailure", "Never"]),
    }
}

/// Who takes care of the job, if it is not the job controller: a domain and a path.
fn managed_by(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 63;
    if !at.is_set() {
        return;
    }
    domain_prefixed_path(at, errors);
    if at.text().len() > MOST {
        errors.too_long(at, MOST);
    }
}

fn indexed(spec: &At<'_, '_>, errors: &mut Errors) {
    let (completions, parallelism, failed) =
        (spec.at("completions"), spec.at("parallelism"), spec.at("maxFailedIndexes"));
    if !completions.is_set() {
        errors.required(&completions, "when completion mode is Indexed");
    }
    if parallelism.int().is_some_and(|number| number > MOST_PARALLEL) {
        errors.invalid(
            &parallelism,
            format!("must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed"),
        );
    }
    if let (Some(all), Some(most)) = (completions.int(), failed.int())
        && most > all
    {
        errors.invalid(&failed, "must be less than or equal to completions");
    }
    if failed.int().is_some_and(|most| most > MOST_PARALLEL) {
        errors.invalid(&failed, format!("must be less than or equal to {MOST_PARALLEL}"));
    }
    if completions.int().is_some_and(|number| number > MANY_COMPLETIONS) && spec.has("backoffLimitPerIndex") {
        let rest = format!("when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
        if !failed.is_set() {
            errors.required(&failed, format!("must be specified when completions is above {MANY_COMPLETIONS}"));
        }
        if parallelism.int().is_some_and(|number| number > MOST_PARALLEL_OF_MANY) {
            errors.invalid(&parallelism, format!("must be less than or equal to {MOST_PARALLEL_OF_MANY} {rest}"));
        }
        if failed.int().is_some_and(|number| number > MOST_FAILED_OF_MANY) {
            errors.invalid(&failed, format!("must be less than or equal to {MOST_FAILED_OF_MANY} {rest}"));
        }
    }
}

fn failure_policy(spec: &At<'_, '_>, policy: &At<'_, '_>, errors: &mut Errors) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let rules = policy.at("rules");
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    for rule in rules.items() {
        let action = rule.at("action");
        match action.text() {
            "" => errors.required(&action, "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                errors.invalid(&action, "requires the backoffLimitPerIndex to be set");
            }
            _ => errors.one_of(&action, &ACTIONS),
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.is_set() {
            exit_codes(spec, &codes, errors);
        }
        pod_conditions(&conditions, errors);
        match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => {
                errors.push(without_value(&rule, "specifying both OnExitCodes and OnPodConditions is not supported"))
            }
            (false, false) => {
                errors.push(without_value(&rule, "specifying one of OnExitCodes and OnPodConditions is required"))
            }
            _ => {}
        }
    }
}

/// An error that shows no value.
fn without_value(at: &At<'_, '_>, detail: &str) -> FieldError {
    let mut error = FieldError::invalid(at.to_string(), OMITTED, detail);
    error.value = None;
    error
}

fn exit_codes(spec: &At<'_, '_>, at: &At<'_, '_>, errors: &mut Errors) {
    let operator = at.at("operator");
    if operator.text().is_empty() {
        errors.required(&operator, "valid values: [\"In\" \"NotIn\"]");
    } else {
        errors.one_of(&operator, &["In", "NotIn"]);
    }
    let container = at.at("containerName");
    let lists = ["template.spec.containers", "template.spec.initContainers"];
    let known = lists
        .iter()
        .any(|list| value::list(spec.value(), list).iter().any(|known| value::text(known, "name") == container.text()));
    if container.is_set() && !known {
        errors.invalid(&container, "must be one of the container or initContainer names in the pod template");
    }
    let values = at.at("values");
    if values.is_empty() {
        errors.invalid(&values, "at least one value is required");
    } else if values.len() > 255 {
        errors.too_many(&values, 255);
    }
    let codes: Vec<i64> = values.items().map(|code| code.int().unwrap_or(0)).collect();
    for (index, code) in values.items().enumerate() {
        if operator.text() == "In" && codes[index] == 0 {
            errors.invalid_int(&code, "must not be 0 for the In operator");
        }
        if codes[..index].contains(&codes[index]) {
            errors.duplicate(&code, codes[index]);
        }
    }
    if !codes.is_sorted() {
        errors.invalid(&values, "must be ordered");
    }
}

fn pod_conditions(list: &At<'_, '_>, errors: &mut Errors) {
    if list.len() > 20 {
        errors.too_many(list, 20);
    }
    for pattern in list.items() {
        errors.label_name(&pattern.at("type"));
        let status = pattern.at("status");
        if status.text().is_empty() {
            errors.required(&status, "valid values: [\"False\" \"True\" \"Unknown\"]");
        } else {
            errors.one_of(&status, &["False", "True", "Unknown"]);
        }
    }
}

fn success_policy(spec: &At<'_, '_>, policy: &At<'_, '_>, errors: &mut Errors) {
    const MOST_INDEXES: usize = 64 * 1024;
    let rules = policy.at("rules");
    if rules.is_empty() {
        errors.required(&rules, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    let completions = spec.at("completions").int().unwrap_or(0);
    for rule in rules.items() {
        let (count, indexes) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            errors.required(&rule, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if indexes.is_set() {
            if indexes.text().len() > MOST_INDEXES {
                errors.too_long(&indexes, MOST_INDEXES);
            }
            match parse_indexes(indexes.text(), completions) {
                Ok(intervals) => total = intervals.iter().map(|(from, to)| to - from + 1).sum(),
                Err(why) => errors.invalid(&indexes, format!("error parsing succeededIndexes: {why}")),
            }
        }
        let Some(wanted) = count.int() else { continue };
        errors.not_negative(&count);
        if wanted > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(&count, detail);
        }
        if indexes.is_set() && wanted > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(&count, detail);
        }
    }
}

/// `1,3-5,7` as intervals, in growing order and below the number of completions.
fn parse_indexes(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let index = |text: &str| -> Result<i64, String> {
        let index: i64 = text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index >= completions { Err(format!("too large index: {text:?}")) } else { Ok(index) }
    };
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let mut ends = interval.split('-');
        let (first, second) = (ends.next().unwrap_or_default(), ends.next());
        if ends.next().is_some() {
            return Err(format!(
                "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let from = index(first)?;
        let to = match second {
            None => from,
            Some(second) => {
                let to = index(second)?;
                if from >= to {
                    return Err(format!("non-increasing order, previous: {from}, current: {to}"));
                }
                to
            }
        };
        if let Some((_, last)) = intervals.last().filter(|(_, last)| *last >= from) {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        intervals.push((from, to));
    }
    Ok(intervals)
}

fn completions(spec: &At<'_, '_>, before: &At<'_, '_>, errors: &mut Errors) {
    let (new, old) = (spec.at("completions"), before.at("completions"));
    if spec.text_at("completionMode") != "Indexed" {
        return errors.immutable(&new, &old);
    }
    if new.value() != old.value() && new.is_set() && new.value() != spec.at("parallelism").value() {
        errors.invalid(&new, "can only be modified in tandem with spec.parallelism");
    }
}

/// The template stays, except that where and with what the pods of a job that does not run yet will run may still change.
fn template_update(spec: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let before = old.at("spec");
    let suspended = before.at("suspend").flag();
    let condition = old.at("status.conditions");
    let started = old.has("status.startTime");
    let is_suspended = condition
        .items()
        .any(|condition| condition.text_at("type") == "Suspended" && condition.text_at("status") == "True");
    let idle = suspended && (!started || is_suspended) && old.at("status.active").int().unwrap_or(0) == 0;
    let template = spec.at("template");
    let mut expected = before.at("template").value().clone();
    if idle {
        for path in [
            "metadata.labels",
            "metadata.annotations",
            "spec.nodeSelector",
            "spec.tolerations",
            "spec.schedulingGates",
            "spec.affinity.nodeAffinity",
        ] {
            match value::at(template.value(), path) {
                Some(kept) => value::set(&mut expected, path, kept.clone()),
                None => {
                    value::remove(&mut expected, path);
                }
            }
        }
        // An affinity in which nothing else was may come and go with that of nodes.
        let known = value::at(&expected, "spec.affinity").and_then(Value::as_object).map(value::Object::is_empty);
        match (template.has("spec.affinity"), known) {
            (true, None) => value::set(&mut expected, "spec.affinity", json!({})),
            (false, Some(true)) => drop(value::remove(&mut expected, "spec.affinity")),
            _ => {}
        }
        for list in ["spec.containers", "spec.initContainers"] {
            let now = value::list(template.value(), list).to_vec();
            for (container, now) in value::list_mut(&mut expected, list).iter_mut().zip(now) {
                if container["name"] == now["name"] {
                    container["resources"] = now["resources"].clone();
                }
            }
        }
    }
    if idle {
        // Everything else of the metadata may change as well.
        let spec = template.at("spec");
        if spec.value() != expected.get("spec").unwrap_or(&Value::Null) {
            errors.invalid(&spec, "field is immutable");
        }
    } else if *template.value() != expected {
        errors.invalid(&template, "field is immutable");
    }
}

fn is_true(job: &At<'_, '_>, kind: &str) -> bool {
    let conditions = value::list(job.value(), "status.conditions");
    conditions
        .iter()
        .any(|condition| value::text(condition, "type") == kind && value::text(condition, "status") == "True")
}

/// A status that makes sense by itself.
fn job_status(job: &At<'_, '_>, errors: &mut Errors) {
    let status = job.at("status");
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.not_negative(&status.at(field));
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for list in ["succeeded", "failed"] {
        let uncounted = status.at("uncountedTerminatedPods");
        for uid in uncounted.at(list).items() {
            if uid.text().is_empty() {
                errors.invalid_text(&uid, "must not be empty");
            } else if seen.contains(&uid.text()) {
                errors.duplicate(&uid, uid.text());
            } else {
                seen.insert(uid.text());
            }
        }
    }
    let (complete, failed) = (is_true(job, "Complete"), is_true(job, "Failed"));
    let (target, met) = (is_true(job, "FailureTarget"), is_true(job, "SuccessCriteriaMet"));
    let conditions = status.at("conditions");
    for (wrong, detail) in [
        (complete && failed, "cannot set Complete=True and Failed=true conditions"),
        (complete && target, "cannot set Complete=True and FailureTarget=true conditions"),
        (failed && !target, "cannot set Failed=True condition without the FailureTarget=true condition"),
        (complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
        (met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
        (
            job.has("spec.successPolicy") && complete && !met,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ] {
        if wrong {
            errors.push(without_value(&conditions, detail));
        }
    }
    let finished = complete || failed;
    let (start, end) = (status.at("startTime"), status.at("completionTime"));
    if end.is_set() && !complete {
        errors.invalid(&end, "cannot set completionTime when there is no Complete=True condition");
    }
    if !end.is_set() && complete {
        errors.required(&end, "completionTime is required for Complete jobs");
    }
    if let (Some(began), Some(ended)) = (time::parse_clamped(start.text()), time::parse_clamped(end.text()))
        && ended < began
    {
        errors.invalid(&end, "must be equal to or after `startTime`");
    }
    let number = |field: &str| status.at(field).int().unwrap_or(0);
    if finished && number("active") > 0 {
        errors.invalid(&status.at("active"), "active>0 is invalid for finished job");
    }
    if finished && !start.is_set() {
        errors.required(&start, "startTime is required for finished job");
    }
    if finished && !seen.is_empty() {
        errors.invalid(&status.at("uncountedTerminatedPods"), "must be empty for finished job");
    }
    if finished && number("terminating") > 0 {
        errors.invalid(&status.at("terminating"), "terminating>0 is invalid for finished job");
    }
    status_indexes(job, &status, errors);
    if number("ready") > number("active") {
        errors.invalid(&status.at("ready"), "cannot set more ready pods than active");
    }
}

fn status_indexes(job: &At<'_, '_>, status: &At<'_, '_>, errors: &mut Errors) {
    let (completed, failed) = (status.at("completedIndexes"), status.at("failedIndexes"));
    let per_index = job.has("spec.backoffLimitPerIndex");
    if let Some(all) = job.at("spec.completions").int() {
        let done = parse_indexes(completed.text(), all);
        if let Err(why) = &done {
            errors.invalid_text(&completed, format!("error parsing completedIndexes: {why}"));
        }
        if failed.is_set() {
            let lost = parse_indexes(failed.text(), all);
            if let Err(why) = lost.as_ref()
                && per_index
            {
                errors.invalid(&failed, format!("error parsing failedIndexes: {why}"));
            }
            if let (Ok(done), Ok(lost)) = (done, lost) {
                let overlap = done.iter().flat_map(|done| lost.iter().map(move |lost| (done, lost)));
                let first = overlap
                    .filter(|(done, lost)| done.0 <= lost.1 && lost.0 <= done.1)
                    .map(|(done, lost)| done.0.max(lost.0))
                    .next();
                if let Some(index) = first {
                    errors.invalid(&failed, format!("failedIndexes and completedIndexes overlap at index: {index}"));
                }
            }
        }
    }
    if !completed.text().is_empty() && job.at("spec.completionMode").text() != "Indexed" {
        errors.invalid(&completed, "cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed.is_set() && !per_index {
        errors.invalid(&failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
}

/// A status that goes on from the one before.
fn status_update(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (status, before) = (new.at("status"), old.at("status"));
    let conditions = status.at("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            errors.push(without_value(&conditions, &format!("cannot disable the terminal {kind}=True condition")));
        }
    }
    for counter in ["failed", "succeeded"] {
        let (now, then) = (status.at(counter).int().unwrap_or(0), before.at(counter).int().unwrap_or(0));
        if now < then {
            errors.invalid_int(&status.at(counter), format!("cannot decrease the {counter} counter"));
        }
    }
    let (end, ended) = (status.at("completionTime"), before.at("completionTime"));
    if end.is_set() && ended.is_set() && end.value() != ended.value() {
        errors.invalid(&end, "field is immutable");
    }
    let (start, started) = (status.at("startTime"), before.at("startTime"));
    if started.is_set() && start.value() != started.value() && !new.at("spec.suspend").flag() {
        errors.invalid(&start, "field is immutable for unsuspended job once set");
    }
    if is_true(old, "SuccessCriteriaMet") && !is_true(new, "SuccessCriteriaMet") {
        errors.push(without_value(&conditions, "cannot disable the SuccessCriteriaMet=True condition"));
    }
    if is_true(old, "Complete") && !is_true(old, "SuccessCriteriaMet") && is_true(new, "SuccessCriteriaMet") {
        errors.push(without_value(
            &conditions,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ));
    }
}

/// CronJobs.
pub struct CronJobs;

impl Strategy for CronJobs {
    fn counts_generations(&self) -> bool {
        true
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
        let mut warnings = Vec::new();
        let problems = names::is_dns1123_label(value::text(new, "metadata.name"));
        if old.is_none() && !problems.is_empty() {
            let detail = "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended";
            warnings.push(format!("metadata.name: {detail}: [{}]", problems.join(" ")));
        }
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
        if let Err(why) = cron::check(schedule.text()) {
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
