//! Who owns an object: of all its owner references at most one is its controller's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinery::{Value, value};

pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

pub fn controller_uid(meta: &ObjectMeta) -> Option<&str> {
    controller(meta).map(|owner| owner.uid.as_str())
}

/// As [`controller`], of a tree.
pub fn controller_in(object: &Value) -> Option<&Value> {
    value::list(object, "metadata.ownerReferences").iter().find(|owner| value::flag(owner, "controller"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_owner_need_not_be_the_controller() {
        let owner = |uid: &str, controller: Option<bool>| json!({"apiVersion": "v1", "kind": "K", "name": uid, "uid": uid, "controller": controller});
        let check = |owners: Value, expect: Option<&str>| {
            let object = json!({"metadata": {"ownerReferences": owners}});
            let typed: ObjectMeta = serde_json::from_value(object["metadata"].clone()).expect("metadata");
            assert_eq!(controller_uid(&typed), expect, "{object}");
            assert_eq!(controller_in(&object).map(|owner| value::text(owner, "uid")), expect, "{object}");
        };
        check(json!([]), None);
        check(json!([owner("a", None), owner("b", Some(false))]), None);
        check(json!([owner("a", None), owner("b", Some(true))]), Some("b"));
    }
}
