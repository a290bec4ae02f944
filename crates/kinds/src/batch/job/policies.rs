//! When a Job has failed or succeeded before all its pods have: its policies.

use machinery::status::FieldError;
use machinery::value;

use crate::checks::{At, Errors};

const OMITTED: &str = "<omitted>";

pub fn failure_policy(spec: &At<'_, '_>, policy: &At<'_, '_>, errors: &mut Errors) {
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
pub fn without_value(at: &At<'_, '_>, detail: &str) -> FieldError {
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

pub fn success_policy(spec: &At<'_, '_>, policy: &At<'_, '_>, errors: &mut Errors) {
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
pub fn parse_indexes(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
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
