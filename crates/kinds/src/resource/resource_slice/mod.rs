//! ResourceSlices: the devices that a driver has, on which nodes, and what of them can be shared.

pub mod columns;
#[cfg(test)]
mod tests;

use machinery::object::Field;
use machinery::quantity::Quantity;
use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::lists::{set, slice};
use crate::checks::rare_names::is_semantic_version;
use crate::checks::{At, Errors};
use crate::core::pod::scheduling;
use crate::core::pod::volumes::csi_driver_name;
use crate::resource::devices::{binding_conditions, device_taint, pool_name, qualified};
use crate::strategy::{Flags, Strategy};

const MOST_DEVICES: usize = 128;

/// Devices with taints, counters or lists are larger, so there may be fewer.
const MOST_LARGE_DEVICES: usize = 64;
const MOST_COUNTER_SETS: usize = 8;
const MOST_COUNTERS: usize = 32;
const MOST_CONSUMED_SETS: usize = 2;
const MOST_ATTRIBUTES: usize = 32;
const MOST_ATTRIBUTE_VALUES: usize = 48;
const MOST_VALUE: usize = 64;
const MOST_TAINTS: usize = 16;
const MOST_OPTIONS: usize = 10;

const NO_VALUE: &str =
    "must specify one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`";

pub struct ResourceSlices;

impl Strategy for ResourceSlices {
    fn prepare_for_create(&self, new: &mut Value) {
        drop_disabled(new);
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        drop_disabled(new);
    }

    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn fields(&self) -> &'static [Field] {
        const { &[Field::text("spec.driver"), Field::text("spec.nodeName"), Field::text("spec.pool.name")] }
    }

    fn validate(&self, slice: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        spec(&At::root(slice).at("spec"), None, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        spec(&At::root(new).at("spec"), Some(&At::root(old).at("spec")), &mut errors);
        errors.into_vec()
    }
}

/// What is behind gates that are off.
fn drop_disabled(slice: &mut Value) {
    for field in ["spec.skipNodeOperations", "spec.partitionTypeAttribute"] {
        value::remove(slice, field);
    }
    for device in value::list_mut(slice, "spec.devices") {
        value::remove(device, "nodeAllocatableResources");
    }
}

fn spec(spec: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    csi_driver_name(&spec.at("driver"), errors);
    let pool = spec.at("pool");
    pool_name(&pool.at("name"), errors);
    errors.positive(&pool.at("resourceSliceCount"));
    if pool.at("generation").int().unwrap_or(0) < 0 {
        errors.invalid_int(&pool.at("generation"), "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        for field in ["pool.name", "driver", "nodeName"] {
            errors.immutable(&spec.at(field), &old.at(field));
        }
    }
    place(spec, errors);
    let (devices, counters) = (spec.at("devices"), spec.at("sharedCounters"));
    if counters.is_set() && devices.is_set() {
        errors.invalid_value(spec, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let large = devices.items().any(|device| {
        let lists = ["bools", "ints", "strings", "versions"];
        let listed = |attribute: At<'_, '_>| lists.iter().any(|list| attribute.has(list));
        !device.at("taints").is_empty()
            || !device.at("consumesCounters").is_empty()
            || device.at("attributes").entries().any(|(_, attribute)| listed(attribute))
    });
    let most = if large { MOST_LARGE_DEVICES } else { MOST_DEVICES };
    let chosen = spec.at("perDeviceNodeSelection").flag();
    let known = old.map(|old| old.at("devices"));
    set(
        &devices,
        most,
        |device| device.text_at("name"),
        errors,
        |device, errors| {
            let index = known
                .as_ref()
                .and_then(|known| known.items().position(|old| old.text_at("name") == device.text_at("name")));
            let before = known.as_ref().zip(index).map(|(known, index)| known.index(index));
            self::device(device, before.as_ref(), chosen, errors);
        },
    );
    set(
        &counters,
        MOST_COUNTER_SETS,
        |counters| counters.text_at("name"),
        errors,
        |counters, errors| {
            counted(counters, "name", errors);
        },
    );
}

/// On which nodes the devices are: said in exactly one way.
fn place(spec: &At<'_, '_>, errors: &mut Errors) {
    let mut set = Vec::new();
    let node = spec.at("nodeName");
    if node.is_set() {
        if node.text().is_empty() {
            errors.invalid(&node, "must be either unset or set to a non-empty string");
        } else {
            set.push("`nodeName`");
            errors.problems(&node, names::name_is_dns_subdomain(node.text(), false));
        }
    }
    let selector = spec.at("nodeSelector");
    if selector.is_set() {
        set.push("`nodeSelector`");
        scheduling::node_selector(&selector, errors);
        let terms = selector.at("nodeSelectorTerms");
        if terms.len() != 1 {
            errors.invalid(&terms, "must have exactly one node selector term");
        }
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        only_true(&spec.at(field), shown, &mut set, errors);
    }
    let detail = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => errors.required(spec, detail),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.invalid_value(spec, shown, format!("{detail}, but multiple fields are set"));
        }
    }
}

fn only_true(at: &At<'_, '_>, shown: &'static str, set: &mut Vec<&'static str>, errors: &mut Errors) {
    match at.value() {
        Value::Bool(true) => set.push(shown),
        Value::Null => {}
        _ => errors.invalid(at, "must be either unset or set to true"),
    }
}

fn device(device: &At<'_, '_>, old: Option<&At<'_, '_>>, chosen: bool, errors: &mut Errors) {
    let name = device.at("name");
    errors.problems(&name, names::is_dns1123_label(name.text()));
    let (attributes, capacity) = (device.at("attributes"), device.at("capacity"));
    let all = attributes.len() + capacity.len();
    if all > MOST_ATTRIBUTES {
        let detail = format!("the total number of attributes and capacities must not exceed {MOST_ATTRIBUTES}");
        errors.invalid_value(device, all, detail);
    }
    let listed = |attribute: &At<'_, '_>| -> usize {
        ["bools", "ints", "strings", "versions"].iter().map(|list| attribute.at(list).len()).sum::<usize>().max(1)
    };
    let values: usize = attributes.entries().map(|(_, attribute)| listed(&attribute)).sum();
    if values > MOST_ATTRIBUTE_VALUES {
        let detail = format!("the total number of attribute values must not exceed {MOST_ATTRIBUTE_VALUES}");
        errors.invalid_value(device, values, detail);
    }
    for (key, attribute) in attributes.entries() {
        qualified(&attributes, key, errors);
        self::attribute(&attribute, errors);
    }
    let changed = |field: &str| old.is_none_or(|old| old.at(field).value() != device.at(field).value());
    if changed("capacity") {
        let shared = device.at("allowMultipleAllocations").flag();
        for (key, amount) in capacity.entries() {
            qualified(&capacity, key, errors);
            let policy = amount.at("requestPolicy");
            if policy.is_set() && !shared {
                errors.forbidden(&policy, "allowMultipleAllocations must be true");
            } else if policy.is_set() {
                request_policy(&policy, amount.at("value").quantity(), errors);
            }
        }
    }
    if changed("taints") {
        slice(&device.at("taints"), MOST_TAINTS, errors, |taint, errors| device_taint(taint, None, errors));
    }
    set(
        &device.at("consumesCounters"),
        MOST_CONSUMED_SETS,
        |consumed| consumed.text_at("counterSet"),
        errors,
        |consumed, errors| counted(consumed, "counterSet", errors),
    );
    device_place(device, chosen, errors);
    binding_conditions(device, errors);
}

/// On which nodes one device is, if the slice leaves it to the devices.
fn device_place(device: &At<'_, '_>, chosen: bool, errors: &mut Errors) {
    let (node, selector) = (device.at("nodeName"), device.at("nodeSelector"));
    if !chosen {
        if node.is_set() || selector.is_set() || device.has("allNodes") {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid_value(device, Value::Null, detail);
        }
        return;
    }
    let mut set = Vec::new();
    if node.is_set() && node.text().is_empty() {
        errors.invalid(&node, "must not be empty");
    } else if node.is_set() {
        set.push("`nodeName`");
        errors.problems(&node, names::name_is_dns_subdomain(node.text(), false));
    }
    if selector.is_set() {
        set.push("`nodeSelector`");
        scheduling::node_selector(&selector, errors);
    }
    only_true(&device.at("allNodes"), "`allNodes`", &mut set, errors);
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match set.len() {
        0 => errors.required(device, detail),
        1 => {}
        _ => errors.invalid_value(device, format!("{{{}}}", set.join(", ")), detail),
    }
}

/// A named set of counters, or what is taken from one.
fn counted(at: &At<'_, '_>, name: &str, errors: &mut Errors) {
    let set = at.at(name);
    if errors.required_text(&set) {
        errors.problems(&set, names::is_dns1123_label(set.text()));
    }
    let counters = at.at("counters");
    if counters.is_empty() {
        return errors.required(&counters, "");
    }
    if counters.len() > MOST_COUNTERS {
        return errors.too_many(&counters, MOST_COUNTERS);
    }
    for (key, _) in counters.entries() {
        for problem in names::is_dns1123_label(key) {
            errors.invalid_value(&counters, key, problem);
        }
    }
}

fn attribute(at: &At<'_, '_>, errors: &mut Errors) {
    let mut set = 0;
    for field in ["bool", "int", "string", "version"] {
        let value = at.at(field);
        if value.is_set() {
            set += 1;
            text_value(&value, field == "version", errors);
        }
    }
    for (field, versions) in [("bools", false), ("ints", false), ("strings", false), ("versions", true)] {
        let list = at.at(field);
        if !list.is_set() {
            continue;
        }
        set += 1;
        if list.is_empty() {
            errors.invalid(&list, "must not be empty if specified");
        }
        for value in list.items() {
            text_value(&value, versions, errors);
        }
    }
    match set {
        0 => errors.invalid_value(at, "", NO_VALUE),
        1 => {}
        _ => errors.invalid(at, "exactly one value must be specified"),
    }
}

fn text_value(at: &At<'_, '_>, version: bool, errors: &mut Errors) {
    if version && !is_semantic_version(at.text()) {
        errors.invalid_text(at, "must be a string compatible with semver.org spec 2.0.0");
    }
    if at.text().len() > MOST_VALUE {
        errors.too_long(at, MOST_VALUE);
    }
}

/// How much of a capacity can be asked for.
fn request_policy(policy: &At<'_, '_>, capacity: Option<Quantity>, errors: &mut Errors) {
    let (values, range, default) = (policy.at("validValues"), policy.at("validRange"), policy.at("default"));
    let Some(capacity) = capacity else { return };
    if !values.is_empty() && range.is_set() {
        let detail =
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
        return errors.forbidden(policy, detail);
    }
    if !values.is_empty() {
        match default.quantity() {
            None => errors.required(&default, "required when validValues is defined"),
            Some(default) => valid_values(&values, &default, &capacity, errors),
        }
    } else if range.is_set() {
        match default.quantity() {
            None => errors.required(&default, "required when validRange is defined"),
            Some(default) => valid_range(&range, &default, &capacity, errors),
        }
    }
}

fn valid_values(values: &At<'_, '_>, default: &Quantity, capacity: &Quantity, errors: &mut Errors) {
    let amounts: Vec<Quantity> = values.items().filter_map(|value| value.quantity()).collect();
    for (index, pair) in amounts.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let detail = "values must be sorted in ascending order";
            errors.invalid_value(&values.index(index + 1), pair[1].to_string(), detail);
        }
    }
    slice(values, MOST_OPTIONS, errors, |value, errors| {
        if let Some(option) = value.quantity().filter(|option| option > capacity) {
            errors.invalid_value(
                value,
                option.to_string(),
                format!("option is larger than capacity value: {capacity}"),
            );
        }
    });
    if !amounts.contains(default) {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid_value(values, default.to_string(), detail);
    }
}

fn valid_range(range: &At<'_, '_>, default: &Quantity, capacity: &Quantity, errors: &mut Errors) {
    let (min, max, step) = (range.at("min"), range.at("max"), range.at("step"));
    let Some(low) = min.quantity() else { return errors.required(&min, "required when validRange is defined") };
    let mut report =
        |at: &At<'_, '_>, shown: &Quantity, detail: String| errors.invalid_value(at, shown.to_string(), detail);
    if low > *capacity {
        report(&min, &low, format!("min is larger than capacity value: {capacity}"));
    }
    if *default < low {
        report(&range.at("default"), default, format!("default is less than min: {low}"));
    }
    if let Some(high) = max.quantity() {
        if low > high {
            report(&max, &low, format!("min is larger than max: {high}"));
        }
        if high > *capacity {
            report(&max, &high, format!("max is larger than capacity value: {capacity}"));
        }
        if *default > high {
            report(&range.at("default"), default, format!("default is more than max: {high}"));
        }
    }
    let Some(by) = step.quantity() else { return };
    if by.signum() <= 0 {
        return report(&step, &by, "must be greater than zero".to_owned());
    }
    let mut first = low.clone();
    first.add(&by);
    if first > *capacity {
        report(&step, &by, format!("one step {first} is larger than capacity value: {capacity}"));
    }
    for value in [Some(default.clone()), max.quantity()].into_iter().flatten() {
        let thousandths = |quantity: &Quantity| i128::from(quantity.milli_value());
        if (thousandths(&value) - thousandths(&low)) % thousandths(&by).max(1) != 0 {
            report(&step, &value, format!("value is not a multiple of a given step ({by}) from ({low})"));
        }
    }
}
