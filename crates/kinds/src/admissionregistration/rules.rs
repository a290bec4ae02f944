//! Which requests webhooks and policies want to see.

use std::collections::HashSet;

use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

fn has_wildcard(list: &At<'_, '_>) -> bool {
    list.items().any(|item| item.text() == "*")
}

pub fn validate_rule(rule: &At<'_, '_>, errors: &mut Errors) {
    let operations = rule.at("operations");
    if operations.is_empty() {
        errors.required(&operations, "");
    }
    if operations.len() > 1 && has_wildcard(&operations) {
        errors.invalid(&operations, "if '*' is present, must not specify other operations");
    }
    for operation in operations.items() {
        errors.one_of(&operation, &OPERATIONS);
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let list = rule.at(field);
        if list.is_empty() {
            errors.required(&list, "");
        }
        if list.len() > 1 && has_wildcard(&list) {
            errors.invalid(&list, format!("if '*' is present, must not specify other {what}"));
        }
    }
    for version in rule.at("apiVersions").items() {
        errors.required_text(&version);
    }
    validate_resources(&rule.at("resources"), errors);
    errors.one_of_if_set(&rule.at("scope"), &["*", "Cluster", "Namespaced"]);
}

/// Resources with their subresources: what is contained in a wildcard must not be said again.
fn validate_resources(list: &At<'_, '_>, errors: &mut Errors) {
    if list.is_empty() {
        errors.required(list, "");
    }
    let (mut all_of, mut of_all): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    for item in list.items() {
        if item.text().is_empty() {
            errors.required(&item, "");
        }
        let Some((resource, subresource)) = item.text().split_once('/') else { continue };
        if all_of.contains(&resource) {
            errors.invalid(&item, format!("if '{resource}/*' is present, must not specify {}", item.text()));
        }
        if of_all.contains(&subresource) {
            errors.invalid(&item, format!("if '*/{subresource}' is present, must not specify {}", item.text()));
        }
        if subresource == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            of_all.insert(subresource);
        }
    }
    let has = |wanted: &str| list.items().any(|item| item.text() == wanted);
    if list.len() > 1 && has("*/*") {
        errors.invalid(list, "if '*/*' is present, must not specify other resources");
    }
    let whole = list.items().any(|item| !item.text().contains('/') && item.text() != "*");
    if has("*") && whole {
        errors.invalid(list, "if '*' is present, must not specify other resources without subresources");
    }
}

/// Conditions by name; `compile` looks at an expression, where that is not done elsewhere.
pub fn match_conditions(list: &At<'_, '_>, compile: impl Fn(&At<'_, '_>, &mut Errors), errors: &mut Errors) {
    const MOST: usize = 64;
    if list.len() > MOST {
        errors.too_many(list, MOST);
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for condition in list.items() {
        let expression = condition.at("expression");
        if expression.text().trim().is_empty() {
            errors.required(&expression, "");
        }
        compile(&expression, errors);
        let name = condition.at("name");
        if errors.required_text(&name) {
            errors.label_name(&name);
            if seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            }
            seen.insert(name.text());
        }
    }
}

pub fn default_match(object: &mut Value, path: &str) {
    if !value::at(object, path).is_some_and(Value::is_object) {
        return;
    }
    value::set_default(object, &format!("{path}.matchPolicy"), "Equivalent");
    value::set_default(object, &format!("{path}.namespaceSelector"), json!({}));
    value::set_default(object, &format!("{path}.objectSelector"), json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in value::list_mut(object, &format!("{path}.{list}")) {
            value::set_default(rule, "scope", "*");
        }
    }
}

pub fn match_resources(at: &At<'_, '_>, errors: &mut Errors) {
    let policy = at.at("matchPolicy");
    if policy.is_set() {
        errors.one_of(&policy, &["Equivalent", "Exact"]);
    } else {
        errors.required(&policy, "");
    }
    for field in ["namespaceSelector", "objectSelector"] {
        let selector = at.at(field);
        if selector.is_set() {
            errors.label_selector(&selector);
        } else {
            errors.required(&selector, "");
        }
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in at.at(list).items() {
            let resource_names = rule.at("resourceNames");
            for (index, name) in resource_names.items().enumerate() {
                errors.problems(&name, names::is_path_segment_name(name.text()));
                if resource_names.items().take(index).any(|known| known.value() == name.value()) {
                    errors.duplicate(&name, name.text());
                }
            }
            validate_rule(&rule, errors);
        }
    }
}

pub fn mutating_operations(rules: &At<'_, '_>, errors: &mut Errors) {
    for rule in rules.items() {
        for operation in rule.at("operations").items() {
            if !MUTATING_OPERATIONS.contains(&operation.text()) {
                errors.push(FieldError::not_supported(
                    format!("{rules}.operations"),
                    operation.text(),
                    MUTATING_OPERATIONS,
                ));
            }
        }
    }
}
