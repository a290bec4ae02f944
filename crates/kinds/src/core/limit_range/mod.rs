//! LimitRanges.

use std::collections::HashSet;

use machinery::quantity::{Format, Quantity};
use machinery::status::FieldError;
use machinery::{Value, names, value};
use rules::names::{is_huge_page, is_native};

use crate::checks::{At, Errors};
use crate::core::pod::{defaults, resources};
use crate::strategy::{Flags, Strategy};

pub struct LimitRanges;

impl Strategy for LimitRanges {
    /// One without a name gets one that nobody else has.
    fn prepare_for_create(&self, range: &mut Value) {
        if value::text(range, "metadata.name").is_empty() {
            let uid = value::text(range, "metadata.uid").to_owned();
            value::set(range, "metadata.name", uid);
        }
    }

    fn flags(&self) -> Flags {
        Flags { creates_on_update: true, ..Flags::USUAL }
    }

    /// What a limit for containers leaves out follows from what it says.
    fn default(&self, range: &mut Value) {
        for limit in value::list_mut(range, "spec.limits") {
            for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                if let Some(list) = limit.get_mut(field) {
                    defaults::round_up(list);
                }
            }
            if value::text(limit, "type") != "Container" {
                continue;
            }
            for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
                let source = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
                for (resource, amount) in source {
                    value::object_mut(limit, to).entry(resource).or_insert(amount);
                }
            }
        }
    }

    fn validate(&self, range: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(range);
        let mut seen: HashSet<&str> = HashSet::new();
        for limit in root.at("spec.limits").items() {
            let kind = limit.at("type");
            let problems = names::is_qualified_name(kind.text());
            let good = problems.is_empty();
            errors.problems(&kind, problems);
            if good
                && !kind.text().contains('/')
                && !matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim")
            {
                errors.invalid(&kind, "must be a standard limit type or fully qualified");
            }
            if seen.contains(&kind.text()) {
                errors.duplicate(&kind, kind.text());
            }
            seen.insert(kind.text());
            validate_limit(&limit, kind.text(), &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

fn validate_limit(limit: &At<'_, '_>, kind: &str, errors: &mut Errors) {
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let list = limit.at(field);
        if kind == "Pod" && matches!(field, "default" | "defaultRequest") {
            if !list.is_empty() {
                errors.forbidden(&list, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (resource, entry) in list.entries() {
            match kind {
                "Pod" | "Container" => resources::container_name(resource, &entry, errors),
                _ => {
                    resources::name(resource, &entry, errors);
                }
            }
        }
        if field == "defaultRequest"
            && kind == "PersistentVolumeClaim"
            && !limit.has("min.storage")
            && !limit.has("max.storage")
        {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&limit.at("limits"), detail);
        }
    }
    let lists = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"].map(|field| limit.at(field));
    let mut all: Vec<&str> = lists.iter().flat_map(|list| list.entries().map(|(resource, _)| resource)).collect();
    all.sort_unstable();
    all.dedup();
    for resource in all {
        let skip = kind == "Pod";
        let [min, max, default, request, ratio] = lists.each_ref().map(|list| list.key(resource));
        let (default_amount, request_amount) =
            (default.quantity().filter(|_| !skip), request.quantity().filter(|_| !skip));
        let mut ordered = |low: &Option<Quantity>,
                           high: &Option<Quantity>,
                           at: &At<'_, '_>,
                           shown: &Option<Quantity>,
                           low_name: &str,
                           high_name: &str| {
            if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
                && low > high
            {
                errors.invalid_value(
                    at,
                    shown.to_string(),
                    format!("{low_name} value {low} is greater than {high_name} value {high}"),
                );
            }
        };
        let (least, most) = (min.quantity(), max.quantity());
        ordered(&least, &most, &min, &least, "min", "max");
        ordered(&least, &request_amount, &request, &request_amount, "min", "default request");
        ordered(&request_amount, &most, &request, &request_amount, "default request", "max");
        ordered(&request_amount, &default_amount, &request, &request_amount, "default request", "default limit");
        ordered(&least, &default_amount, &default, &least, "min", "default");
        ordered(&default_amount, &most, &default, &most, "default", "max");
        ratio_fits(&ratio, least.as_ref(), most.as_ref(), errors);
        if let (Some(limit), Some(wanted)) = (&default_amount, &request_amount)
            && (!is_native(resource) || is_huge_page(resource))
            && limit != wanted
        {
            let detail = format!("default value {limit} must equal to defaultRequest value {wanted} in {resource}");
            errors.invalid_value(&request, wanted.to_string(), detail);
        }
    }
}

/// A limit may be no more than so many times a request, which the least and the most must leave room for.
fn ratio_fits(ratio: &At<'_, '_>, least: Option<&Quantity>, most: Option<&Quantity>, errors: &mut Errors) {
    let Some(bound) = ratio.quantity() else { return };
    if bound < Quantity::new(1, Format::DecimalSi) {
        errors.invalid_value(ratio, bound.to_string(), format!("ratio {bound} is less than 1"));
    }
    if let (Some(least), Some(most)) = (least, most) {
        let limit = most.milli_value() as f64 / least.milli_value() as f64;
        if bound.milli_value() as f64 / 1000.0 > limit {
            errors.invalid_value(
                ratio,
                bound.to_string(),
                format!("ratio {bound} is greater than max/min = {limit:.6}"),
            );
        }
    }
}
