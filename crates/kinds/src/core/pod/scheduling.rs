//! Where a pod may go: affinity, tolerations, spreading.

use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Affinity to nodes and to pods, and the opposite.
pub fn affinity(at: &At<'_, '_>, errors: &mut Errors) {
    let nodes = at.at("nodeAffinity");
    let required = nodes.at(REQUIRED);
    if required.is_set() {
        node_selector(&required, errors);
    }
    for term in nodes.at(PREFERRED).items() {
        weight(&term.at("weight"), errors);
        node_selector_term(&term.at("preference"), true, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = at.at(kind);
        for term in pods.at(REQUIRED).items() {
            pod_term(&term, errors);
        }
        for term in pods.at(PREFERRED).items() {
            weight(&term.at("weight"), errors);
            pod_term(&term.at("podAffinityTerm"), errors);
        }
    }
}

fn weight(at: &At<'_, '_>, errors: &mut Errors) {
    if !(1..=100).contains(&at.int().unwrap_or(0)) {
        errors.invalid_int(at, "must be in the range 1-100");
    }
}

/// A choice of nodes: any of its terms.
pub fn node_selector(at: &At<'_, '_>, errors: &mut Errors) {
    let terms = at.at("nodeSelectorTerms");
    if terms.is_empty() {
        return errors.required(&terms, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_selector_term(&term, false, errors);
    }
}

/// A term of a choice of nodes: all of its requirements.
pub fn node_selector_term(at: &At<'_, '_>, any_value: bool, errors: &mut Errors) {
    for requirement in at.at("matchExpressions").items() {
        let values = requirement.at("values");
        match requirement.text_at("operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "Gt" | "Lt" if values.len() != 1 => {
                errors.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => errors.invalid_text(&requirement.at("operator"), "not a valid selector operator"),
        }
        errors.label_name(&requirement.at("key"));
        if !any_value {
            for value in values.items() {
                errors.problems(&value, names::is_label_value(value.text()));
            }
        }
    }
    for requirement in at.at("matchFields").items() {
        let values = requirement.at("values");
        match requirement.text_at("operator") {
            "In" | "NotIn" if values.len() != 1 => {
                errors.required(
                    &values,
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                );
            }
            "In" | "NotIn" => {}
            _ => errors.invalid_text(&requirement.at("operator"), "not a valid selector operator"),
        }
        if requirement.text_at("key") != "metadata.name" {
            errors.invalid_text(&requirement.at("key"), "not a valid field selector key");
            continue;
        }
        for value in values.items() {
            errors.problems(&value, names::name_is_dns_subdomain(value.text(), false));
        }
    }
}

fn pod_term(at: &At<'_, '_>, errors: &mut Errors) {
    errors.label_selector(&at.at("labelSelector"));
    errors.label_selector(&at.at("namespaceSelector"));
    let namespaces = at.at("namespaces");
    for namespace in namespaces.items() {
        for problem in names::name_is_dns_label(namespace.text(), false) {
            errors.invalid_value(&at.named("namespace", "namespaces"), namespace.text(), problem);
        }
    }
    label_keys(at, errors);
    let key = at.at("topologyKey");
    if key.text().is_empty() {
        errors.required(&key, "can not be empty");
    }
    errors.label_name(&key);
}

/// Keys whose values are the pod's own.
fn label_keys(at: &At<'_, '_>, errors: &mut Errors) {
    let selector = at.at("labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = at.at(field);
        if keys.is_empty() {
            continue;
        }
        if !selector.is_set() {
            errors.forbidden(&keys, "must not be specified when labelSelector is not set");
            continue;
        }
        for key in keys.items() {
            errors.label_name(&key);
        }
    }
    let match_keys = at.at("matchLabelKeys");
    let mut known: Vec<&str> =
        selector.at("matchLabels").value().as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    for expression in selector.at("matchExpressions").items() {
        let key = expression.text_at("key");
        // Of a key that is given twice the last one is named.
        let position = match_keys.items().enumerate().filter(|(_, candidate)| candidate.text() == key).last();
        let position = position.map(|(position, _)| position);
        if let Some(position) = position.filter(|_| known.contains(&key)) {
            errors.invalid_value(&at.index(position), key, "exists in both matchLabelKeys and labelSelector");
        }
        known.push(key);
    }
    let mismatch = at.at("mismatchLabelKeys");
    for key in match_keys.items() {
        if mismatch.items().any(|other| other.text() == key.text()) {
            errors.invalid(&key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

pub fn spread(list: &At<'_, '_>, errors: &mut Errors) {
    for (index, constraint) in list.items().enumerate() {
        errors.positive(&constraint.at("maxSkew"));
        let key = constraint.at("topologyKey");
        if key.text().is_empty() {
            errors.required(&key, "can not be empty");
        }
        let action = constraint.at("whenUnsatisfiable");
        errors.one_of(&action, &["DoNotSchedule", "ScheduleAnyway"]);
        let same = |other: At<'_, '_>| {
            other.text_at("topologyKey") == key.text() && other.text_at("whenUnsatisfiable") == action.text()
        };
        if list.items().skip(index + 1).any(same) {
            let shown = format!("{{{}, {}}}", key.text(), action.text());
            errors.duplicate(&constraint.named("{topologyKey, whenUnsatisfiable}", "topologyKey"), shown);
        }
        let least = constraint.at("minDomains");
        if least.is_set() {
            errors.positive(&least);
            if action.text() != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.text());
                errors.invalid(&least, detail);
            }
        }
        errors.one_of_if_set(&constraint.at("nodeAffinityPolicy"), &["Honor", "Ignore"]);
        errors.one_of_if_set(&constraint.at("nodeTaintsPolicy"), &["Honor", "Ignore"]);
        label_keys(&constraint, errors);
        errors.label_selector(&constraint.at("labelSelector"));
    }
}

/// The taints that a pod tolerates.
pub fn tolerations(list: &At<'_, '_>, errors: &mut Errors) {
    for toleration in list.items() {
        let (key, operator, effect) = (toleration.at("key"), toleration.at("operator"), toleration.at("effect"));
        let value = toleration.text_at("value");
        if !key.text().is_empty() {
            errors.label_name(&key);
        } else if operator.text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid_text(&operator, detail);
        }
        if toleration.has("tolerationSeconds") && effect.text() != "NoExecute" {
            errors.invalid_text(&effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "Equal" | "" => {
                let problems = names::is_label_value(value);
                if !problems.is_empty() {
                    errors.invalid_value(&operator, value, problems.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid_value(&operator, value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => errors.not_supported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => errors.not_supported(&operator, &["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            taint_effect(&effect, errors);
        }
    }
}

/// What a taint does.
pub fn taint_effect(at: &At<'_, '_>, errors: &mut Errors) {
    errors.one_of(at, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
}

/// Writes what the label keys of terms and constraints mean into their selectors, once the pod's labels are known.
pub fn apply_label_keys(pod: &mut Value) {
    let labels = value::at(pod, "metadata.labels").cloned().unwrap_or(Value::Null);
    for kind in ["podAffinity", "podAntiAffinity"] {
        for term in value::list_mut(pod, &format!("spec.affinity.{kind}.{REQUIRED}")) {
            apply(term, &labels);
        }
        for term in value::list_mut(pod, &format!("spec.affinity.{kind}.{PREFERRED}")) {
            if let Some(term) = value::at_mut(term, "podAffinityTerm") {
                apply(term, &labels);
            }
        }
    }
    for constraint in value::list_mut(pod, "spec.topologySpreadConstraints") {
        apply(constraint, &labels);
    }
}

fn apply(term: &mut Value, labels: &Value) {
    if !term.get("labelSelector").is_some_and(Value::is_object) {
        return;
    }
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys: Vec<String> =
            value::list(term, field).iter().filter_map(|key| key.as_str().map(str::to_owned)).collect();
        for key in keys {
            let Some(label) = labels.get(&key) else { continue };
            let mut expressions = value::list(term, "labelSelector.matchExpressions").to_vec();
            expressions.push(json!({"key": key, "operator": operator, "values": [label]}));
            value::set(term, "labelSelector.matchExpressions", expressions);
        }
    }
}
