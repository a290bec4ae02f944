use super::*;
use serde_json::json;

fn pod_fields() -> FieldPaths {
    FieldPaths::new(&[Field::text("spec.nodeName"), Field::text("status.phase"), Field::flag("spec.hostNetwork")])
}

#[test]
fn what_upstream_stored_is_read() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "dg=="},
        "metadata": {"name": "a", "namespace": "d", "uid": "7", "creationTimestamp": "2026-01-02T03:04:05Z"}});
    let of = facts::type_of("", "v1", "Secret").expect("a type").def();
    let stored = Bytes::from(protobuf::encode(&secret, of));
    let object = Object::from_stored(stored, 9, &FieldPaths::default()).expect("an object");
    assert_eq!((&*object.meta().name, object.revision()), ("a", 9));
    assert_eq!(object.to_value()["data"], secret["data"]);
    assert!(Object::from_stored(Bytes::from_static(b"k8s\0junk"), 9, &FieldPaths::default()).is_err());
}

#[test]
fn the_revision_is_spliced_into_shared_bytes() {
    let value = json!({
        "spec": {"nodeName": "n1", "hostNetwork": true, "containers": [{"name": "c"}]},
        "data": {"metadata": {"name": "decoy"}},
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "d", "resourceVersion": "1", "labels": {"b": "2", "a": "1"}},
    });
    let object = Object::from_value(&value, 42, &pod_fields()).expect("an object");
    let mut served = value;
    served["metadata"]["resourceVersion"] = json!("42");
    assert_eq!(serde_json::from_slice::<Value>(&object.json()).expect("JSON"), served);
    assert_eq!(object.to_value(), served);
    let mut item = BytesMut::new();
    object.write_item_json(&mut item);
    let served = served.as_object_mut().expect("an object");
    served.retain(|key, _| key != "kind" && key != "apiVersion");
    assert_eq!(serde_json::from_slice::<Value>(&item).expect("JSON"), Value::Object(served.clone()));
    let meta = object.meta();
    assert_eq!((&*meta.name, &*meta.namespace), ("a", "d"));
    assert_eq!(meta.label("b"), Some("2"));
    assert_eq!(meta.field("spec.nodeName"), Some("n1"));
    assert_eq!(meta.field("spec.hostNetwork"), Some("true"));
    assert_eq!(meta.field("status.phase"), None);
}

#[test]
fn a_tree_says_of_itself_what_its_encoding_says() {
    let fields = pod_fields();
    for value in [
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "d", "uid": "u", "labels": {"b": null, "a": "1"},
                "deletionTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"nodeName": "n\"1\"", "hostNetwork": true}, "status": {"phase": 3}}),
        json!({"metadata": {"name": null, "deletionTimestamp": null, "labels": null}, "spec": ["x"], "status": null}),
        json!({"kind": "X"}),
    ] {
        let draft = Draft::new(&value, &fields).expect("a draft");
        let stored = Object::from_stored(draft.stored().clone(), 3, &fields).expect("an object");
        assert_eq!(draft.at_revision(3).meta(), stored.meta(), "{value}");
        assert_eq!(draft.at_revision(3).json(), stored.json());
    }
    assert!(Draft::new(&json!({"metadata": {"name": 3}}), &fields).is_err());
}

#[test]
fn foreign_encodings_are_brought_into_our_form() {
    let foreign = br#"{"metadata":{"resourceVersion":"7","name":"x"},"kind":"Node","apiVersion":"v1"}"#;
    let object = Object::from_stored(Bytes::from_static(foreign), 9, &FieldPaths::default()).expect("an object");
    assert!(object.json().starts_with(br#"{"apiVersion":"v1","kind":"Node","metadata":{"resourceVersion":"9","#));
}

#[test]
fn an_empty_metadata_splices_too() {
    let object = Object::from_value(&json!({"kind": "X"}), 5, &FieldPaths::default()).expect("an object");
    assert_eq!(object.json(), r#"{"kind":"X","metadata":{"resourceVersion":"5"}}"#);
}

#[test]
fn a_packed_object_is_the_same_object() {
    let text = "what this is for, and when it takes effect ".repeat(200);
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": text}});
    let plain = Object::from_value(&value, 5, &FieldPaths::default()).expect("an object");
    let packed = plain.at_revision(5).packed();
    assert!(matches!(packed.json, Text::Packed(_)) && packed.stored_len() == plain.stored_len());
    assert_eq!((packed.stored(), packed.json()), (plain.stored(), plain.json()));
    assert_eq!((packed.to_value(), packed.type_meta()), (plain.to_value(), plain.type_meta()));
    let of = facts::type_of("", "v1", "ConfigMap").expect("a type").def();
    assert_eq!(packed.message(of), plain.message(of));
    assert!(Arc::ptr_eq(packed.identity(), plain.identity()));
    let short = Object::from_value(&json!({"kind": "X"}), 5, &FieldPaths::default()).expect("an object").packed();
    assert!(matches!(short.json, Text::Plain(_)));
}

#[test]
fn what_is_no_object_is_refused() {
    for bytes in ["", "[]", "{\"metadata\":{\"name\":3}}", "{\"metadata\":{}} x"] {
        assert!(Object::from_stored(Bytes::from(bytes), 1, &FieldPaths::default()).is_err(), "{bytes}");
    }
}
