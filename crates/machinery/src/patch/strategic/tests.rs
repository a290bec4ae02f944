use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod() -> &'static Type {
    facts::type_of("", "v1", "Pod").expect("pods are built in").def()
}

fn patched(doc: &Value, patch: &Value, of: &Type) -> Result<Value, String> {
    let mut result = doc.clone();
    apply(&mut result, patch.clone(), of).map_err(|error| error.to_string())?;
    Ok(result)
}

#[test]
fn pods_merge_by_their_keys() {
    let doc = json!({
        "metadata": {"labels": {"a": "1"}, "finalizers": ["x", "y"]},
        "spec": {
            "containers": [{"name": "a", "image": "a:1", "args": ["1"]}, {"name": "b", "image": "b:1"}],
            "tolerations": [{"key": "t"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    });
    for (patch, path, expected) in [
        (json!({"metadata": {"labels": {"b": "2"}}}), "/metadata/labels", json!({"a": "1", "b": "2"})),
        (json!({"metadata": {"labels": {"a": null}}}), "/metadata/labels", json!({})),
        (json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}}), "/metadata/labels", json!({"c": "3"})),
        (json!({"metadata": {"labels": {"$patch": "delete"}}}), "/metadata/labels", json!({})),
        (json!({"metadata": {"finalizers": ["z", "x"]}}), "/metadata/finalizers", json!(["z", "x", "y"])),
        (json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}), "/metadata/finalizers", json!(["y"])),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["y", "x", "z"], "finalizers": ["z"]}}),
            "/metadata/finalizers",
            json!(["y", "x", "z"]),
        ),
        (
            json!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}}),
            "/spec/containers",
            json!([{"name": "a", "image": "a:1", "args": ["1"]}, {"name": "b", "image": "b:2"}]),
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "args": ["2"]}]}}),
            "/spec/containers/0",
            json!({"name": "a", "image": "a:1", "args": ["2"]}),
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
            "/spec/containers",
            json!([{"name": "b", "image": "b:1"}]),
        ),
        (
            json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}),
            "/spec/containers",
            json!([{"name": "c"}]),
        ),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "image": "a:2"}]}}),
            "/spec/containers",
            json!([{"name": "b", "image": "b:1"}, {"name": "a", "image": "a:2", "args": ["1"]}]),
        ),
        (json!({"spec": {"tolerations": [{"key": "u"}]}}), "/spec/tolerations", json!([{"key": "u"}])),
        (
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
            "/spec/volumes",
            json!([{"name": "v", "hostPath": {"path": "/"}}]),
        ),
        (json!({"spec": {"nodeSelector": {"a": "1", "b": null}}}), "/spec/nodeSelector", json!({"a": "1"})),
    ] {
        let result = patched(&doc, &patch, pod()).expect("a patch that applies");
        assert_eq!(result.pointer(path), Some(&expected), "{patch}");
    }
}

#[test]
fn the_server_keeps_its_own_elements_where_they_were() {
    let doc =
        json!({"spec": {"containers": [{"name": "s0"}, {"name": "a"}, {"name": "s1"}, {"name": "b"}, {"name": "s2"}]}});
    let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
    let result = patched(&doc, &patch, pod()).expect("a patch that applies");
    let names: Vec<&str> =
        crate::value::list(&result, "spec.containers").iter().map(|c| crate::value::text(c, "name")).collect();
    assert_eq!(names, ["s0", "s1", "b", "a", "s2"]);
}

#[test]
fn bad_patches_get_upstreams_words() {
    let doc = json!({"metadata": {"finalizers": ["x"], "labels": {}}, "spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}], "strategy": {}}});
    for (patch, message) in [
        (json!([]), "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (json!({"$patch": "upsert"}), "unknown patch type: upsert in map: map[$patch:upsert]"),
        (json!({"$patch": 5}), "unknown patch type: %!s(int64=5) in map: map[$patch:5]"),
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (json!({"spec": {"containers": ["x"]}}), "list element types are not identical: [[map[name:a]] [x]]"),
        (json!({"spec": {"containers": [null]}}), "list element types are not identical: [[map[name:a]] [<nil>]]"),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"spec": {"strategy": {"a": 1}}}),
            "unable to find api field in struct PodSpec for the json field \"strategy\"",
        ),
        (json!({"metadata": {"$deleteFromPrimitiveList": ["x"]}}), "invalid patch format of primitive list"),
        (json!({"metadata": {"$setElementOrder": ["x"]}}), "invalid patch format of setElementOrder list"),
        (json!({"metadata": {"$setElementOrder/finalizers": "x"}}), "expected a []interface {}, but received a string"),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["x"], "finalizers": ["y"]}}),
            "The order in patch list:\n[y]\n doesn't match $setElementOrder list:\n[x]\n",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]}}),
            "invalid patch format of retainKeys",
        ),
        (json!({"spec": {"$retainKeys": "x"}}), "invalid patch format of retainKeys"),
    ] {
        assert_eq!(patched(&doc, &patch, pod()), Err(message.to_owned()), "{patch}");
    }
}

fn soup() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(json!(null)), Just(json!("a")), Just(json!("delete")), Just(json!("replace")), Just(json!(1))];
    let key = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("containers"),
        Just("name"),
        Just("$patch"),
        Just("finalizers"),
        Just("env"),
        Just("$setElementOrder/containers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("$retainKeys"),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_patch_of_anything_succeeds_or_is_refused(doc in soup(), patch in soup()) {
        let _ = patched(&doc, &patch, pod());
    }
}

/// The rules for lists as they are said, looking through the whole list for every element.
mod by_the_letter {
    use std::cmp::Ordering;

    use super::super::same;
    use super::*;

    fn position(list: &[Value], item: &Value, key: &str) -> Option<usize> {
        list.iter().position(|candidate| same(candidate, item, key))
    }

    pub fn in_order(merged: Vec<Value>, order: &[Value], server: &[Value], key: &str) -> Vec<Value> {
        let by = |list: &[Value], a: &Value, b: &Value| match (position(list, a, key), position(list, b, key)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => Ordering::Equal,
        };
        let (mut patched, mut others): (Vec<Value>, Vec<Value>) =
            merged.into_iter().partition(|item| position(order, item, key).is_some());
        patched.sort_by(|a, b| by(order, a, b));
        others.sort_by(|a, b| by(server, a, b));
        let mut ordered = Vec::new();
        let mut others = others.into_iter().peekable();
        for item in patched {
            while let Some(other) = others.next_if(|other| by(server, other, &item) == Ordering::Less) {
                ordered.push(other);
            }
            ordered.push(item);
        }
        ordered.extend(others);
        ordered
    }

    /// Elements are `{"name": ..., "image": ...}`.
    pub fn merge_objects(mut current: Vec<Value>, change: &[Value]) -> Vec<Value> {
        let deletes = |item: &&Value| item.get("$patch").is_some();
        for item in change.iter().filter(deletes) {
            current.retain(|candidate| candidate["name"] != item["name"]);
        }
        let server = current.clone();
        let change: Vec<Value> = change.iter().filter(|item| !deletes(item)).cloned().collect();
        for item in &change {
            match current.iter_mut().find(|candidate| candidate["name"] == item["name"]) {
                Some(found) => found["image"] = item["image"].clone(),
                None => current.push(item.clone()),
            }
        }
        in_order(current, &change, &server, "name")
    }

    pub fn merge_scalars(current: &[Value], change: &[Value]) -> Vec<Value> {
        let mut merged: Vec<Value> = Vec::new();
        for item in current.iter().chain(change) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        in_order(merged, change, current, "")
    }
}

fn scalars() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec((0..7i64).prop_map(|name| json!(format!("f/{name}"))), 0..9)
}

fn elements() -> impl Strategy<Value = Vec<Value>> {
    let element = (0..7i64, 0..3i64).prop_map(|(name, image)| json!({"name": name.to_string(), "image": image}));
    prop::collection::vec(element, 0..9)
}

fn changes() -> impl Strategy<Value = Vec<Value>> {
    let change = (0..7i64, 0..4i64).prop_map(|(name, image)| match image {
        3 => json!({"name": name.to_string(), "$patch": "delete"}),
        _ => json!({"name": name.to_string(), "image": image}),
    });
    prop::collection::vec(change, 0..9)
}

proptest! {
    #[test]
    fn lists_merge_as_the_rules_say(current in scalars(), change in scalars(), order in scalars(), unwanted in scalars()) {
        let doc = json!({"metadata": {"finalizers": current}});
        let merged = by_the_letter::merge_scalars(&current, &change);
        let patch = json!({"metadata": {"finalizers": change}});
        prop_assert_eq!(patched(&doc, &patch, pod()).map(|new| new["metadata"]["finalizers"].clone()), Ok(json!(merged)));
        let ordered = by_the_letter::in_order(current.clone(), &order, &current, "");
        let left: Vec<&Value> = ordered.iter().filter(|item| !unwanted.contains(item)).collect();
        let patch = json!({"metadata": {
            "$setElementOrder/finalizers": order, "$deleteFromPrimitiveList/finalizers": unwanted,
        }});
        prop_assert_eq!(patched(&doc, &patch, pod()).map(|new| new["metadata"]["finalizers"].clone()), Ok(json!(left)));
        // An empty order lets any change through, also what nobody has a place for.
        let patch = json!({"metadata": {"$setElementOrder/finalizers": [], "finalizers": change}});
        let ordered = by_the_letter::in_order(merged, &[], &current, "");
        prop_assert_eq!(patched(&doc, &patch, pod()).map(|new| new["metadata"]["finalizers"].clone()), Ok(json!(ordered)));
    }

    #[test]
    fn lists_of_objects_merge_as_the_rules_say(current in elements(), change in changes()) {
        let doc = json!({"spec": {"containers": current}});
        let patch = json!({"spec": {"containers": change}});
        let merged = by_the_letter::merge_objects(current, &change);
        prop_assert_eq!(patched(&doc, &patch, pod()).map(|new| new["spec"]["containers"].clone()), Ok(json!(merged)));
    }
}

#[test]
fn four_times_as_many_elements_are_four_times_the_work() {
    let compared = |doc: &Value, patch: &Value| {
        let before = places::COMPARED.get();
        patched(doc, patch, pod()).expect("it applies");
        places::COMPARED.get() - before
    };
    let scalars = |n: usize| {
        let (old, new): (Vec<String>, Vec<String>) = (0..n).map(|at| (format!("a/{at}"), format!("b/{at}"))).unzip();
        let order: Vec<&String> = new.iter().rev().chain(&old).collect();
        let change: Vec<&String> = new.iter().rev().collect();
        let doc = json!({"metadata": {"finalizers": old}});
        let patch = json!({"metadata": {
            "finalizers": change, "$setElementOrder/finalizers": order, "$deleteFromPrimitiveList/finalizers": old,
        }});
        compared(&doc, &patch)
    };
    let objects = |n: usize| {
        let containers: Vec<Value> = (0..n).map(|at| json!({"name": at.to_string(), "image": "a"})).collect();
        let change: Vec<Value> = (0..n)
            .rev()
            .map(|at| match at % 3 {
                0 => json!({"name": at.to_string(), "$patch": "delete"}),
                1 => json!({"name": at.to_string(), "image": "b"}),
                _ => json!({"name": format!("new-{at}"), "image": "c"}),
            })
            .collect();
        compared(&json!({"spec": {"containers": containers}}), &json!({"spec": {"containers": change}}))
    };
    for work in [&scalars as &dyn Fn(usize) -> usize, &objects] {
        let (few, many) = (work(1_000), work(4_000));
        assert!(few >= 1_000 && many < 5 * few, "{few} comparisons grew to {many}");
    }
}
