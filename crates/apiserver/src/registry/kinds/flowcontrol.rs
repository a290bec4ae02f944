//! FlowSchemas and PriorityLevelConfigurations.

use std::collections::HashSet;
use std::sync::LazyLock;

use machinery::names;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::common::{At, Errors};
use crate::bootstrap::flow_control::{flow_schemas, is_mandatory, priority_levels};
use crate::rest::{keep, keep_object_meta};

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

static MANDATORY_SCHEMAS: LazyLock<Vec<Value>> = LazyLock::new(|| mandatory(flow_schemas()));
static MANDATORY_LEVELS: LazyLock<Vec<Value>> = LazyLock::new(|| mandatory(priority_levels()));

fn mandatory(mut objects: Vec<Value>) -> Vec<Value> {
    objects.retain(is_mandatory);
    objects
}

/// FlowSchemas.
pub struct FlowSchemas;

impl Strategy for FlowSchemas {
    fn counts_generations(&self) -> bool {
        true
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
        keep(new, old, "metadata.deletionGracePeriodSeconds");
    }

    fn default(&self, schema: &mut Value) {
        if value::int(schema, "spec.matchingPrecedence").unwrap_or(0) == 0 {
            value::set(schema, "spec.matchingPrecedence", 1000);
        }
    }

    fn prepare_for_create(&self, schema: &mut Value) {
        value::set(schema, "status", json!({}));
    }

    fn validate(&self, schema: &Value) -> Vec<FieldError> {
        const HIGHEST: i64 = 10_000;
        let mut errors = Errors::new();
        let root = At::root(schema);
        let spec = root.at("spec");
        let precedence = spec.at("matchingPrecedence");
        let number = precedence.int().unwrap_or(0);
        if number <= 0 {
            errors.invalid_int(&precedence, "must be a positive value");
        }
        if number > HIGHEST {
            errors.invalid(&precedence, format!("must not be greater than {HIGHEST}"));
        }
        if number == 1 && root.text_at("metadata.name") != "exempt" {
            errors.invalid(&precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
        }
        let method = spec.at("distinguisherMethod");
        if method.is_set() {
            let (kind, known) = (method.at("type"), ["ByNamespace", "ByUser"]);
            if !known.contains(&kind.text()) {
                // Upstream shows the whole of it.
                errors.push(FieldError::not_supported(kind.to_string(), method.value().clone(), known));
            }
        }
        let level = spec.at("priorityLevelConfiguration.name");
        if level.text().is_empty() {
            errors.required(&level, "must reference a priority level");
        } else {
            errors.problems(&level, names::name_is_dns_subdomain(level.text(), false));
        }
        for rule in spec.at("rules").items() {
            validate_rule(&rule, &mut errors);
        }
        let fixed = MANDATORY_SCHEMAS.iter().find(|fixed| fixed["metadata"]["name"] == schema["metadata"]["name"]);
        if fixed.is_some_and(|fixed| fixed["spec"] != *spec.value()) {
            errors.invalid(&spec, format!("spec of '{}' must equal the fixed value", root.text_at("metadata.name")));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        status(new)
    }
}

fn status(object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let root = At::root(object);
    let mut seen: HashSet<&str> = HashSet::new();
    for condition in root.at("status.conditions").items() {
        let kind = condition.at("type");
        if seen.contains(&kind.text()) {
            errors.duplicate(&kind, kind.text());
        }
        seen.insert(kind.text());
        errors.required_text(&kind);
    }
    errors.into_vec()
}

fn validate_rule(rule: &At<'_, '_>, errors: &mut Errors) {
    let subjects = rule.at("subjects");
    if subjects.is_empty() {
        errors.required(&subjects, "subjects must contain at least one value");
    }
    for subject in subjects.items() {
        validate_subject(&subject, errors);
    }
    let (resources, paths) = (rule.at("resourceRules"), rule.at("nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        errors.required(rule, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for resource in resources.items() {
        validate_verbs(&resource.at("verbs"), errors);
        some_or_all(&resource.at("apiGroups"), "api group", "api groups", errors);
        some_or_all(&resource.at("resources"), "resource", "resources", errors);
        namespaces(&resource, errors);
    }
    for path in paths.items() {
        validate_verbs(&path.at("verbs"), errors);
        let list = path.at("nonResourceURLs");
        if list.is_empty() {
            errors.required(&list, "nonResourceURLs must contain at least one value");
        } else if has_wildcard(&list) {
            if list.len() > 1 {
                errors.invalid(&list, "if '*' is present, must not specify other non-resource URLs");
            }
        } else {
            for url in list.items() {
                validate_url(&url, errors);
            }
        }
    }
}

fn has_wildcard(list: &At<'_, '_>) -> bool {
    list.items().any(|item| item.text() == "*")
}

fn validate_verbs(list: &At<'_, '_>, errors: &mut Errors) {
    if list.is_empty() {
        errors.required(list, "verbs must contain at least one value");
    } else if has_wildcard(list) {
        if list.len() > 1 {
            errors.invalid(list, "if '*' is present, must not specify other verbs");
        }
    } else if !list.items().all(|verb| VERBS.contains(&verb.text())) {
        errors.push(FieldError::not_supported(list.to_string(), list.value().clone(), VERBS));
    }
}

fn some_or_all(list: &At<'_, '_>, one: &str, many: &str, errors: &mut Errors) {
    if list.is_empty() {
        errors.required(list, format!("resource rules must supply at least one {one}"));
    } else if list.len() > 1 && has_wildcard(list) {
        errors.invalid(list, format!("if '*' is present, must not specify other {many}"));
    }
}

fn namespaces(rule: &At<'_, '_>, errors: &mut Errors) {
    let list = rule.at("namespaces");
    if list.is_empty() && !rule.at("clusterScope").flag() {
        errors.required(&list, "resource rules that are not cluster scoped must supply at least one namespace");
    } else if has_wildcard(&list) {
        if list.len() > 1 {
            errors.invalid(&list, "if '*' is present, must not specify other namespaces");
        }
    } else {
        for namespace in list.items() {
            for problem in names::name_is_dns_label(namespace.text(), false) {
                errors.invalid(
                    &namespace,
                    format!("each member of this list must be '*' or a DNS-1123 label; {problem}"),
                );
            }
        }
    }
}

fn validate_url(at: &At<'_, '_>, errors: &mut Errors) {
    let path = at.text();
    let wildcards = path.matches('*').count();
    let detail = if path.is_empty() {
        "must not be empty"
    } else if path == "/" {
        return;
    } else if !path.starts_with('/') {
        "must start with slash"
    } else if path.contains(' ') {
        "must not contain white-space"
    } else if path.contains("//") {
        "must not contain double slash"
    } else if wildcards > 1 || (wildcards == 1 && !path.ends_with("/*")) {
        "wildcard can only do suffix matching"
    } else {
        return;
    };
    errors.invalid_text(at, detail);
}

fn validate_subject(subject: &At<'_, '_>, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.at("kind");
    let Some((name, field)) = KINDS.iter().find(|(name, _)| *name == kind.text()) else {
        return errors.not_supported(&kind, &["Group", "ServiceAccount", "User"]);
    };
    let own = subject.at(field);
    if own.is_set() {
        let given = own.at("name");
        errors.required_text(&given);
        if *field == "serviceAccount" {
            if !matches!(given.text(), "" | "*") {
                errors.problems(&given, names::name_is_dns_subdomain(given.text(), false));
            }
            let namespace = own.at("namespace");
            if namespace.text().is_empty() {
                errors.required(&namespace, "must specify namespace for service account");
            } else {
                errors.problems(&namespace, names::name_is_dns_label(namespace.text(), false));
            }
        }
    } else {
        errors.required(&own, format!("{field} is required when subject kind is '{name}'"));
    }
    for (other, foreign) in KINDS.iter().filter(|(_, foreign)| foreign != field) {
        errors.forbidden_if_set(
            &subject.at(foreign),
            &format!("{foreign} is forbidden when subject kind is not '{other}'"),
        );
    }
}

/// PriorityLevelConfigurations.
pub struct PriorityLevels;

impl Strategy for PriorityLevels {
    fn counts_generations(&self) -> bool {
        true
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
        keep(new, old, "metadata.deletionGracePeriodSeconds");
    }

    fn default(&self, level: &mut Value) {
        if value::at(level, "spec.exempt").is_some_and(Value::is_object) {
            value::set_default(level, "spec.exempt.nominalConcurrencyShares", 0);
            value::set_default(level, "spec.exempt.lendablePercent", 0);
        }
        if value::at(level, "spec.limited").is_some_and(Value::is_object) {
            value::set_default(level, "spec.limited.nominalConcurrencyShares", 30);
            value::set_default(level, "spec.limited.lendablePercent", 0);
        }
        if let Some(queuing) =
            value::at_mut(level, "spec.limited.limitResponse.queuing").filter(|queuing| queuing.is_object())
        {
            for (field, filling) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                if value::int(queuing, field).unwrap_or(0) == 0 {
                    value::set(queuing, field, filling);
                }
            }
        }
    }

    fn prepare_for_create(&self, level: &mut Value) {
        value::set(level, "status", json!({}));
    }

    fn validate(&self, level: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(level);
        let spec = root.at("spec");
        let kind = spec.at("type");
        if (root.text_at("metadata.name") == "exempt") != (kind.text() == "Exempt") {
            errors.invalid_text(&kind, "must be 'Exempt' if and only if `name` is 'exempt'");
        }
        let (exempt, limited) = (spec.at("exempt"), spec.at("limited"));
        match kind.text() {
            "Exempt" => {
                errors.forbidden_if_set(&limited, "");
                shares(&exempt, &mut errors);
            }
            "Limited" => {
                errors.forbidden_if_set(&exempt, "");
                if limited.is_set() {
                    validate_limited(&limited, &mut errors);
                } else {
                    errors.required(&limited, "");
                }
            }
            _ => {
                if !kind.text().is_empty() {
                    errors.not_supported(&kind, &["Exempt", "Limited"]);
                }
                errors.forbidden_if_set(&exempt, "");
                errors.forbidden_if_set(&limited, "");
            }
        }
        mandatory_level(&root, &spec, &mut errors);
        // Upstream says last what the schema alone can say.
        errors.required_text(&kind);
        if kind.text() == "Limited" && limited.is_set() {
            errors.required_text(&limited.at("limitResponse.type"));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        status(new)
    }
}

/// What is mandatory stays as it is, except how much of it the level for everything exempt lends.
fn mandatory_level(root: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    let name = root.text_at("metadata.name");
    let Some(fixed) = MANDATORY_LEVELS.iter().find(|fixed| fixed["metadata"]["name"] == name) else { return };
    let mut given = spec.value().clone();
    let mut but = "";
    if name == "exempt" {
        given["exempt"] = fixed["spec"]["exempt"].clone();
        but = " except the 'spec.exempt' field";
    }
    if given != fixed["spec"] {
        errors.invalid(spec, format!("spec of '{name}'{but} must equal the fixed value"));
    }
}

fn shares(at: &At<'_, '_>, errors: &mut Errors) {
    let nominal = at.at("nominalConcurrencyShares");
    if nominal.int().is_some_and(|shares| shares < 0) {
        errors.invalid(&nominal, "must be a non-negative integer");
    }
    let lendable = at.at("lendablePercent");
    if lendable.int().is_some_and(|percent| !(0..=100).contains(&percent)) {
        errors.invalid(&lendable, "must be between 0 and 100, inclusive");
    }
}

fn validate_limited(at: &At<'_, '_>, errors: &mut Errors) {
    shares(at, errors);
    let response = at.at("limitResponse");
    let queuing = response.at("queuing");
    match response.text_at("type") {
        "Reject" => errors.forbidden_if_set(&queuing, ""),
        "Queue" if !queuing.is_set() => errors.required(&queuing, ""),
        "Queue" => validate_queuing(&queuing, errors),
        _ => {
            let kind = response.at("type");
            if !kind.text().is_empty() {
                errors.not_supported(&kind, &["Queue", "Reject"]);
            }
            errors.forbidden_if_set(&queuing, "");
        }
    }
    let borrowing = at.at("borrowingLimitPercent");
    if borrowing.int().is_some_and(|percent| percent < 0) {
        errors.invalid(&borrowing, "if specified, must be a non-negative integer");
    }
}

fn validate_queuing(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST_QUEUES: i64 = 10_000_000;
    const MOST_BITS: u32 = 60;
    let (length, queues, hand) = (at.at("queueLengthLimit"), at.at("queues"), at.at("handSize"));
    if length.int().unwrap_or(0) <= 0 {
        errors.invalid_int(&length, "must be positive");
    }
    let decks = queues.int().unwrap_or(0);
    if decks <= 0 {
        errors.invalid_int(&queues, "must be positive");
    } else if decks > MOST_QUEUES {
        errors.invalid(&queues, format!("must not be greater than {MOST_QUEUES}"));
    }
    let cards = hand.int().unwrap_or(0);
    if cards <= 0 {
        errors.invalid_int(&hand, "must be positive");
    } else if cards > decks {
        errors.invalid(&hand, format!("should not be greater than queues ({decks})"));
    } else if entropy(decks, cards) > MOST_BITS {
        errors.invalid(
            &hand,
            format!(
                "required entropy bits of deckSize {decks} and handSize {cards} should not be greater than {MOST_BITS}"
            ),
        );
    }
}

/// How many bits it takes to deal a hand from a deck.
fn entropy(deck: i64, hand: i64) -> u32 {
    let bits: f64 = (0..hand).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(strategy: &dyn Strategy, object: &Value, expected: &[&str]) {
        let found: Vec<String> =
            strategy.validate(object).iter().map(|error| format!("{}: {}", error.path, error.detail)).collect();
        assert_eq!(found, expected, "{object}");
    }

    #[test]
    fn what_is_mandatory_stays_as_it_is() {
        let named = |objects: Vec<Value>, name: &str| {
            objects.into_iter().find(|object| object["metadata"]["name"] == name).expect("is mandatory")
        };
        let mut schema = named(flow_schemas(), "catch-all");
        check(&FlowSchemas, &schema, &[]);
        schema["spec"]["matchingPrecedence"] = json!(9000);
        check(&FlowSchemas, &schema, &["spec: spec of 'catch-all' must equal the fixed value"]);
        let mut level = named(priority_levels(), "catch-all");
        check(&PriorityLevels, &level, &[]);
        level["spec"]["limited"]["nominalConcurrencyShares"] = json!(6);
        check(&PriorityLevels, &level, &["spec: spec of 'catch-all' must equal the fixed value"]);
        // How much is lent is for the administrator to say.
        let mut exempt = named(priority_levels(), "exempt");
        exempt["spec"]["exempt"]["lendablePercent"] = json!(50);
        check(&PriorityLevels, &exempt, &[]);
    }
}
