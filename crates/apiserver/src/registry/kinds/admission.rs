//! Webhooks and policies of admission.
//!
//! What the expressions of policies are is checked in [`expressions`]; what is around them here.

use std::collections::HashSet;

use machinery::names;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::common::{At, Errors};
use super::expressions;
use super::policy::conditions;
use crate::rest::keep_object_meta;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

/// Configurations of webhooks.
pub struct Webhooks {
    /// Whether they may change what they see.
    pub mutating: bool,
}

impl Strategy for Webhooks {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, configuration: &mut Value) {
        for webhook in value::list_mut(configuration, "webhooks") {
            value::set_default(webhook, "failurePolicy", "Fail");
            value::set_default(webhook, "matchPolicy", "Equivalent");
            value::set_default(webhook, "namespaceSelector", json!({}));
            value::set_default(webhook, "objectSelector", json!({}));
            value::set_default(webhook, "timeoutSeconds", 10);
            if self.mutating {
                value::set_default(webhook, "reinvocationPolicy", "Never");
            }
            for rule in value::list_mut(webhook, "rules") {
                value::set_default(rule, "scope", "*");
            }
            if value::at(webhook, "clientConfig.service").is_some_and(Value::is_object) {
                value::set_default(webhook, "clientConfig.service.port", 443);
            }
        }
    }

    fn validate(&self, configuration: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(configuration);
        let mut seen: HashSet<&str> = HashSet::new();
        for webhook in root.at("webhooks").items() {
            self.validate_webhook(&webhook, &mut errors);
            review_versions(&webhook.at("admissionReviewVersions"), "must specify one of v1, v1beta1", &mut errors);
            let name = webhook.at("name");
            if !name.text().is_empty() && seen.contains(&name.text()) {
                errors.duplicate(&name, name.text());
            }
            seen.insert(name.text());
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

impl Webhooks {
    fn validate_webhook(&self, webhook: &At<'_, '_>, errors: &mut Errors) {
        qualified_name(&webhook.at("name"), errors);
        for rule in webhook.at("rules").items() {
            validate_rule(&rule, errors);
        }
        errors.one_of_if_set(&webhook.at("failurePolicy"), &["Fail", "Ignore"]);
        errors.one_of_if_set(&webhook.at("matchPolicy"), &["Equivalent", "Exact"]);
        let effects = webhook.at("sideEffects");
        if effects.is_set() {
            errors.one_of(&effects, &["None", "NoneOnDryRun"]);
        } else {
            errors.required(&effects, "must specify one of None, NoneOnDryRun");
        }
        let timeout = webhook.at("timeoutSeconds");
        if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
            errors.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
        }
        errors.label_selector(&webhook.at("namespaceSelector"));
        errors.label_selector(&webhook.at("objectSelector"));
        if self.mutating {
            errors.one_of_if_set(&webhook.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
        }
        client_config(&webhook.at("clientConfig"), errors);
        match_conditions(&webhook.at("matchConditions"), expressions::condition, errors);
    }
}

/// A domain name with at least three parts.
fn qualified_name(at: &At<'_, '_>, errors: &mut Errors) {
    if !errors.required_text(at) {
        return;
    }
    let problems = names::is_dns1123_subdomain(at.text());
    if !problems.is_empty() {
        errors.invalid(at, problems.join(","));
    } else if at.text().split('.').count() < 3 {
        errors.invalid(at, "should be a domain with at least three segments separated by dots");
    }
}

/// The versions of the reviews that a webhook understands.
pub fn review_versions(list: &At<'_, '_>, needed: &str, errors: &mut Errors) {
    if list.is_empty() {
        return errors.required(list, needed);
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for version in list.items() {
        if seen.contains(&version.text()) {
            errors.invalid(&version, "duplicate version");
            continue;
        }
        seen.insert(version.text());
        errors.problems(&version, names::is_dns1035_label(version.text()));
    }
    if !seen.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        errors.invalid(list, "must include at least one of v1, v1beta1");
    }
}

/// How a webhook is reached: by a URL or by a service.
pub fn client_config(at: &At<'_, '_>, errors: &mut Errors) {
    let (url, service) = (at.at("url"), at.at("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => webhook_url(&url, errors),
        (false, true) => webhook_service(&service, errors),
        _ => errors.required(at, "exactly one of url or service is required"),
    }
}

fn webhook_url(at: &At<'_, '_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = at.text().split_once("://").unwrap_or(("", at.text()));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(user, host)| (user, host));
    if scheme != "https" {
        errors.invalid_value(at, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid_value(at, host, format!("host must be specified{FORM}"));
    }
    for (part, detail) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.invalid_value(at, part, detail);
        }
    }
}

/// Upstream takes the name for the namespace and the namespace for the name; so do its errors.
fn webhook_service(at: &At<'_, '_>, errors: &mut Errors) {
    if at.text_at("namespace").is_empty() {
        errors.required(&at.at("name"), "");
    }
    if at.text_at("name").is_empty() {
        errors.required(&at.at("namespace"), "");
    }
    let port = at.at("port");
    let problems = names::is_valid_port_num(port.int().unwrap_or(443));
    if !problems.is_empty() {
        errors.invalid_int(&port, format!("port is not valid: {}", problems.join(", ")));
    }
    let path = at.at("path");
    match path.text() {
        "" | "/" => {}
        "//" => errors.invalid(&path, "segment[0] may not be empty"),
        text => {
            if !text.starts_with('/') {
                errors.invalid(&path, "must start with a '/'");
            }
            let rest = text.get(1..).unwrap_or_default();
            for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
                if step.is_empty() {
                    errors.invalid(&path, format!("segment[{index}] may not be empty"));
                    continue;
                }
                for problem in names::is_dns1123_subdomain(step) {
                    errors.invalid(&path, format!("segment[{index}]: {problem}"));
                }
            }
        }
    }
}

fn has_wildcard(list: &At<'_, '_>) -> bool {
    list.items().any(|item| item.text() == "*")
}

fn validate_rule(rule: &At<'_, '_>, errors: &mut Errors) {
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
fn match_conditions(list: &At<'_, '_>, compile: impl Fn(&At<'_, '_>, &mut Errors), errors: &mut Errors) {
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

/// Policies in expressions.
pub struct Policies {
    /// Whether they change what they see.
    pub mutating: bool,
}

impl Strategy for Policies {
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        for warning in root.at("status.typeChecking.expressionWarnings").items() {
            errors.required_text(&warning.at("warning"));
            errors.required_text(&warning.at("fieldRef"));
        }
        conditions(&root.at("status.conditions"), &mut errors);
        errors.into_vec()
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, policy: &mut Value) {
        value::set_default(policy, "spec.failurePolicy", "Fail");
        default_match(policy, "spec.matchConstraints");
    }

    fn prepare_for_create(&self, policy: &mut Value) {
        if !self.mutating {
            value::set(policy, "status", json!({}));
        }
    }

    fn validate(&self, policy: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(policy);
        let spec = root.at("spec");
        let failure = spec.at("failurePolicy");
        match failure.is_set() {
            true => errors.one_of(&failure, &["Fail", "Ignore"]),
            false => errors.required(&failure, ""),
        }
        if spec.has("paramKind") {
            param_kind(&spec.at("paramKind"), &mut errors);
        }
        let constraints = spec.at("matchConstraints");
        if constraints.is_set() {
            match_resources(&constraints, &mut errors);
            let rules = constraints.at("resourceRules");
            if rules.is_empty() {
                errors.required(&rules, "");
            }
            if self.mutating {
                mutating_operations(&rules, &mut errors);
            }
        } else {
            errors.required(&constraints, "");
        }
        match_conditions(&spec.at("matchConditions"), |_, _| {}, &mut errors);
        for variable in spec.at("variables").items() {
            let name = variable.at("name");
            if name.text().trim().is_empty() {
                errors.required(&name, "name is not specified");
            } else if !is_identifier(name.text()) {
                errors.invalid(&name, "must be a valid CEL identifier");
            }
            if variable.text_at("expression").trim().is_empty() {
                errors.required(&variable.at("expression"), "expression is not specified");
            }
        }
        if self.mutating {
            mutations(&spec, &mut errors);
        } else {
            validations(&root, &spec, &mut errors);
        }
        expressions::policy(policy, &spec, self.mutating, &mut errors);
        if self.mutating {
            errors.required_one_of(&spec.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

fn default_match(object: &mut Value, path: &str) {
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

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !cel::is_reserved(name)
}

fn param_kind(at: &At<'_, '_>, errors: &mut Errors) {
    let (version, kind) = (at.at("apiVersion"), at.at("kind"));
    if errors.required_text(&version) {
        let (group, name) = version.text().rsplit_once('/').unwrap_or(("", version.text()));
        if group.contains('/') {
            errors.invalid(&version, format!("unexpected GroupVersion string: {}", version.text()));
        } else {
            let problems = names::is_dns1123_subdomain(group);
            if !group.is_empty() && !problems.is_empty() {
                errors.invalid_value(&version, group, problems.join(","));
            }
            let problems = names::is_dns1035_label(name);
            if name.is_empty() {
                errors.invalid(&version, "version must be specified");
            } else if !problems.is_empty() {
                errors.invalid_value(&version, name, problems.join(","));
            }
        }
    }
    if errors.required_text(&kind) {
        let problems = names::is_dns1035_label(&kind.text().to_lowercase());
        if !problems.is_empty() {
            errors.invalid(&kind, format!("may have mixed case, but should otherwise match: {}", problems.join(",")));
        }
    }
}

fn match_resources(at: &At<'_, '_>, errors: &mut Errors) {
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

fn mutating_operations(rules: &At<'_, '_>, errors: &mut Errors) {
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

fn mutations(spec: &At<'_, '_>, errors: &mut Errors) {
    let list = spec.at("mutations");
    if list.is_empty() {
        errors.required(&list, "mutations must contain at least one item");
    }
    for mutation in list.items() {
        let (kind, patch, apply) =
            (mutation.at("patchType"), mutation.at("jsonPatch"), mutation.at("applyConfiguration"));
        let (own, other, shown) = match kind.text() {
            "JSONPatch" => (&patch, &apply, "{applyConfiguration}"),
            "ApplyConfiguration" => (&apply, &patch, "{jsonPatch}"),
            _ => {
                errors.required_one_of(&kind, &["ApplyConfiguration", "JSONPatch"]);
                continue;
            }
        };
        if !own.is_set() {
            errors.required(own, format!("must be specified when patchType is {}", kind.text()));
        } else if own.text_at("expression").trim().is_empty() {
            errors.required(&own.at("expression"), "");
        }
        if other.is_set() {
            errors.invalid_value(other, shown, format!("must not be specified when patchType is {}", kind.text()));
        }
    }
}

fn validations(policy: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    const MOST_ANNOTATIONS: usize = 20;
    const MOST_EXPRESSION: usize = 5 * 1024;
    const NEEDED: &str = "validations or auditAnnotations must contain at least one item";
    let (list, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if list.is_empty() && annotations.is_empty() {
        errors.required(&list, NEEDED);
        return errors.required(&annotations, NEEDED);
    }
    for validation in list.items() {
        if validation.text_at("expression").trim().is_empty() {
            errors.required(&validation.at("expression"), "expression is not specified");
        }
        let (message, expression) = (validation.at("message"), validation.at("messageExpression"));
        if !expression.text().is_empty() && expression.text().trim().is_empty() {
            errors.invalid(&expression, "must be non-empty if specified");
        }
        if !message.text().is_empty() && message.text().trim().is_empty() {
            errors.invalid(&message, "must be non-empty if specified");
        } else if message.text().trim().contains(['\n', '\r']) {
            errors.invalid(&message, "must not contain line breaks");
        }
        errors.one_of_if_set(&validation.at("reason"), &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
    }
    if annotations.len() > MOST_ANNOTATIONS {
        errors.invalid(&annotations, format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations"));
    }
    let name = policy.text_at("metadata.name");
    let mut seen: HashSet<&str> = HashSet::new();
    for annotation in annotations.items() {
        let key = annotation.at("key");
        for problem in names::is_qualified_name(&format!("{name}/{}", key.text())) {
            errors.invalid_value(&key, format!("{name}/{}", key.text()), problem);
        }
        let expression = annotation.at("valueExpression");
        let trimmed = expression.text().trim();
        if trimmed.is_empty() {
            errors.required(&expression, "valueExpression is not specified");
        } else if trimmed.len() > MOST_EXPRESSION {
            errors.required(&expression, format!("must not exceed {MOST_EXPRESSION} bytes in length"));
        }
        if seen.contains(&key.text()) {
            errors.duplicate(&key, key.text());
        }
        seen.insert(key.text());
    }
}

/// Bindings of policies.
pub struct PolicyBindings {
    /// Whether the policies change what they see.
    pub mutating: bool,
}

impl Strategy for PolicyBindings {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, binding: &mut Value) {
        default_match(binding, "spec.matchResources");
    }

    fn validate(&self, binding: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(binding);
        let spec = root.at("spec");
        let policy = spec.at("policyName");
        if errors.required_text(&policy) {
            errors.problems(&policy, names::name_is_dns_subdomain(policy.text(), false));
        }
        if spec.has("paramRef") {
            param_ref(&spec.at("paramRef"), &mut errors);
        }
        let resources = spec.at("matchResources");
        if resources.is_set() {
            match_resources(&resources, &mut errors);
        }
        if self.mutating {
            mutating_operations(&resources.at("resourceRules"), &mut errors);
        } else {
            actions(&spec.at("validationActions"), &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

fn param_ref(at: &At<'_, '_>, errors: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (at.at("name"), at.at("selector"));
    if !name.text().is_empty() {
        errors.problems(&name, names::is_path_segment_name(name.text()));
        if selector.is_set() {
            errors.forbidden(&name, EXCLUSIVE);
        }
    }
    if selector.is_set() {
        errors.label_selector(&selector);
        if !name.text().is_empty() {
            errors.forbidden(&selector, EXCLUSIVE);
        }
    } else if name.text().is_empty() {
        errors.required(at, "one of name or selector must be specified");
    }
    errors.required_one_of(&at.at("parameterNotFoundAction"), &["Deny", "Allow"]);
}

fn actions(list: &At<'_, '_>, errors: &mut Errors) {
    for (index, action) in list.items().enumerate() {
        errors.one_of(&action, &["Audit", "Deny", "Warn"]);
        if list.items().take(index).any(|known| known.value() == action.value()) {
            errors.duplicate(&action, action.text());
        }
    }
    let has = |wanted: &str| list.items().any(|action| action.text() == wanted);
    if has("Deny") && has("Warn") {
        errors.invalid(list, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
    if list.is_empty() {
        errors.required(list, "");
    }
}
