//! The record of owners across the scale subresource: `spec.replicas` of a `Scale` is a field of the object it scales.

use std::collections::BTreeMap;

use serde_json::Value;

use super::managed::{Id, Managed, Operation, Owner, entries, set_entries};
use super::path::Element;
use super::set::Set;

/// The version in which every `Scale` is written.
const SCALE_VERSION: &str = "autoscaling/v1";

/// Where an object keeps what its `Scale` calls `spec.replicas`.
pub struct Scale<'a> {
    /// The `apiVersion` in which the object is at hand.
    pub api_version: &'a str,
    /// The dotted path of the replicas in the object.
    pub replicas: &'a str,
}

impl Scale<'_> {
    /// Gives a `Scale` the managers that own the replicas of the object.
    pub fn to_scale(&self, object: &Value, scale: &mut Value) {
        let path = steps(self.replicas);
        let mut managed = Managed::decode(entries(object)).unwrap_or_default();
        managed.owners.retain(|owner| owner.fields.has(&path));
        for owner in &mut managed.owners {
            owner.fields = Set::of_fields(["spec.replicas"]);
            owner.version = SCALE_VERSION.to_owned();
            if owner.id.operation == Operation::Update {
                SCALE_VERSION.clone_into(&mut owner.id.api_version);
            }
        }
        set_entries(scale, managed.encode());
    }

    /// Takes the managers of a `Scale` that was written back into the object: who lost the replicas there loses them here,
    /// and who got them there gets them here.
    pub fn to_object(&self, scale: &Value, object: &mut Value) {
        let path = steps(self.replicas);
        let mut replicas = Set::default();
        replicas.insert(&path);
        let mut managed = Managed::decode(entries(object)).unwrap_or_default();
        let scaled_path = steps("spec.replicas");
        let scaled = Managed::decode(entries(scale)).unwrap_or_default().owners.into_iter();
        let scaled = scaled.filter(|owner| owner.fields.has(&scaled_path));
        let mut scaled: BTreeMap<Id, Owner> = scaled.map(|owner| (owner.id.clone(), owner)).collect();
        managed.owners.retain_mut(|owner| {
            if !owner.fields.has(&path) {
                return true;
            }
            // Who updates is somebody else in another version, and a `Scale` is always in another: upstream then parts its record in two.
            match scaled.remove(&owner.id) {
                Some(_) => true,
                None => {
                    owner.fields = std::mem::take(&mut owner.fields).difference(&replicas);
                    !owner.fields.is_empty()
                }
            }
        });
        for mut owner in scaled.into_values() {
            self.api_version.clone_into(&mut owner.version);
            if owner.id.operation == Operation::Update {
                self.api_version.clone_into(&mut owner.id.api_version);
            }
            // Upstream forgets the time on this way.
            managed.owners.push(Owner { fields: replicas.clone(), time: None, ..owner });
        }
        set_entries(object, managed.encode());
    }
}

fn steps(path: &str) -> Vec<Element> {
    path.split('.').map(|name| Element::field(name.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scaling_moves_the_ownership_of_replicas_alone() {
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2026-01-01T00:00:00Z"});
        let owner = entry("a", json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}));
        let other = entry("b", json!({"f:spec": {"f:minReadySeconds": {}}}));
        let mut object = json!({"metadata": {"managedFields": [owner, &other]}});
        let link = Scale { api_version: "apps/v1", replicas: "spec.replicas" };
        let mut scale = json!({"metadata": {}, "spec": {"replicas": 1}});
        link.to_scale(&object, &mut scale);
        assert_eq!(scale["metadata"]["managedFields"][0]["apiVersion"], "autoscaling/v1");
        assert_eq!(scale["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
        let mut kept = object.clone();
        link.to_object(&scale, &mut kept);
        let mut parted = entry("a", json!({"f:spec": {"f:replicas": {}}}));
        parted.as_object_mut().expect("an entry").remove("time");
        let paused = entry("a", json!({"f:spec": {"f:paused": {}}}));
        assert_eq!(kept["metadata"]["managedFields"], json!([parted, paused, other]));
        scale["metadata"]["managedFields"] = json!([{
            "manager": "kubectl", "operation": "Update", "subresource": "scale", "apiVersion": "autoscaling/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}, "time": "2026-01-02T00:00:00Z",
        }]);
        link.to_object(&scale, &mut object);
        assert_eq!(
            object["metadata"]["managedFields"],
            json!([
                {
                    "manager": "kubectl", "operation": "Update", "subresource": "scale", "apiVersion": "apps/v1",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}},
                },
                entry("a", json!({"f:spec": {"f:paused": {}}})),
                entry("b", json!({"f:spec": {"f:minReadySeconds": {}}})),
            ])
        );
    }
}
