mod kinds;
mod random;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{complete, conform};
use crate::status::ApiError;

const NOW: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-02T00:00:00Z";

static STATUS: std::sync::LazyLock<Filter> = std::sync::LazyLock::new(|| Filter::exclude(["status"]));

fn manager(group: &str, version: &'static str, kind: &'static str) -> FieldManager<'static> {
    let api_version = if group.is_empty() { version } else { Box::leak(format!("{group}/{version}").into_boxed_str()) };
    let of = facts::type_of(group, version, kind).expect("a built-in kind").def();
    FieldManager { of, kind, api_version, subresource: "", filter: &STATUS, versions: &OneVersion }
}

fn deployments() -> FieldManager<'static> {
    manager("apps", "v1", "Deployment")
}

fn stored(mut object: Value, of: &Type) -> Value {
    conform(&mut object, of).expect("right types");
    crate::value::set(&mut object, "metadata.uid", "u");
    complete(&mut object, of);
    object
}

fn created(fields: &FieldManager<'_>, object: Value, by: &str) -> Value {
    let mut object = stored(object, fields.of);
    crate::value::remove(&mut object, "metadata.uid");
    fields.update(&fields.empty(), &mut object, by, NOW);
    crate::value::set(&mut object, "metadata.uid", "u");
    object
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "d"}, "spec": spec})
}

/// Applies, and stores what comes of it.
fn applied(fields: &FieldManager<'_>, live: &Value, patch: Value, by: &str, force: bool) -> Result<Value, String> {
    let applied = fields.apply(live, &patch, by, force, LATER).map_err(|error| error.to_string())?;
    Ok(stored(applied.object, fields.of))
}

fn owned_by(object: &Value, manager: &str) -> Value {
    let entries = managed::entries(object).iter().filter(|entry| entry["manager"] == manager);
    entries.map(|entry| entry["fieldsV1"].clone()).next().unwrap_or(Value::Null)
}

#[test]
fn a_create_owns_all_that_was_not_there() {
    let pods = manager("", "v1", "Pod");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "A", "value": "1"}]}],
            "restartPolicy": "Always", "securityContext": {}, "tolerations": [{"key": "x"}],
        },
    });
    let pod = created(&pods, pod, "kubectl-create");
    assert_eq!(
        pod["metadata"]["managedFields"],
        json!([{
            "apiVersion": "v1", "manager": "kubectl-create", "operation": "Update", "time": NOW, "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"c\"}": {
                        ".": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                        "f:env": {".": {}, "k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
                        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                    }},
                    "f:restartPolicy": {}, "f:securityContext": {}, "f:tolerations": {},
                },
            },
        }])
    );
}

#[test]
fn an_update_owns_what_it_changed_and_disowns_others() {
    let fields = deployments();
    let old = created(
        &fields,
        deployment(json!({"replicas": 1, "paused": true, "minReadySeconds": 3, "selector": {}, "template": {}})),
        "a",
    );
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(2);
    crate::value::remove(&mut new, "spec.paused");
    fields.update(&old, &mut new, "b", LATER);
    assert_eq!(owned_by(&new, "a"), json!({"f:spec": {"f:minReadySeconds": {}, "f:selector": {}}}));
    assert_eq!(owned_by(&new, "b"), json!({"f:spec": {"f:replicas": {}}}));
    let mut same = new.clone();
    fields.update(&new, &mut same, "c", "2027-01-01T00:00:00Z");
    assert_eq!(same, new);
}

#[test]
fn a_status_write_owns_status_alone() {
    let everything_else = Filter::exclude(["spec", "metadata.labels"]);
    let fields = deployments();
    let old = created(&fields, deployment(json!({"replicas": 1, "selector": {}, "template": {}})), "a");
    let status = FieldManager { subresource: "status", filter: &everything_else, ..deployments() };
    let mut new = old.clone();
    new["status"]["replicas"] = json!(1);
    status.update(&old, &mut new, "controller", LATER);
    let entry = &new["metadata"]["managedFields"][1];
    assert_eq!(
        (&entry["subresource"], &entry["fieldsV1"]),
        (&json!("status"), &json!({"f:status": {"f:replicas": {}}}))
    );
}

#[test]
fn an_apply_takes_out_what_it_no_longer_names() {
    let fields = deployments();
    let env = |names: &[&str]| {
        let env: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
        deployment(json!({
            "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}},
        }))
    };
    let live = applied(&fields, &fields.empty(), env(&["A", "B"]), "me", false).expect("applies");
    assert_eq!(
        owned_by(&live, "me"),
        json!({"f:spec": {
            "f:replicas": {}, "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:image": {}, "f:name": {},
                    "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}, "k:{\"name\":\"B\"}": {".": {}, "f:name": {}, "f:value": {}}},
                }}},
            },
        }})
    );
    let mut theirs = live.clone();
    crate::value::list_mut(&mut theirs, "spec.template.spec.containers")[0]["env"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"name": "C", "value": "x"}));
    fields.update(&live, &mut theirs, "other", NOW);
    let live = applied(&fields, &theirs, env(&["B"]), "me", false).expect("applies");
    let names: Vec<&str> = live["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|env| text(env, "name"))
        .collect();
    assert_eq!(names, ["B", "C"]);
    let bare = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "d"}});
    let live = applied(&fields, &live, bare, "me", false).expect("applies");
    assert_eq!(live["spec"].get("replicas"), None);
    assert_eq!(owned_by(&live, "me"), Value::Null);
    // An item goes as a whole with the last one who owns the item itself, whatever others own inside of it.
    assert_eq!(live["spec"]["template"]["spec"]["containers"], Value::Null);
}

#[test]
fn conflicts_name_the_field_and_its_owner() {
    let fields = deployments();
    let live = created(
        &fields,
        deployment(json!({"replicas": 1, "paused": true, "selector": {}, "template": {}})),
        "kubectl-create",
    );
    let mine = deployment(json!({"replicas": 5}));
    assert_eq!(
        applied(&fields, &live, mine.clone(), "me", false),
        Err("Apply failed with 1 conflict: conflict with \"kubectl-create\" using apps/v1: .spec.replicas".to_owned())
    );
    assert_eq!(
        applied(&fields, &live, deployment(json!({"replicas": 5, "paused": false})), "me", false),
        Err("Apply failed with 2 conflicts: conflicts with \"kubectl-create\" using apps/v1:\n- .spec.paused\n- .spec.replicas".to_owned())
    );
    let error = ApiError::from(fields.apply(&live, &mine, "me", false, NOW).expect_err("a conflict"));
    assert_eq!((error.code, error.details.expect("details").causes[0].field.as_str()), (409, ".spec.replicas"));
    let forced = applied(&fields, &live, mine, "me", true).expect("forced");
    assert_eq!(forced["spec"]["replicas"], 5);
    assert_eq!(owned_by(&forced, "me"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(owned_by(&forced, "kubectl-create"), json!({"f:spec": {"f:paused": {}, "f:selector": {}}}));
    // Two may own a field as long as they agree on it.
    let shared = applied(&fields, &forced, deployment(json!({"replicas": 5})), "you", false).expect("no conflict");
    assert_eq!(owned_by(&shared, "you"), owned_by(&shared, "me"));
}

#[test]
fn what_client_side_apply_wrote_is_taken_over() {
    let fields = deployments();
    let config = deployment(json!({"replicas": 1, "paused": true}));
    let mut object = config.clone();
    object["spec"]["selector"] = json!({});
    object["spec"]["template"] = json!({});
    object["metadata"]["annotations"] = json!({LAST_APPLIED: config.to_string()});
    let live = created(&fields, object, "kubectl-client-side-apply");
    let live = applied(&fields, &live, deployment(json!({"replicas": 3})), "kubectl", false).expect("no conflict");
    assert_eq!(live["spec"]["replicas"], 3);
    let last = live["metadata"]["annotations"][LAST_APPLIED].as_str().expect("the annotation");
    assert_eq!(serde_json::from_str::<Value>(last).expect("JSON"), deployment(json!({"replicas": 3})));
    // Another name gets no such favour.
    assert!(applied(&fields, &live, deployment(json!({"paused": false})), "me", false).is_err());
}

#[test]
fn an_object_nobody_tracked_gets_a_manager_before_the_first_apply() {
    let fields = deployments();
    let live = stored(deployment(json!({"replicas": 1, "selector": {}, "template": {}})), fields.of);
    let mut updated = live.clone();
    updated["spec"]["replicas"] = json!(2);
    fields.update(&live, &mut updated, "a", NOW);
    assert_eq!(updated["metadata"].get("managedFields"), None);
    let error = applied(&fields, &updated, deployment(json!({"replicas": 3})), "me", false).expect_err("a conflict");
    assert_eq!(
        error,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using apps/v1: .spec.replicas"
    );
}

#[test]
fn an_apply_that_changes_nothing_says_so() {
    let fields = deployments();
    let config = deployment(json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}}));
    let live = applied(&fields, &fields.empty(), config.clone(), "me", false).expect("applies");
    let again = fields.apply(&live, &config, "me", false, "2030-01-01T00:00:00Z").expect("applies");
    assert!(!again.changed);
    assert_eq!(again.object, live);
    let mut touched = live.clone();
    touched["metadata"]["managedFields"][0]["time"] = json!(NOW);
    assert!(equal_but_times(&live, &touched));
    touched["spec"]["replicas"] = json!(2);
    assert!(!equal_but_times(&live, &touched));
}

#[test]
fn bad_configurations_are_refused_in_upstreams_words() {
    let fields = deployments();
    for (patch, message) in [
        (json!({"apiVersion": "v1", "kind": "Pod"}), "invalid object type: /v1, Kind=Pod"),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"managedFields": []}}),
            "metadata.managedFields must be nil",
        ),
        (
            deployment(json!({"replicsa": 1})),
            "failed to create typed patch object (d/web; apps/v1, Kind=Deployment): .spec.replicsa: field not declared in schema",
        ),
        (
            deployment(json!({"replicas": "x"})),
            "failed to create typed patch object (d/web; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string",
        ),
        (
            deployment(json!({"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}})),
            "failed to create typed patch object (d/web; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name=\"a\"]",
        ),
    ] {
        assert_eq!(applied(&fields, &fields.empty(), patch, "me", false), Err(message.to_owned()));
    }
}

#[test]
fn clients_may_send_and_reset_managed_fields() {
    let fields = deployments();
    let old = created(&fields, deployment(json!({"replicas": 1, "selector": {}, "template": {}})), "a");
    for reset in [json!([]), json!([{}])] {
        let mut new = old.clone();
        new["metadata"]["managedFields"] = reset;
        fields.update(&old, &mut new, "b", LATER);
        assert_eq!(new["metadata"].get("managedFields"), None);
    }
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["manager"] = json!("renamed");
    fields.update(&old, &mut new, "b", LATER);
    assert_eq!(owned_by(&new, "renamed"), owned_by(&old, "a"));
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["fieldsType"] = json!("V9");
    fields.update(&old, &mut new, "b", LATER);
    assert_eq!(new, old);
}

/// A kind whose `spec` may hold anything, and whose `items` are told apart by their name.
fn free() -> FieldManager<'static> {
    static FREE: std::sync::LazyLock<Type> = std::sync::LazyLock::new(|| {
        use facts::{Field, List, ListType, Opaque, Schema};
        let item = Type::new("", vec![Field::new("name", Schema::String)]);
        let list = List {
            items: Schema::Object(std::sync::Arc::new(item)),
            list_type: Some(ListType::Map),
            keys: ["name".into()].into(),
        };
        let fields = vec![
            Field::new("apiVersion", Schema::String),
            Field::new("kind", Schema::String),
            Field::new("spec", Schema::Any(Opaque::Preserved)),
            Field::new("items", Schema::Array(Box::new(list))),
            Field::new("when", Schema::Quantity),
        ];
        Type::new("", fields)
    });
    let (kind, api_version) = ("Free", "g.io/v1");
    FieldManager { of: &FREE, kind, api_version, subresource: "", filter: &STATUS, versions: &OneVersion }
}

#[test]
fn what_is_an_object_no_more_has_no_fields_that_anybody_owns() {
    let fields = free();
    let object = |spec: Value| json!({"apiVersion": "g.io/v1", "kind": "Free", "spec": spec});
    let mut first = object(json!({"a": {"b": 1, "c": {"d": 2}}}));
    fields.update(&fields.empty(), &mut first, "one", NOW);
    crate::value::set(&mut first, "metadata.uid", "u");
    let mut second = object(json!({"a": true}));
    fields.update(&first, &mut second, "two", LATER);
    crate::value::set(&mut second, "metadata.uid", "u");
    assert_eq!(owned_by(&second, "one"), json!({"f:spec": {}}));
    assert_eq!(owned_by(&second, "two"), json!({"f:spec": {"f:a": {}}}));
    let mut third = object(json!({"a": {"e": 1}}));
    fields.update(&second, &mut third, "three", LATER);
    assert_eq!(owned_by(&third, "two"), Value::Null);
    assert_eq!(owned_by(&third, "three"), json!({"f:spec": {"f:a": {".": {}, "f:e": {}}}}));
    let mut gone = object(json!({"a": null}));
    crate::value::set(&mut third, "metadata.uid", "u");
    fields.update(&third, &mut gone, "four", LATER);
    assert_eq!(owned_by(&gone, "three"), json!({"f:spec": {"f:a": {}}}));
}

#[test]
fn keys_are_written_as_go_writes_them_and_shown_as_upstream_shows_them() {
    let fields = free();
    let mut object = json!({"apiVersion": "g.io/v1", "kind": "Free", "items": [{"name": "a<b"}]});
    fields.update(&fields.empty(), &mut object, "one", NOW);
    assert_eq!(
        owned_by(&object, "one"),
        json!({"f:items": {".": {}, "k:{\"name\":\"a\\u003cb\"}": {".": {}, "f:name": {}}}})
    );
    let mut patch = json!({"apiVersion": "g.io/v1", "kind": "Free", "items": [{"name": {"x": [null, {}]}}]});
    let refused =
        |patch: &Value| fields.apply(&fields.empty(), patch, "two", false, NOW).expect_err("refused").to_string();
    assert!(refused(&patch).contains(".items[name=x=[null,]].name: expected string"), "{}", refused(&patch));
    // What has a format is judged later; but it is a scalar.
    patch = json!({"apiVersion": "g.io/v1", "kind": "Free", "when": 5});
    assert!(fields.apply(&fields.empty(), &patch, "two", false, NOW).is_ok());
    patch["when"] = json!({});
    assert!(refused(&patch).ends_with(".when: expected any scalar, got &{map[]}"), "{}", refused(&patch));
    assert!(!fields.fits(&patch) && fields.fits(&json!({"items": [{"name": "a"}, {"name": "a"}]})));
}

#[test]
fn the_oldest_of_many_managers_are_lumped_together() {
    let fields = deployments();
    let mut object = created(&fields, deployment(json!({"replicas": 0, "selector": {}, "template": {}})), "m00");
    for at in 1..15 {
        let old = object.clone();
        object["metadata"]["labels"][format!("l{at}")] = json!("x");
        fields.update(&old, &mut object, &format!("m{at:02}"), &format!("2026-02-{at:02}T00:00:00Z"));
    }
    let names: Vec<&str> = managed::entries(&object).iter().map(|entry| text(entry, "manager")).collect();
    assert_eq!(names.len(), 10);
    assert_eq!(names[0], "ancient-changes");
    assert_eq!(names[9], "m14");
}

#[test]
fn lists_keep_the_order_of_the_configuration() {
    let list = |names: &[&str]| {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        deployment(json!({"template": {"spec": {"containers": containers}}}))
    };
    let fields = deployments();
    for (live, config, expected) in [
        (vec!["a", "b", "c"], vec!["c", "a"], vec!["b", "c", "a"]),
        (vec!["a", "b"], vec!["x", "b"], vec!["a", "x", "b"]),
        (vec!["a", "b", "c"], vec!["b"], vec!["a", "b", "c"]),
        (vec![], vec!["b", "a"], vec!["b", "a"]),
        (vec!["a"], vec!["b", "c"], vec!["a", "b", "c"]),
        (vec!["a", "b", "c", "d"], vec!["d", "x", "a"], vec!["b", "c", "d", "x", "a"]),
    ] {
        let live_object = list(&live);
        let merged = merge::merge(&live_object, &list(&config), Kind::Struct(fields.of)).expect("merges");
        let names: Vec<&str> =
            crate::value::list(&merged, "spec.template.spec.containers").iter().map(|c| text(c, "name")).collect();
        assert_eq!(names, expected, "{live:?} + {config:?}");
    }
}

/// Configurations of a Deployment with a handful of fields of every kind.
fn configs(prefix: &'static str) -> impl Strategy<Value = Value> {
    let name = || "[a-c]".prop_map(move |letter| format!("{prefix}{letter}"));
    let labels = prop::collection::btree_map(name(), "[x-z]", 0..3);
    let env = prop::collection::btree_map(name(), "[x-z]", 0..3);
    let finalizers = prop::collection::btree_set(name(), 0..3);
    (labels, env, finalizers, prop::option::of(0..3i64)).prop_map(move |(labels, env, finalizers, replicas)| {
        // Empty containers are not stored, so they would be news every time.
        let mut object = deployment(json!({"template": {"spec": {"containers": [{"name": "c"}]}}}));
        if !env.is_empty() {
            let env: Vec<Value> = env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            object["spec"]["template"]["spec"]["containers"][0]["env"] = json!(env);
        }
        if !labels.is_empty() {
            object["metadata"]["labels"] = json!(labels);
        }
        if !finalizers.is_empty() {
            object["metadata"]["finalizers"] = json!(finalizers);
        }
        if let Some(replicas) = replicas.filter(|_| prefix == "p") {
            object["spec"]["replicas"] = json!(replicas);
        }
        object
    })
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing_more(a in configs("p"), b in configs("p")) {
        let fields = deployments();
        let once = applied(&fields, &fields.empty(), a, "x", false).expect("applies");
        let once = applied(&fields, &once, b.clone(), "x", false).expect("applies");
        let twice = applied(&fields, &once, b, "x", false).expect("applies");
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn what_is_no_longer_applied_is_gone(a in configs("p"), b in configs("q")) {
        let fields = deployments();
        let before = applied(&fields, &fields.empty(), b, "y", false).expect("applies");
        let with = applied(&fields, &before, a, "x", false).expect("applies");
        let bare = deployment(json!({}));
        let after = applied(&fields, &with, bare, "x", false).expect("applies");
        let same = |value: &Value| { let mut value = value.clone(); managed::set_entries(&mut value, None); value };
        prop_assert_eq!(same(&after), same(&before));
    }

    #[test]
    fn disjoint_managers_commute(a in configs("p"), b in configs("q")) {
        let fields = deployments();
        let apply = |first: &Value, by: &str, second: &Value, then: &str| {
            let live = applied(&fields, &fields.empty(), first.clone(), by, false).expect("applies");
            let mut live = applied(&fields, &live, second.clone(), then, false).expect("applies");
            let sort = |list: &mut Vec<Value>| list.sort_by_key(Value::to_string);
            for path in ["/metadata/finalizers", "/spec/template/spec/containers/0/env"] {
                if let Some(list) = live.pointer_mut(path).and_then(Value::as_array_mut) { sort(list); }
            }
            managed::set_entries(&mut live, None);
            live
        };
        prop_assert_eq!(apply(&a, "x", &b, "y"), apply(&b, "y", &a, "x"));
    }
}
