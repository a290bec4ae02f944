//! Devices that are asked for: claims, their templates, and classes of devices.

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, names, value};

use super::super::strategy::Strategy;
use super::common::{At, Errors, immutable_spec};
use super::expressions;
use super::pod::resources::is_extended;
use super::pod::scheduling;
use super::pod::volumes::{csi_driver_name, template_metadata};
use super::policy::conditions;

const MOST_REQUESTS: usize = 32;
const MOST_CHOICES: usize = 8;
const MOST_CONSTRAINTS: usize = 32;
const MOST_CONFIGURATIONS: usize = 32;
const MOST_SELECTORS: usize = 32;
const MOST_EXPRESSION: usize = 10 * 1024;
const MOST_PARAMETERS: usize = 10 * 1024;
const MOST_CONSUMERS: usize = 256;
const MOST_BINDING_CONDITIONS: usize = 4;
const MOST_DEVICE_CONDITIONS: usize = 8;
const MOST_DEVICE_DATA: usize = 10 * 1024;
const MOST_INTERFACE_NAME: usize = 256;
const MOST_HARDWARE_ADDRESS: usize = 128;
const MOST_ADDRESSES: usize = 16;
const MOST_ID: usize = 32;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// ResourceClaims.
pub struct Claims;

impl Strategy for Claims {
    fn default(&self, claim: &mut Value) {
        fill_requests(claim, "spec");
    }

    fn prepare_for_create(&self, new: &mut Value) {
        drop_disabled(new, "spec");
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        drop_disabled(new, "spec");
    }

    fn validate(&self, claim: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        claim_spec(&At::root(claim).at("spec"), &mut errors);
        errors.into_vec()
    }

    /// What is asked for stays as it was asked for; that it was right then is not asked again.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.immutable_unshown(&At::root(new).at("spec"), &At::root(old).at("spec"));
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        claim_status(&At::root(new), &At::root(old), &mut errors);
        errors.into_vec()
    }
}

/// ResourceClaimTemplates.
pub struct ClaimTemplates;

impl Strategy for ClaimTemplates {
    fn default(&self, template: &mut Value) {
        fill_requests(template, "spec.spec");
    }

    fn validate(&self, template: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(template);
        template_metadata(&root.at("spec.metadata"), &mut errors);
        claim_spec(&root.at("spec.spec"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        // What is stored may be what an earlier version took for right.
        let mut errors = if new.get("spec") == old.get("spec") { Vec::new() } else { self.validate(new) };
        errors.extend(immutable_spec(new, old));
        errors
    }

    fn prepare_for_create(&self, new: &mut Value) {
        drop_disabled(new, "spec.spec");
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        drop_disabled(new, "spec.spec");
    }
}

/// DeviceClasses.
pub struct DeviceClasses;

impl Strategy for DeviceClasses {
    fn counts_generations(&self) -> bool {
        true
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        class_spec(&At::root(class).at("spec"), None, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        class_spec(&At::root(new).at("spec"), Some(&At::root(old).at("spec")), &mut errors);
        errors.into_vec()
    }
}

/// Attributes that an expression derives are behind a gate that is off.
fn drop_disabled(object: &mut Value, spec: &str) {
    for request in value::list_mut(object, &format!("{spec}.devices.requests")) {
        value::remove(request, "exactly.derivedAttributes");
        for choice in value::list_mut(request, "firstAvailable") {
            value::remove(choice, "derivedAttributes");
        }
    }
}

/// What a request leaves out: one device, and tolerations of equal values.
fn fill_requests(object: &mut Value, spec: &str) {
    for request in value::list_mut(object, &format!("{spec}.devices.requests")) {
        if request.get("exactly").is_some_and(Value::is_object) {
            fill_request(&mut request["exactly"]);
        }
        value::list_mut(request, "firstAvailable").iter_mut().for_each(fill_request);
    }
}

fn fill_request(request: &mut Value) {
    if value::text(request, "allocationMode").is_empty() {
        value::set(request, "allocationMode", "ExactCount");
    }
    if value::text(request, "allocationMode") == "ExactCount" && value::int(request, "count").unwrap_or(0) == 0 {
        value::set(request, "count", 1);
    }
    for toleration in value::list_mut(request, "tolerations") {
        if value::text(toleration, "operator").is_empty() {
            value::set(toleration, "operator", "Equal");
        }
    }
}

/// A list whose items are right one by one, and not too many.
pub fn slice(list: &At<'_, '_>, most: usize, errors: &mut Errors, mut item: impl FnMut(&At<'_, '_>, &mut Errors)) {
    if list.len() > most {
        return errors.too_many(list, most);
    }
    for at in list.items() {
        item(&at, errors);
    }
}

/// As [`slice`], each item of another name.
pub fn set<'v>(
    list: &At<'_, 'v>,
    most: usize,
    key: impl Fn(&At<'_, 'v>) -> &'v str,
    errors: &mut Errors,
    item: impl FnMut(&At<'_, '_>, &mut Errors),
) {
    if list.len() > most {
        return errors.too_many(list, most);
    }
    slice(list, most, errors, item);
    let mut seen: HashSet<&str> = HashSet::new();
    for at in list.items() {
        let name = key(&at);
        if seen.contains(&name) {
            errors.duplicate(&at, name);
        }
        seen.insert(name);
    }
}

fn claim_spec(spec: &At<'_, '_>, errors: &mut Errors) {
    let devices = spec.at("devices");
    let requests = devices.at("requests");
    set(
        &requests,
        MOST_REQUESTS,
        |request| request.text_at("name"),
        errors,
        |request, errors| {
            let name = request.at("name");
            errors.problems(&name, names::is_dns1123_label(name.text()));
            let (exactly, choices) = (request.at("exactly"), request.at("firstAvailable"));
            match (exactly.is_set(), !choices.is_empty()) {
                (false, false) => errors.required(request, "exactly one of `exactly` or `firstAvailable` is required"),
                (true, true) => {
                    let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                    errors.invalid_value(request, Value::Null, why);
                    known_words(&exactly, errors);
                    choices.items().for_each(|choice| known_words(&choice, errors));
                }
                (true, false) => device_request(&exactly, errors),
                (false, true) => set(
                    &choices,
                    MOST_CHOICES,
                    |choice| choice.text_at("name"),
                    errors,
                    |choice, errors| {
                        let name = choice.at("name");
                        errors.problems(&name, names::is_dns1123_label(name.text()));
                        device_request(choice, errors);
                    },
                ),
            }
        },
    );
    slice(&devices.at("constraints"), MOST_CONSTRAINTS, errors, |constraint, errors| {
        request_references(&constraint.at("requests"), &requests, errors);
        let (equal, distinct) = (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
        match (equal.is_set(), distinct.is_set()) {
            (true, true) => [&equal, &distinct].into_iter().for_each(|name| fully_qualified(name, errors)),
            (true, false) => fully_qualified(&equal, errors),
            (false, true) => fully_qualified(&distinct, errors),
            (false, false) => errors.required(
                constraint,
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            ),
        }
    });
    slice(&devices.at("config"), MOST_CONFIGURATIONS, errors, |config, errors| {
        request_references(&config.at("requests"), &requests, errors);
        configuration(config, false, errors);
    });
}

/// What is checked of a request even where the rest of it makes no sense.
fn known_words(request: &At<'_, '_>, errors: &mut Errors) {
    let class = request.at("deviceClassName");
    if errors.required_text(&class) {
        errors.problems(&class, names::is_dns1123_subdomain(class.text()));
    }
    errors.one_of(&request.at("allocationMode"), &["All", "ExactCount"]);
    for toleration in request.at("tolerations").items() {
        if !toleration.text_at("key").is_empty() {
            errors.label_name(&toleration.at("key"));
        }
        errors.one_of(&toleration.at("operator"), &["Equal", "Exists"]);
        if !toleration.text_at("effect").is_empty() {
            errors.one_of(&toleration.at("effect"), &EFFECTS);
        }
    }
}

fn device_request(request: &At<'_, '_>, errors: &mut Errors) {
    let class = request.at("deviceClassName");
    if errors.required_text(&class) {
        errors.problems(&class, names::is_dns1123_subdomain(class.text()));
    }
    selectors(&request.at("selectors"), false, errors);
    let (mode, count) = (request.at("allocationMode"), request.at("count"));
    match mode.text() {
        "All" if count.int().unwrap_or(0) != 0 => {
            errors.invalid_int(&count, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" => errors.positive(&count),
        _ => errors.not_supported(&mode, &["All", "ExactCount"]),
    }
    for toleration in request.at("tolerations").items() {
        device_toleration(&toleration, errors);
    }
}

fn selectors(list: &At<'_, '_>, stored: bool, errors: &mut Errors) {
    slice(list, MOST_SELECTORS, errors, |selector, errors| {
        let cel = selector.at("cel");
        if !cel.is_set() {
            return errors.required(&cel, "");
        }
        let expression = cel.at("expression");
        if stored {
            return;
        }
        if expression.text().len() > MOST_EXPRESSION {
            errors.too_long(&expression, MOST_EXPRESSION);
        } else {
            expressions::device(&expression, errors);
        }
    });
}

fn device_toleration(at: &At<'_, '_>, errors: &mut Errors) {
    let (key, value) = (at.at("key"), at.at("value"));
    if !key.text().is_empty() {
        errors.label_name(&key);
    }
    match at.text_at("operator") {
        "Exists" if !value.text().is_empty() => errors.invalid(&value, "must be empty for operator `Exists`"),
        "Exists" => {}
        "Equal" => errors.problems(&value, names::is_label_value(value.text())),
        _ => errors.required_one_of(&at.at("operator"), &["Equal", "Exists"]),
    }
    if !at.text_at("effect").is_empty() {
        errors.one_of(&at.at("effect"), &EFFECTS);
    }
}

/// What keeps claims away from a device.
pub fn device_taint(at: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let value = at.at("value");
    errors.label_name(&at.at("key"));
    if !value.text().is_empty() {
        errors.problems(&value, names::is_label_value(value.text()));
    }
    if old.is_none_or(|old| old.text_at("effect") != at.text_at("effect")) {
        errors.required_one_of(&at.at("effect"), &EFFECTS);
    }
}

fn request_references(list: &At<'_, '_>, requests: &At<'_, '_>, errors: &mut Errors) {
    set(list, MOST_REQUESTS, |name| name.text(), errors, |name, errors| request_reference(name, requests, errors));
}

/// The name of a request, or of one of the choices it leaves.
fn request_reference(at: &At<'_, '_>, requests: &At<'_, '_>, errors: &mut Errors) {
    let segments: Vec<&str> = at.text().split('/').collect();
    if segments.len() > 2 {
        return errors.invalid_text(at, NOT_A_REQUEST);
    }
    for segment in &segments {
        for problem in names::is_dns1123_label(segment) {
            errors.invalid_value(at, *segment, problem);
        }
    }
    let known = requests.items().any(|request| {
        let choice = |name: &str| request.at("firstAvailable").items().any(|choice| choice.text_at("name") == name);
        request.text_at("name") == segments[0] && segments.get(1).is_none_or(|name| choice(name))
    });
    if !known {
        errors.invalid_text(at, NOT_A_REQUEST);
    }
}

fn configuration(at: &At<'_, '_>, stored: bool, errors: &mut Errors) {
    let opaque = at.at("opaque");
    if !opaque.is_set() {
        return errors.required(&opaque, "");
    }
    raw_object(&opaque.at("parameters"), if stored { usize::MAX } else { MOST_PARAMETERS }, errors);
    driver_name(&opaque.at("driver"), errors);
}

/// The name of a driver of devices or of volumes, in letters of either case.
fn driver_name(at: &At<'_, '_>, errors: &mut Errors) {
    if !errors.required_text(at) {
        return;
    }
    if at.text().len() > 63 {
        errors.too_long(at, 63);
    }
    errors.problems(at, names::is_dns1123_subdomain_caseless(at.text()));
}

/// Parameters that only a driver understands; that they are an object is known all the same.
fn raw_object(at: &At<'_, '_>, most: usize, errors: &mut Errors) {
    if !at.is_set() {
        errors.required(at, "");
    } else if at.value().to_string().len() > most {
        errors.too_long(at, most);
    } else if !at.value().is_object() {
        errors.invalid_value(at, "<value omitted>", "must be a valid JSON object");
    }
}

fn class_spec(spec: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let same = |field: &str| old.is_some_and(|old| old.at(field).value() == spec.at(field).value());
    selectors(&spec.at("selectors"), same("selectors"), errors);
    let stored = same("config");
    slice(&spec.at("config"), MOST_CONFIGURATIONS, errors, |config, errors| configuration(config, stored, errors));
    let extended = spec.at("extendedResourceName");
    if extended.is_set() && !is_extended(extended.text()) {
        errors.invalid(&extended, "must be a valid extended resource name");
    }
}

fn claim_status(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (status, before) = (new.at("status"), old.at("status"));
    let (reserved, allocation) = (status.at("reservedFor"), status.at("allocation"));
    set(
        &reserved,
        MOST_CONSUMERS,
        |consumer| consumer.text_at("uid"),
        errors,
        |consumer, errors| {
            for field in ["resource", "name", "uid"] {
                errors.required_text(&consumer.at(field));
            }
        },
    );
    for device in status.at("devices").items() {
        device_status(&device, &allocation.at("devices.results"), errors);
    }
    if !reserved.is_empty() {
        let known = before.at("reservedFor");
        let added = |consumer: &At<'_, '_>| !known.items().any(|other| other.value() == consumer.value());
        if !allocation.is_set() {
            errors.forbidden(&reserved, "may not be specified when `allocated` is not set");
        } else if new.has("metadata.deletionTimestamp") && reserved.items().any(|consumer| added(&consumer)) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&reserved, detail);
        }
    }
    let allocated = before.at("allocation");
    match (allocation.is_set(), allocated.is_set()) {
        (true, true) => errors.immutable(&allocation, &allocated),
        (true, false) => allocation_result(&allocation, &new.at("spec.devices.requests"), errors),
        _ => {}
    }
}

fn allocation_result(at: &At<'_, '_>, requests: &At<'_, '_>, errors: &mut Errors) {
    let devices = at.at("devices");
    slice(&devices.at("results"), MOST_REQUESTS, errors, |result, errors| {
        request_reference(&result.at("request"), requests, errors);
        csi_driver_name(&result.at("driver"), errors);
        pool_name(&result.at("pool"), errors);
        let device = result.at("device");
        errors.problems(&device, names::is_dns1123_label(device.text()));
        binding_conditions(result, errors);
        for toleration in result.at("tolerations").items() {
            device_toleration(&toleration, errors);
        }
        share(&result.at("shareID"), errors);
    });
    slice(&devices.at("config"), 2 * MOST_CONFIGURATIONS, errors, |config, errors| {
        errors.required_one_of(&config.at("source"), &["FromClaim", "FromClass"]);
        request_references(&config.at("requests"), requests, errors);
        configuration(config, false, errors);
    });
    let nodes = at.at("nodeSelector");
    if nodes.is_set() {
        scheduling::node_selector(&nodes, errors);
    }
}

fn device_status(at: &At<'_, '_>, allocated: &At<'_, '_>, errors: &mut Errors) {
    csi_driver_name(&at.at("driver"), errors);
    pool_name(&at.at("pool"), errors);
    let device = at.at("device");
    errors.problems(&device, names::is_dns1123_label(device.text()));
    share(&at.at("shareID"), errors);
    let fields = ["driver", "pool", "device", "shareID"];
    if !allocated.items().any(|result| fields.iter().all(|field| result.text_at(field) == at.text_at(field))) {
        let id: Vec<&str> = fields.iter().map(|field| at.text_at(field)).filter(|part| !part.is_empty()).collect();
        errors.invalid_value(at, id.join("/"), "must be an allocated device in the claim");
    }
    let list = at.at("conditions");
    if list.len() > MOST_DEVICE_CONDITIONS {
        errors.too_many(&list, MOST_DEVICE_CONDITIONS);
    }
    conditions(&list, errors);
    if at.has("data") {
        raw_object(&at.at("data"), MOST_DEVICE_DATA, errors);
    }
    let network = at.at("networkData");
    for (field, most) in [("interfaceName", MOST_INTERFACE_NAME), ("hardwareAddress", MOST_HARDWARE_ADDRESS)] {
        let text = network.at(field);
        if text.text().len() > most {
            errors.too_long(&text, most);
        }
    }
    set(
        &network.at("ips"),
        MOST_ADDRESSES,
        |address| address.text(),
        errors,
        |address, errors| {
            let Some((ip, bits)) = names::ip::parse_cidr_sloppy(address.text()) else {
                let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
                return errors.invalid_text(address, detail);
            };
            let canonical = format!("{}/{bits}", names::ip::canonical(ip));
            if address.text() != canonical {
                errors.invalid_text(address, format!("must be in canonical form ({canonical:?})"));
            }
        },
    );
}

fn share(at: &At<'_, '_>, errors: &mut Errors) {
    if !at.is_set() {
        return;
    }
    let text = at.text();
    match uuid::Uuid::parse_str(text) {
        Err(error) => errors.invalid_text(at, format!("error validating uid: {error}")),
        Ok(id) if id.hyphenated().to_string() != text => errors.invalid_text(at, "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"),
        Ok(_) => {}
    }
}

/// The name of a pool of devices: parts of a path, each a domain.
pub fn pool_name(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 253;
    if !errors.required_text(at) {
        return;
    }
    if at.text().len() > MOST {
        errors.too_long(at, MOST);
    }
    for part in at.text().split('/') {
        for problem in names::is_dns1123_subdomain(part) {
            errors.invalid_value(at, part, problem);
        }
    }
}

/// What must come true, and what must not, before a pod is bound to a device's node.
pub fn binding_conditions(at: &At<'_, '_>, errors: &mut Errors) {
    let (wanted, failures) = (at.at("bindingConditions"), at.at("bindingFailureConditions"));
    for list in [&wanted, &failures] {
        slice(list, MOST_BINDING_CONDITIONS, errors, |name, errors| errors.label_name(name));
    }
    for list in [&wanted, &failures] {
        let mut seen: HashSet<&str> = HashSet::new();
        for name in list.items() {
            if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            }
            seen.insert(name.text());
        }
    }
    for name in failures.items().filter(|name| wanted.items().any(|other| other.text() == name.text())) {
        errors.invalid_text(&name, "bindingFailureConditions must not overlap with bindingConditions");
    }
    if wanted.is_empty() && !failures.is_empty() {
        errors.invalid(&wanted, "bindingConditions are required to use bindingFailureConditions");
    }
    if failures.is_empty() && !wanted.is_empty() {
        errors.invalid(&failures, "bindingFailureConditions are required to use bindingConditions");
    }
}

/// The name of an attribute or a capacity: an identifier, of some domain or of the driver's own.
pub fn qualified(at: &At<'_, '_>, name: &str, errors: &mut Errors) {
    let identifier = |id: &str, errors: &mut Errors| {
        if id.len() > MOST_ID {
            errors.too_long(at, MOST_ID);
        }
        for problem in names::is_c_identifier(id) {
            errors.invalid_value(at, id, problem);
        }
    };
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [id] => identifier(id, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.invalid_value(at, "", "the domain must not be empty");
            } else {
                if domain.len() > 63 {
                    errors.too_long(at, 63);
                }
                for problem in names::is_dns1123_subdomain(&domain.to_lowercase()) {
                    errors.invalid_value(at, domain, problem);
                }
            }
            if id.is_empty() {
                errors.invalid_value(at, "", "the name must not be empty");
            } else {
                identifier(id, errors);
            }
        }
        _ => {}
    }
}

fn fully_qualified(at: &At<'_, '_>, errors: &mut Errors) {
    qualified(at, at.text(), errors);
    if !at.text().contains('/') {
        errors.invalid_text(at, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// DeviceTaintRules.
pub struct DeviceTaintRules;

impl Strategy for DeviceTaintRules {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn stamp(&self, rule: &mut Value, now: &dyn Fn() -> String) {
        value::set_default(rule, "spec.taint.timeAdded", now());
    }

    fn validate(&self, rule: &Value) -> Vec<FieldError> {
        taint_rule(rule, None)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        taint_rule(new, Some(old))
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let list = root.at("status.conditions");
        conditions(&list, &mut errors);
        if list.len() > MOST_DEVICE_CONDITIONS {
            errors.too_many(&list, MOST_DEVICE_CONDITIONS);
        }
        errors.into_vec()
    }
}

fn taint_rule(rule: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let root = At::root(rule);
    let selector = root.at("spec.deviceSelector");
    if selector.has("driver") {
        csi_driver_name(&selector.at("driver"), &mut errors);
    }
    if selector.has("pool") {
        pool_name(&selector.at("pool"), &mut errors);
    }
    if selector.has("device") {
        let device = selector.at("device");
        errors.problems(&device, names::is_dns1123_label(device.text()));
    }
    let before = old.map(At::root);
    let before = before.as_ref().map(|old| old.at("spec.taint"));
    device_taint(&root.at("spec.taint"), before.as_ref(), &mut errors);
    errors.into_vec()
}

/// Requests for the state of a pool, whose answer is final.
pub struct PoolStatusRequests;

impl Strategy for PoolStatusRequests {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (root, before) = (At::root(new), At::root(old));
        let status = root.at("status");
        if before.has("status") {
            errors.immutable(&status, &before.at("status"));
        } else if status.is_set() {
            conditions(&status.at("conditions"), &mut errors);
        }
        errors.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(strategy: &dyn Strategy, mut object: Value, expected: &[&str]) {
        strategy.default(&mut object);
        let found: Vec<String> = strategy.validate(&object).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{object}");
    }

    fn claim(devices: Value) -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"devices": devices}})
    }

    #[test]
    fn claims_ask_for_devices_that_can_be_meant() {
        check(&Claims, claim(json!({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]})), &[]);
        check(
            &Claims,
            claim(
                json!({"requests": [{"name": "a"}, {"name": "a", "exactly": {"allocationMode": "All", "count": 2}}]}),
            ),
            &[
                "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                "spec.devices.requests[1].exactly.deviceClassName: Required value",
                "spec.devices.requests[1].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
                "spec.devices.requests[1]: Duplicate value: \"a\"",
            ],
        );
        check(
            &Claims,
            claim(json!({
                "requests": [{"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]}],
                "constraints": [{"requests": ["a/x", "b"], "matchAttribute": "plain"}],
                "config": [{"requests": ["a"], "opaque": {"driver": "d.example.com", "parameters": []}}],
            })),
            &[
                "spec.devices.constraints[0].requests[1]: Invalid value: \"b\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                "spec.devices.constraints[0].matchAttribute: Invalid value: \"plain\": a fully qualified name must be a domain and a name separated by a slash",
                "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
            ],
        );
    }

    #[test]
    fn selectors_are_expressions_about_devices() {
        let class = |expression: &str| json!({"spec": {"selectors": [{"cel": {"expression": expression}}]}});
        check(&DeviceClasses, class("device.driver == 'd' && device.attributes['d'].size > 3"), &[]);
        check(&DeviceClasses, class("device.capacity['d'].memory.isGreaterThan(quantity('1Gi'))"), &[]);
        check(&DeviceClasses, class("device.attributes['d'].healthy"), &[]);
        check(
            &DeviceClasses,
            class("device.driver"),
            &[
                "spec.selectors[0].cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not string",
            ],
        );
        check(
            &DeviceClasses,
            class("node.x"),
            &[
                "spec.selectors[0].cel.expression: Invalid value: \"node.x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'node' (in container '')\n | node.x\n | ^",
            ],
        );
    }

    #[test]
    fn a_claim_keeps_its_spec_and_its_allocation() {
        let old = json!({"spec": {"devices": {}}, "status": {"allocation": {"devices": {"results": []}}}});
        let mut new = old.clone();
        new["spec"]["devices"] = json!({"requests": []});
        assert_eq!(Claims.validate_update(&new, &old).len(), 1);
        let mut new = old.clone();
        new["status"]["allocation"]["devices"] = json!({});
        new["status"]["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
        let errors = Claims.validate_status_update(&new, &old);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].to_string().starts_with("status.allocation: Invalid value"), "{}", errors[0]);
    }

    #[test]
    fn taints_have_keys_and_effects() {
        check(
            &DeviceTaintRules,
            json!({"spec": {"deviceSelector": {"pool": "A"}, "taint": {"key": "k", "effect": "Odd"}}}),
            &[
                "spec.deviceSelector.pool: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                "spec.taint.effect: Unsupported value: \"Odd\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
            ],
        );
    }
}
