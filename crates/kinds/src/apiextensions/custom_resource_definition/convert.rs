//! Definitions of `v1beta1`, which nobody serves any more and in which upstream's API server stores them all the same: what versions have in common is
//! said once for all of them there.

use machinery::Value;
use serde_json::{Map, json};

use crate::kind::Conversion;

pub const CONVERSIONS: [Conversion; 1] =
    [Conversion { from: "apiextensions.k8s.io/v1beta1", to: "apiextensions.k8s.io/v1", convert: v1beta1_to_v1 }];

/// What a definition says of all its versions, and what each version calls it.
const SHARED: [(&str, &str); 4] = [
    ("subresources", "subresources"),
    ("validation", "schema"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

fn v1beta1_to_v1(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let version = spec.remove("version").unwrap_or_default();
    if spec.get("versions").and_then(Value::as_array).is_none_or(Vec::is_empty) && version.is_string() {
        spec.insert("versions".to_owned(), json!([{"name": version, "served": true, "storage": true}]));
    }
    for (of_all, of_each) in SHARED {
        let Some(shared) = spec.remove(of_all).filter(|shared| !shared.is_null()) else { continue };
        for version in versions(spec) {
            version.insert(of_each.to_owned(), shared.clone());
        }
    }
    for version in versions(spec) {
        for column in version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(column) = column.as_object_mut()
                && let Some(path) = column.remove("JSONPath")
            {
                column.insert("jsonPath".to_owned(), path);
            }
        }
    }
    // There it is true where nothing is said, here it is not.
    if spec.remove("preserveUnknownFields").and_then(|preserves| preserves.as_bool()).unwrap_or(true) {
        spec.insert("preserveUnknownFields".to_owned(), json!(true));
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let mut webhook = Map::new();
        for (was, will) in
            [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
        {
            webhook
                .extend(conversion.remove(was).filter(|value| !value.is_null()).map(|value| (will.to_owned(), value)));
        }
        if !webhook.is_empty() {
            conversion.insert("webhook".to_owned(), webhook.into());
        }
    }
}

fn versions(spec: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_versions_have_in_common_is_said_by_each() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let mut definition = json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "spec": {
            "group": "example.com", "version": "v1", "preserveUnknownFields": false, "validation": schema,
            "subresources": {"status": {}}, "selectableFields": [{"jsonPath": ".spec.a"}],
            "versions": [
                {"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [{"name": "A", "type": "string", "JSONPath": ".spec.a"}]},
                {"name": "v2", "served": true, "storage": false},
            ],
            "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]},
        }});
        v1beta1_to_v1(&mut definition);
        let version = |name: &str, storage: bool| {
            json!({"name": name, "served": true, "storage": storage, "schema": schema, "subresources": {"status": {}},
                   "selectableFields": [{"jsonPath": ".spec.a"}]})
        };
        let mut first = version("v1", true);
        first["additionalPrinterColumns"] = json!([{"name": "A", "type": "string", "jsonPath": ".spec.a"}]);
        let spec = json!({
            "group": "example.com", "versions": [first, version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}},
        });
        assert_eq!(definition["spec"], spec);
    }

    #[test]
    fn one_of_long_ago_has_one_version_and_keeps_what_it_does_not_know() {
        let mut definition = json!({"spec": {"group": "example.com", "version": "v1", "additionalPrinterColumns": [{"JSONPath": ".a"}],
            "conversion": {"strategy": "None"}}});
        v1beta1_to_v1(&mut definition);
        let spec = json!({
            "group": "example.com", "preserveUnknownFields": true, "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [{"jsonPath": ".a"}]}],
        });
        assert_eq!(definition["spec"], spec);
        // Whatever is in the store.
        for odd in [json!({}), json!({"spec": 7}), json!({"spec": {"versions": "x", "conversion": []}})] {
            v1beta1_to_v1(&mut odd.clone());
        }
    }
}
