//! Environment variables of containers, and where they come from.

use machinery::quantity::Quantity;
use machinery::{Value, value};

use crate::show::{Scene, at, quantity};
use crate::writer::{Writer, put};

/// Sources of many variables at once.
pub fn from(out: &mut Writer, container: &Value) {
    let sources = value::list(container, "envFrom");
    if sources.is_empty() {
        return;
    }
    put!(out, 2, "Environment Variables from:\n");
    for source in sources {
        let (kind, reference) = match (at(source, "configMapRef"), at(source, "secretRef")) {
            (Some(map), _) => ("ConfigMap", map),
            (None, Some(secret)) => ("Secret", secret),
            (None, None) => ("", &Value::Null),
        };
        let (name, optional) = (value::text(reference, "name"), value::flag(reference, "optional"));
        match value::text(source, "prefix") {
            "" => put!(out, 3, "{name}\t{kind}\tOptional: {optional}\n"),
            prefix => put!(out, 3, "{name}\t{kind} with prefix '{prefix}'\tOptional: {optional}\n"),
        }
    }
}

pub fn variables(out: &mut Writer, container: &Value, pod: Option<&Scene<'_>>) {
    let variables = value::list(container, "env");
    put!(out, 2, "Environment:{}\n", if variables.is_empty() { "\t<none>" } else { "" });
    for variable in variables {
        let name = value::text(variable, "name");
        let Some(source) = at(variable, "valueFrom") else {
            for (at, line) in value::text(variable, "value").split('\n').enumerate() {
                match at {
                    0 => out.field(3, name, line),
                    _ => put!(out, 3, "\t{line}\n"),
                }
            }
            continue;
        };
        if let Some(field) = at(source, "fieldRef") {
            let (version, path) = (value::text(field, "apiVersion"), value::text(field, "fieldPath"));
            put!(out, 3, "{name}:\t{} ({version}:{path})\n", of_field(path, version, pod));
        } else if let Some(field) = at(source, "resourceFieldRef") {
            let resource = value::text(field, "resource");
            let mut shown = of_resource(field, container).map_or_else(String::new, |value| value.to_string());
            if shown == "0" && (resource == "limits.cpu" || resource == "limits.memory") {
                shown = "node allocatable".to_owned();
            }
            put!(out, 3, "{name}:\t{shown} ({resource})\n");
        } else {
            for (field, of) in [("secretKeyRef", "in secret"), ("configMapKeyRef", "of config map")] {
                let Some(key) = at(source, field) else { continue };
                let (optional, object, key) =
                    (value::flag(key, "optional"), value::text(key, "name"), value::text(key, "key"));
                put!(out, 3, "{name}:\t<set to the key '{key}' {of} '{object}'>\tOptional: {optional}\n");
                break;
            }
        }
    }
}

/// What a field of the pod is. Upstream's client knows the two fields that every kind has.
fn of_field<'a>(path: &str, version: &str, pod: Option<&Scene<'a>>) -> &'a str {
    match (pod, path) {
        (Some(pod), "metadata.name" | "metadata.namespace") if version == "v1" => pod.text(path),
        _ => "",
    }
}

/// A resource of the container in units of a divisor, rounded up.
fn of_resource(field: &Value, container: &Value) -> Option<i64> {
    let divisor = Some(quantity(field.get("divisor"))).filter(|divisor| !divisor.is_zero());
    let divisor = divisor.unwrap_or_else(|| Quantity::new(1, machinery::quantity::Format::DecimalSi));
    let (side, resource) = value::text(field, "resource").split_once('.')?;
    let known = ["cpu", "memory", "ephemeral-storage"].contains(&resource) || resource.starts_with("hugepages-");
    if !known || !["limits", "requests"].contains(&side) {
        return None;
    }
    let amount = quantity(at(container, "resources").and_then(|all| all.get(side)).and_then(|side| side.get(resource)));
    let of = |quantity: &Quantity| if resource == "cpu" { quantity.milli_value() } else { quantity.value() };
    Some((of(&amount) as f64 / of(&divisor) as f64).ceil() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resources_are_rounded_up_to_the_divisor() {
        let container = json!({"resources": {"limits": {"cpu": "1500m", "memory": "1Mi", "hugepages-2Mi": "4Mi"}}});
        let check = |resource: &str, divisor: Value, expect: Option<i64>| {
            let field = json!({"resource": resource, "divisor": divisor});
            assert_eq!(of_resource(&field, &container), expect, "{field}");
        };
        check("limits.cpu", json!("0"), Some(2));
        check("limits.cpu", json!("1m"), Some(1500));
        check("limits.memory", json!("1Ki"), Some(1024));
        check("limits.hugepages-2Mi", json!(null), Some(4 << 20));
        check("requests.cpu", json!("1"), Some(0));
        check("requests.example.com/gpu", json!("1"), None);
        check("cpu", json!("1"), None);
    }
}
