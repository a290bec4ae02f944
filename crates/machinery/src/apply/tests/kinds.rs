//! The laws of apply for every built-in kind, with all of its fields.

use super::*;
use crate::testing::{DEPTH, object};

/// An object of a kind. `half` fills every other field of the object and of its spec; `None` all of them.
fn configuration(fields: &FieldManager<'_>, half: Option<usize>) -> Value {
    let mark = ["even", "odd"][half.unwrap_or(0)];
    let marks = |at: usize| half.is_none_or(|half| at % 2 == half).then_some(mark);
    let mut tree = object(fields.of, marks, DEPTH);
    if let Some(spec) = fields.of.field("spec").and_then(|field| field.schema.object()) {
        tree["spec"] = object(spec, marks, DEPTH - 1);
    }
    let tree_fields = crate::value::as_object_mut(&mut tree);
    tree_fields.remove("status");
    tree_fields.insert("apiVersion".to_owned(), json!(fields.api_version));
    tree_fields.insert("kind".to_owned(), json!(fields.kind));
    tree_fields.insert("metadata".to_owned(), json!({"name": "a", "labels": {mark: mark}, "finalizers": [mark]}));
    tree
}

/// Runs a check over every kind that can be patched.
fn every_kind(check: impl Fn(&FieldManager<'_>)) {
    let mut kinds = 0;
    for resource in facts::resources().filter(|resource| resource.verbs.has("patch")) {
        let Some(of) = resource.ty else { continue };
        let api_version = resource.api_version();
        check(&FieldManager {
            of: of.def(),
            kind: &resource.kind,
            api_version: &api_version,
            subresource: "",
            filter: &STATUS,
            versions: &OneVersion,
        });
        kinds += 1;
    }
    assert!(kinds > 80, "only {kinds} kinds were checked");
}

fn unmanaged(mut object: Value) -> Value {
    managed::set_entries(&mut object, None);
    object
}

fn must(fields: &FieldManager<'_>, live: &Value, configuration: &Value, by: &str) -> Value {
    let said = applied(fields, live, configuration.clone(), by, false);
    said.unwrap_or_else(|why| panic!("{} {}: {why}", fields.api_version, fields.kind))
}

#[test]
fn applying_twice_changes_nothing_more_in_any_kind() {
    every_kind(|fields| {
        let whole = configuration(fields, None);
        let once = must(fields, &fields.empty(), &whole, "x");
        let twice = must(fields, &once, &whole, "x");
        assert_eq!(once, twice, "{}", fields.kind);
    });
}

#[test]
fn what_is_no_longer_applied_is_gone_in_any_kind() {
    every_kind(|fields| {
        let (mine, theirs) = (configuration(fields, Some(0)), configuration(fields, Some(1)));
        let before = must(fields, &fields.empty(), &theirs, "y");
        let with = must(fields, &before, &mine, "x");
        let bare = json!({"apiVersion": fields.api_version, "kind": fields.kind, "metadata": {"name": "a"}});
        let after = must(fields, &with, &bare, "x");
        assert_eq!(unmanaged(after), unmanaged(before), "{}", fields.kind);
    });
}

#[test]
fn disjoint_managers_commute_in_any_kind() {
    every_kind(|fields| {
        let (mine, theirs) = (configuration(fields, Some(0)), configuration(fields, Some(1)));
        let both = |first: (&Value, &str), second: (&Value, &str)| {
            let live = must(fields, &fields.empty(), first.0, first.1);
            let mut live = must(fields, &live, second.0, second.1);
            // A set has no order of its own.
            if let Some(list) = live.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
                list.sort_by_key(Value::to_string);
            }
            unmanaged(live)
        };
        assert_eq!(both((&mine, "x"), (&theirs, "y")), both((&theirs, "y"), (&mine, "x")), "{}", fields.kind);
    });
}
