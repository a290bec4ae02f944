//! What is wrong with the expressions of a policy, for each kind that it is about.

use std::collections::BTreeSet;

use cel::policy::{Uses, compose, declarations};
use cel::{Declarations, Program, Type};
use k8s_openapi::api::admissionregistration::v1::{
    ExpressionWarning, NamedRuleWithOperations, ValidatingAdmissionPolicy,
};

use super::kinds::Kinds;

/// Kinds that are checked of one policy at most.
const MAX_KINDS: usize = 10;

/// Group, version and kind.
type Gvk = (String, String, String);

/// What cannot be right in a policy that nobody has checked as it is now; `None` if somebody has.
pub(super) fn plan(policy: &ValidatingAdmissionPolicy, known: &Kinds) -> Option<Vec<ExpressionWarning>> {
    is_unseen(policy).then(|| check(policy, known))
}

fn is_unseen(policy: &ValidatingAdmissionPolicy) -> bool {
    let seen = policy.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
    policy.metadata.generation.unwrap_or(0) > seen
}

/// What cannot be right, by field.
fn check(policy: &ValidatingAdmissionPolicy, known: &Kinds) -> Vec<ExpressionWarning> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    let environments = environments(policy, known);
    let mut warnings = Vec::new();
    for (index, validation) in spec.validations.iter().flatten().enumerate() {
        let message = validation.message_expression.as_deref().filter(|source| !source.is_empty());
        for (field, source) in [("expression", Some(&*validation.expression)), ("messageExpression", message)] {
            let Some(source) = source else { continue };
            let problems: Vec<String> = environments
                .iter()
                .filter_map(|(gvk, declarations)| Some((gvk, Program::compile(source, declarations).err()?)))
                .map(|(gvk, why)| format!("{}: {why}\n", shown(gvk)))
                .collect();
            if !problems.is_empty() {
                let field_ref = format!("spec.validations[{index}].{field}");
                warnings.push(ExpressionWarning { field_ref, warning: problems.join("\n") });
            }
        }
    }
    warnings
}

/// What expressions may use, for each kind that they are about and whose type is known.
fn environments(policy: &ValidatingAdmissionPolicy, known: &Kinds) -> Vec<(Gvk, Declarations)> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    let params = spec.param_kind.as_ref().map(|param| {
        let (api_version, kind) = (param.api_version.as_deref().unwrap_or(""), param.kind.as_deref().unwrap_or(""));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        known.type_of(group, version, kind).unwrap_or(Type::Dyn)
    });
    let rules = spec.match_constraints.iter().flat_map(|constraints| constraints.resource_rules.iter().flatten());
    let mut environments = Vec::new();
    for gvk in kinds(rules, known) {
        let Some(object) = known.type_of(&gvk.0, &gvk.1, &gvk.2) else { continue };
        let mut declared = declarations(Uses { params: params.is_some(), authorizer: true });
        declared.escaped_fields = true;
        declared.add("object", object.clone());
        declared.add("oldObject", object);
        if let Some(params) = &params {
            declared.add("params", params.clone());
        }
        let variables = spec.variables.iter().flatten();
        let named = variables.map(|variable| (&*variable.name, &*variable.expression));
        // A variable that cannot be right counts as unknown; whoever uses it is checked for the rest.
        compose(named, &mut declared, Program::compile);
        environments.push((gvk, declared));
    }
    environments
}

/// The kinds that rules name, sorted. Rules with a wildcard name none, and subresources are no kinds of their own.
fn kinds<'a>(rules: impl Iterator<Item = &'a NamedRuleWithOperations>, known: &Kinds) -> BTreeSet<Gvk> {
    let mut kinds = BTreeSet::new();
    for rule in rules {
        let plain = |list: &Option<Vec<String>>| {
            let mut list = list.clone().unwrap_or_default();
            list.sort();
            if list.iter().any(|item| item.contains('*')) { Vec::new() } else { list }
        };
        let (groups, versions) = (plain(&rule.api_groups), plain(&rule.api_versions));
        let mut resources: Vec<&String> =
            rule.resources.iter().flatten().filter(|name| !name.contains(['*', '/'])).collect();
        resources.sort();
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    let Some(kind) = known.kind(group, version, resource) else { continue };
                    kinds.insert((group.clone(), version.clone(), kind));
                    count += 1;
                    if count == MAX_KINDS {
                        return kinds;
                    }
                }
            }
        }
    }
    kinds
}

fn shown((group, version, kind): &Gvk) -> String {
    format!("{}, Kind={kind}", facts::api_version(group, version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(changes: Value) -> ValidatingAdmissionPolicy {
        let mut spec = json!({"matchConstraints": {"resourceRules": [
            {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments", "deployments/scale"], "operations": ["*"]},
        ]}});
        for (key, change) in changes.as_object().expect("changes") {
            spec[key] = change.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "p", "generation": 2}, "spec": spec})).expect("a policy")
    }

    fn found(changes: Value) -> Vec<(String, String)> {
        let definition = json!({"metadata": {}, "spec": {"group": "harbour.example.com", "scope": "Namespaced", "names": {"plural": "ships", "kind": "Ship"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"crew": {"type": "integer"}, "since": {"type": "string", "format": "date-time"}}}}}}}]}});
        let known =
            Kinds { definitions: vec![std::sync::Arc::new(serde_json::from_value(definition).expect("a definition"))] };
        check(&policy(changes), &known).into_iter().map(|warning| (warning.field_ref, warning.warning)).collect()
    }

    #[test]
    fn what_is_right_is_not_mentioned() {
        let right = json!([
            {"expression": "object.spec.replicas <= 5", "messageExpression": "'has ' + string(object.spec.replicas)"},
            {"expression": "oldObject == null || object.metadata.name == oldObject.metadata.name"},
            {"expression": "authorizer.requestResource.check('create').allowed() && request.operation == 'CREATE'"},
            {"expression": "!has(namespaceObject.metadata.labels) || namespaceObject.metadata.labels['x'] == 'y'"},
        ]);
        assert_eq!(found(json!({"validations": right})), []);
    }

    #[test]
    fn what_is_wrong_is_said_in_upstreams_words() {
        let wrong = json!([{"expression": "object.replicas > 1 && object.spec.replicas > 1"},
            {"expression": "true", "messageExpression": "object.metadata.nam"}]);
        assert_eq!(
            found(json!({"validations": wrong})),
            [
                (
                    "spec.validations[0].expression".to_owned(),
                    "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n \
                     | object.replicas > 1 && object.spec.replicas > 1\n | ......^\n"
                        .to_owned()
                ),
                (
                    "spec.validations[1].messageExpression".to_owned(),
                    "apps/v1, Kind=Deployment: ERROR: <input>:1:16: undefined field 'nam'\n \
                     | object.metadata.nam\n | ...............^\n"
                        .to_owned()
                ),
            ]
        );
    }

    #[test]
    fn every_kind_is_checked_and_wildcards_are_not() {
        let rule = |resources: Value| json!({"resourceRules": [{"apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": resources, "operations": ["*"]}]});
        let validations = json!([{"expression": "object.spec.replicas > 1"}]);
        let of = |resources: Value| found(json!({"matchConstraints": rule(resources), "validations": validations}));
        let both = of(json!(["pods", "replicasets"]));
        assert_eq!(both.len(), 1);
        assert_eq!(
            both[0].1,
            "v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n"
        );
        assert_eq!(of(json!(["*"])), []);
        assert_eq!(of(json!(["pods/status"])), []);
        let all = json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["*"]}]});
        assert_eq!(found(json!({"matchConstraints": all, "validations": validations})), []);
    }

    #[test]
    fn params_and_variables_have_types_too() {
        let changes = |source: &str| {
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "variables": [{"name": "most", "expression": "int(params.data['most'])"}, {"name": "broken", "expression": "object.x"}],
                "validations": [{"expression": source}]})
        };
        assert_eq!(found(changes("object.spec.replicas <= variables.most && variables.broken == 1")), []);
        let wrong = found(changes("params.dat == variables.most"));
        assert!(wrong[0].1.contains("undefined field 'dat'"), "{wrong:?}");
        let none = found(changes("variables.none == 1"));
        assert!(none[0].1.contains("undefined field 'none'"), "{none:?}");
    }

    #[test]
    fn custom_kinds_have_types_as_objects_and_as_params() {
        let rule = json!({"resourceRules": [{"apiGroups": ["harbour.example.com"], "apiVersions": ["v1"], "resources": ["ships"], "operations": ["*"]}]});
        let of = |source: &str| {
            let params = json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship"});
            found(json!({"matchConstraints": rule, "paramKind": params, "validations": [{"expression": source}]}))
        };
        assert_eq!(of("object.spec.crew <= params.spec.crew && object.metadata.labels['a'] == 'b'"), []);
        assert_eq!(of("object.spec.since > timestamp('2020-01-01T00:00:00Z')"), []);
        let wrong = of("object.spec.crew == 'many'");
        assert_eq!(
            wrong[0].1,
            "harbour.example.com/v1, Kind=Ship: ERROR: <input>:1:18: found no matching overload for '_==_' applied to '(int, string)'\n | object.spec.crew == 'many'\n | .................^\n"
        );
        let wrong = of("params.spec.mast == 1");
        assert!(wrong[0].1.contains("undefined field 'mast'"), "{wrong:?}");
    }

    #[test]
    fn a_policy_is_checked_once_per_change() {
        let mut policy = policy(json!({}));
        assert!(is_unseen(&policy));
        policy.status = serde_json::from_value(json!({"observedGeneration": 2})).expect("a status");
        assert!(!is_unseen(&policy));
    }
}
