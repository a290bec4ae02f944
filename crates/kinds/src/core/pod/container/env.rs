//! The environment of a container, and the fields that it and volumes may refer to.

use machinery::names;

use crate::checks::{At, Errors, Rules};
use crate::core::pod::volumes::no_backsteps;

pub fn env(variable: &At<'_, '_>, errors: &mut Errors) {
    const FIELDS: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    if errors.required_text(&variable.at("name")) {
        errors.problems(&variable.at("name"), names::is_relaxed_env_var_name(variable.text_at("name")));
    }
    let from = variable.at("valueFrom");
    if !from.is_set() {
        return;
    }
    let mut sources = 0;
    for (source, rules) in ENV_SOURCES {
        if from.has(source) {
            sources += 1;
            match source {
                "fieldRef" => field_ref(&from.at(source), &FIELDS, errors),
                _ => rules(&from.at(source), errors),
            }
        }
    }
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid_value(&from, "", detail);
    } else if !variable.text_at("value").is_empty() {
        errors.invalid_value(&from, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid_value(&from, "", "may not have more than one field specified at a time");
    }
}

/// Where a variable's value may come from, and the rules of each; those of `fieldRef` need to know which fields there are.
const ENV_SOURCES: [(&str, Rules); 5] = [
    ("fieldRef", |_, _| ()),
    ("resourceFieldRef", |at, errors| resource_field_ref(at, false, errors)),
    ("configMapKeyRef", key_ref),
    ("secretKeyRef", key_ref),
    ("fileKeyRef", file_key_ref),
];

fn key_ref(at: &At<'_, '_>, errors: &mut Errors) {
    errors.problems(&at.at("name"), names::name_is_dns_subdomain(at.text_at("name"), false));
    if errors.required_text(&at.at("key")) {
        errors.problems(&at.at("key"), names::is_config_map_key(at.text_at("key")));
    }
}

fn file_key_ref(at: &At<'_, '_>, errors: &mut Errors) {
    if errors.required_text(&at.at("key")) {
        errors.problems(&at.at("key"), names::is_relaxed_env_var_name(at.text_at("key")));
    }
    if errors.required_text(&at.at("volumeName")) {
        errors.problems(&at.at("volumeName"), names::is_dns1123_label(at.text_at("volumeName")));
    }
    if errors.required_text(&at.at("path")) {
        no_backsteps(&at.at("path"), errors);
    }
}

/// A reference to a field of the pod, one of `known` or an entry of its labels or annotations.
pub fn field_ref(at: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    /// What upstream can convert, whether or not it may be asked for here.
    const CONVERTED: [&str; 14] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    if !errors.required_text(&at.at("apiVersion")) {
        return;
    }
    let path = at.at("fieldPath");
    if !errors.required_text(&path) {
        return;
    }
    let version = at.text_at("apiVersion");
    if version != "v1" {
        return errors.invalid(&path, format!("error converting fieldPath: unsupported pod version: {version}"));
    }
    if let Some((field, subscript)) = subscripted(path.text()) {
        match field {
            "metadata.annotations" => {
                for problem in names::is_qualified_name(&subscript.to_lowercase()) {
                    errors.invalid_value(at, subscript.to_lowercase(), problem);
                }
            }
            "metadata.labels" => {
                for problem in names::is_qualified_name(subscript) {
                    errors.invalid_value(at, subscript, problem);
                }
            }
            _ => {
                let detail =
                    format!("error converting fieldPath: field label does not support subscript: {}", path.text());
                errors.invalid(&path, detail);
            }
        }
        return;
    }
    let field = if path.text() == "spec.host" { "spec.nodeName" } else { path.text() };
    if !CONVERTED.contains(&field) {
        errors.invalid(&path, format!("error converting fieldPath: field label not supported: {field}"));
    } else if !known.contains(&field) {
        errors.push(machinery::status::FieldError::not_supported(path.to_string(), field, known.iter().copied()));
    }
}

/// `path['key']`.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (field, rest) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, rest))
}

/// A reference to a request or a limit. Volumes say of which container.
pub fn resource_field_ref(at: &At<'_, '_>, in_volume: bool, errors: &mut Errors) {
    const KNOWN: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = at.at("resource");
    let huge = resource.text().starts_with("requests.hugepages-") || resource.text().starts_with("limits.hugepages-");
    if in_volume && at.text_at("containerName").is_empty() {
        errors.required(&at.at("containerName"), "");
    } else if resource.text().is_empty() {
        errors.required(&resource, "");
    } else if !KNOWN.contains(&resource.text()) && !huge {
        errors.not_supported(&resource, &KNOWN);
    }
    let divisor = at.at("divisor");
    let Some(amount) = divisor.quantity().filter(|amount| !amount.is_zero()) else { return };
    let (allowed, subject): (&[&str], &str) = match resource.text() {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "cpu"),
        "limits.memory" | "requests.memory" => (&BYTES, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (&BYTES, "local ephemeral storage"),
        _ if huge => (&BYTES, "hugepages"),
        _ => return,
    };
    if !allowed.contains(&amount.to_string().as_str()) {
        let values = if subject == "cpu" { "1m and 1".to_owned() } else { BYTES.join(", ") };
        let detail = format!("only divisor's values {values} are supported with the {subject} resource");
        errors.invalid_value(&divisor, resource.text(), detail);
    }
}

const BYTES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub fn env_from(list: &At<'_, '_>, errors: &mut Errors) {
    for source in list.items() {
        let prefix = source.at("prefix");
        if !prefix.text().is_empty() {
            errors.problems(&prefix, names::is_relaxed_env_var_name(prefix.text()));
        }
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            let reference = source.at(kind);
            if reference.is_set() {
                sources += 1;
                let name = reference.at("name");
                if errors.required_text(&name) {
                    errors.problems(&name, names::name_is_dns_subdomain(name.text(), true));
                }
            }
        }
        match sources {
            0 => errors.invalid_value(list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid_value(list, "", "may not have more than one field specified at a time"),
        }
    }
}
