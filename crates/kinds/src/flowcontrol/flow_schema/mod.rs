//! FlowSchemas.

pub mod columns;

use std::collections::HashSet;
use std::sync::LazyLock;

use machinery::status::FieldError;
use machinery::{Value, names, value};
use rules::flow_control::{flow_schemas, mandatory};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::keep::{keep, keep_object_meta};
use crate::strategy::{Flags, Strategy};

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
static MANDATORY_SCHEMAS: LazyLock<Vec<Value>> = LazyLock::new(|| mandatory(flow_schemas()));

pub struct FlowSchemas;

impl Strategy for FlowSchemas {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, counts_generations: true, ..Flags::USUAL }
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

pub fn status(object: &Value) -> Vec<FieldError> {
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
