//! ResourceClaims: devices that are asked for.

pub mod columns;
pub mod status;

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::lists::{set, slice};
use crate::checks::{At, Errors};
use crate::resource::devices::{EFFECTS, MOST_CONFIGURATIONS, configuration, fully_qualified, selectors};
use crate::resource::resource_claim::status::claim_status;
use crate::strategy::{Flags, Strategy};

pub const MOST_REQUESTS: usize = 32;
const MOST_CHOICES: usize = 8;
const MOST_CONSTRAINTS: usize = 32;

const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

pub struct Claims;

impl Strategy for Claims {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, ..Flags::USUAL }
    }

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

/// Attributes that an expression derives are behind a gate that is off.
pub fn drop_disabled(object: &mut Value, spec: &str) {
    for request in value::list_mut(object, &format!("{spec}.devices.requests")) {
        value::remove(request, "exactly.derivedAttributes");
        for choice in value::list_mut(request, "firstAvailable") {
            value::remove(choice, "derivedAttributes");
        }
    }
}

/// What a request leaves out: one device, and tolerations of equal values.
pub fn fill_requests(object: &mut Value, spec: &str) {
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

pub fn claim_spec(spec: &At<'_, '_>, errors: &mut Errors) {
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

pub fn device_toleration(at: &At<'_, '_>, errors: &mut Errors) {
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

pub fn request_references(list: &At<'_, '_>, requests: &At<'_, '_>, errors: &mut Errors) {
    set(list, MOST_REQUESTS, |name| name.text(), errors, |name, errors| request_reference(name, requests, errors));
}

/// The name of a request, or of one of the choices it leaves.
pub fn request_reference(at: &At<'_, '_>, requests: &At<'_, '_>, errors: &mut Errors) {
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
