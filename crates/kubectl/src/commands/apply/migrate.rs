//! From client-side to server-side apply: the fields that kubectl owned by updates become those that it owns by applying, so that what
//! leaves the files leaves the object. Decides without asking anybody; [`super`] sends what it says.

use serde_json::{Map, Value, json};

use super::super::create::LAST_APPLIED;

/// Who keeps the annotation of client-side apply, once nobody else does.
pub const ANNOTATION_MANAGER: &str = "kubectl-last-applied";

/// Managers that own the annotation by this operation.
fn owners<'a>(object: &'a Value, operation: &str) -> Vec<&'a str> {
    let path = [String::from("f:metadata"), "f:annotations".to_owned(), format!("f:{LAST_APPLIED}")];
    let owns = |entry: &&Value| {
        let fields = path.iter().try_fold(&entry["fieldsV1"], |fields, step| fields.get(step));
        entry["operation"] == operation && fields.is_some()
    };
    entries(object).iter().filter(owns).filter_map(|entry| entry["manager"].as_str()).collect()
}

fn entries(object: &Value) -> &[Value] {
    machinery::value::at(object, "metadata.managedFields").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What has to be applied so that the annotation has an owner; nothing where it has one, or is not there.
pub fn annotation(object: &Value) -> Option<Value> {
    let kept = machinery::value::at(object, "metadata.annotations")?.get(LAST_APPLIED)?;
    if !owners(object, "Apply").is_empty() {
        return None;
    }
    let mut metadata = json!({"name": object["metadata"]["name"], "annotations": {LAST_APPLIED: kept}});
    if let Some(namespace) = object["metadata"].get("namespace") {
        metadata["namespace"] = namespace.clone();
    }
    Some(json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata}))
}

/// The JSON patch that hands the fields of client-side apply over to a manager; nothing where there are none.
pub fn managed_fields(object: &Value, manager: &str) -> Option<Value> {
    let before = entries(object).to_vec();
    let mut after = before.clone();
    let mut names = owners(object, "Update");
    names.sort_unstable();
    names.dedup();
    for name in names {
        hand_over(&mut after, name, manager);
    }
    (after != before).then(|| {
        json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": after},
            // A version that is no longer the current one is a conflict, and the plan is made anew.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]},
        ])
    })
}

fn hand_over(entries: &mut Vec<Value>, from: &str, to: &str) {
    let is = |entry: &Value, manager: &str, operation: &str| {
        entry["manager"] == manager && entry["operation"] == operation && entry.get("subresource").is_none()
    };
    let at = match entries.iter().position(|entry| is(entry, to, "Apply")) {
        Some(at) => at,
        None => {
            let Some(at) = entries.iter().position(|entry| is(entry, from, "Update")) else { return };
            entries[at]["operation"] = "Apply".into();
            entries[at]["manager"] = to.into();
            at
        }
    };
    let version = entries[at]["apiVersion"].clone();
    let more = entries.iter().find(|entry| is(entry, from, "Update") && entry["apiVersion"] == version);
    if let Some(Value::Object(more)) = more.map(|entry| entry["fieldsV1"].clone()) {
        unite(&mut entries[at]["fieldsV1"], more);
    }
    entries.retain(|entry| !is(entry, from, "Update"));
}

fn unite(fields: &mut Value, more: Map<String, Value>) {
    let Value::Object(fields) = fields else { return };
    for (name, below) in more {
        match (fields.get_mut(&name), below) {
            (Some(known), Value::Object(below)) => unite(known, below),
            (Some(_), _) => {}
            (None, below) => drop(fields.insert(name, below)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(managers: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7", "annotations": {LAST_APPLIED: "{}"}, "managedFields": managers},
        })
    }

    fn by_update() -> Value {
        let fields = json!({"f:data": {"f:k": {}, "f:l": {}}, "f:metadata": {"f:annotations": {format!("f:{LAST_APPLIED}"): {}}}});
        json!({"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields})
    }

    #[test]
    fn fields_of_client_side_apply_are_handed_over() {
        let by_apply = json!({"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:k": {}, "f:m": {}}}});
        let before = object(json!([by_apply, by_update()]));
        let patch = managed_fields(&before, "kubectl").expect("a patch");
        let after = &patch[0]["value"];
        assert_eq!(after.as_array().map(Vec::len), Some(1));
        assert_eq!(after[0]["fieldsV1"]["f:data"], json!({"f:k": {}, "f:l": {}, "f:m": {}}));
        assert_eq!(patch[1]["value"], "7");
        // Alone, the entry itself becomes one of server-side apply.
        let patch = managed_fields(&object(json!([by_update()])), "me").expect("a patch");
        assert_eq!(
            (&patch[0]["value"][0]["manager"], &patch[0]["value"][0]["operation"]),
            (&json!("me"), &json!("Apply"))
        );
        assert_eq!(managed_fields(&object(json!([])), "kubectl"), None);
    }

    #[test]
    fn the_annotation_is_kept_by_whoever_applies_it() {
        let kept = annotation(&object(json!([by_update()]))).expect("an apply");
        assert_eq!(kept["metadata"], json!({"name": "a", "namespace": "n", "annotations": {LAST_APPLIED: "{}"}}));
        let mut owned = by_update();
        owned["operation"] = "Apply".into();
        assert_eq!(annotation(&object(json!([owned]))), None);
    }
}
