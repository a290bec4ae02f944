//! `kubectl set env --list --resolve`: the values that references have. Where one cannot be found out, the reference is shown, and why.

use std::collections::BTreeMap;

use base64::Engine as _;
use machinery::quantity::Quantity;
use machinery::value::text;
use serde_json::Value;

use crate::command::Invocation;
use crate::discovery::segment;
use crate::error::Outcome;

/// The variables of a container as lines; and what went wrong, with the variables that it went wrong for.
pub async fn lines(
    invocation: &Invocation,
    object: &Value,
    container: &Value,
) -> Outcome<(String, BTreeMap<String, Vec<String>>)> {
    let resolves = invocation.flags.is("resolve");
    let (mut lines, mut wrong) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    for variable in machinery::value::list(container, "env") {
        let name = text(variable, "name");
        let Some(from) = variable.get("valueFrom") else {
            lines += &format!("{name}={}\n", text(variable, "value"));
            continue;
        };
        let found = if resolves { Some(value(invocation, object, container, from).await?) } else { None };
        match found {
            Some(Ok(value)) => lines += &format!("{name}={value}\n"),
            Some(Err(why)) => {
                lines += &format!("# {name} from {}\n", reference(from));
                wrong.entry(why).or_default().push(name.to_owned());
            }
            None => lines += &format!("# {name} from {}\n", reference(from)),
        }
    }
    Ok((lines, wrong))
}

async fn value(
    invocation: &Invocation,
    object: &Value,
    container: &Value,
    from: &Value,
) -> Outcome<Result<String, String>> {
    for (field, resource, shown) in
        [("secretKeyRef", "secrets", "secret"), ("configMapKeyRef", "configmaps", "config map")]
    {
        let Some(named) = from.get(field) else { continue };
        let (name, key) = (text(named, "name"), text(named, "key"));
        let namespace = invocation.session.namespace()?;
        let path = format!("/api/v1/namespaces/{}/{resource}/{}", segment(&namespace), segment(name));
        let holder = match invocation.session.api()?.get(&path).await {
            Ok(holder) => holder,
            Err(error) => return Ok(Err(error.bare())),
        };
        let data = holder.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
        return Ok(match data {
            None => Err(format!("key {key} not found in {shown} {name}")),
            Some(data) if field == "secretKeyRef" => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap_or_default();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Some(data) => Ok(data.to_owned()),
        });
    }
    Ok(match (from.get("fieldRef"), from.get("resourceFieldRef")) {
        (Some(field), _) => of_field(object, text(field, "fieldPath")),
        (None, Some(field)) => of_resource(container, field),
        (None, None) => Err("invalid valueFrom".to_owned()),
    })
}

/// A field of the object itself; of a template's pods not more is known than this.
fn of_field(object: &Value, path: &str) -> Result<String, String> {
    let map = |name: &str| object.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Value::as_object);
    if let Some((path, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let field = match path {
            "metadata.annotations" => "annotations",
            "metadata.labels" => "labels",
            _ => return Err(format!("fieldPath {path:?} does not support subscript")),
        };
        let found = map(field).and_then(|all| all.get(key)).and_then(Value::as_str);
        return Ok(found.unwrap_or_default().to_owned());
    }
    match path {
        "metadata.annotations" | "metadata.labels" => {
            let all = map(path.trim_start_matches("metadata.")).into_iter().flatten();
            let line = |(key, value): (&String, &Value)| format!("{key}={value}");
            Ok(all.map(line).collect::<Vec<_>>().join("\n"))
        }
        "metadata.name" | "metadata.namespace" | "metadata.uid" => Ok(text(object, path).to_owned()),
        other => Err(format!("unsupported fieldPath: {other}")),
    }
}

/// What a container asks for or may have, in units of a divisor, rounded up.
fn of_resource(container: &Value, field: &Value) -> Result<String, String> {
    let wanted = text(field, "resource");
    let unsupported = || format!("Unsupported container resource : {wanted}");
    let (list, resource) = wanted.split_once('.').ok_or_else(unsupported)?;
    let known = matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    if !known || !matches!(list, "limits" | "requests") {
        return Err(unsupported());
    }
    let quantity = |value: Option<&Value>| -> Option<Quantity> { Quantity::from_value(value?)?.ok() };
    let amount = quantity(container.get("resources").and_then(|all| all.get(list)).and_then(|all| all.get(resource)));
    let divisor = quantity(field.get("divisor")).filter(|divisor| !divisor.is_zero());
    let units = |quantity: &Quantity| if resource == "cpu" { quantity.milli_value() } else { quantity.value() };
    let one = if resource == "cpu" { 1000 } else { 1 };
    let (amount, divisor) = (amount.as_ref().map_or(0, units), divisor.as_ref().map_or(one, units).max(1));
    Ok((amount + divisor - 1).div_euclid(divisor).to_string())
}

/// Where the value of a variable comes from.
fn reference(from: &Value) -> String {
    for (field, what) in [("configMapKeyRef", "configmap"), ("secretKeyRef", "secret")] {
        if let Some(named) = from.get(field) {
            return format!("{what} {}, key {}", text(named, "name"), text(named, "key"));
        }
    }
    if let Some(field) = from.get("fieldRef") {
        return format!("field path {}", text(field, "fieldPath"));
    }
    match from.get("resourceFieldRef") {
        Some(field) => {
            let container = text(field, "containerName");
            let slash = if container.is_empty() { "" } else { "/" };
            format!("resource field {container}{slash}{}", text(field, "resource"))
        }
        None => "invalid valueFrom".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_resources_have_values() {
        let object = json!({"metadata": {"name": "web", "labels": {"b": "2", "a": "1"}}});
        for (path, expected) in [
            ("metadata.name", Ok("web")),
            ("metadata.labels", Ok("a=\"1\"\nb=\"2\"")),
            ("metadata.labels['b']", Ok("2")),
            ("status.podIP", Err("unsupported fieldPath: status.podIP")),
        ] {
            assert_eq!(of_field(&object, path).as_deref().map_err(String::as_str), expected, "{path}");
        }
        let container = json!({"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}});
        for (resource, divisor, expected) in [
            ("limits.cpu", "", Ok("2")),
            ("limits.cpu", "1m", Ok("1500")),
            ("limits.memory", "1Mi", Ok("1024")),
            ("requests.memory", "", Ok("0")),
            ("limits.pods", "", Err("Unsupported container resource : limits.pods")),
        ] {
            let mut field = json!({"resource": resource});
            if !divisor.is_empty() {
                field["divisor"] = divisor.into();
            }
            let found = of_resource(&container, &field);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{resource} {divisor}");
        }
    }
}
