use super::*;
use k8s_openapi::api::core::v1::Pod;
use machinery::object::FieldPaths;
use serde_json::json;

/// The same pod as the server has it and as it comes over the wire.
fn both() -> [Original; 2] {
    let fields = json!([{"manager": "x", "fieldsV1": {"f:spec": {}}}]);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": {"app": "web", "odd": null}, "managedFields": fields, "name": "a", "namespace": "d", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let shared = Object::from_value(&pod, 7, &FieldPaths::default()).expect("an object");
    pod["metadata"]["resourceVersion"] = json!("7");
    let own = Original::own(pod.to_string().as_bytes()).expect("an object");
    [Original::shared(Arc::new(shared)), own]
}

#[test]
fn an_object_is_named_and_selected_before_it_is_read_and_read_the_same_from_both_transports() {
    let [shared, own] = both();
    for original in [&shared, &own] {
        assert_eq!(format!("{original:?}"), "Original(d/a@7)");
        assert_eq!(original.uid(), "u");
        let picks = |text| original.is_selected(&LabelSelector::parse(text).expect("a selector"));
        assert!(picks("app=web") && picks("odd=") && !picks("app=db") && !picks("other"));
        let meta = original.read_metadata().expect("metadata").metadata;
        assert_eq!((meta.name.as_deref(), meta.managed_fields), (Some("a"), None));
    }
    let (shared, own) = (shared.read::<Pod>().expect("a pod"), own.read::<Pod>().expect("a pod"));
    assert_eq!(shared, own);
    assert_eq!(own.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(own.metadata.managed_fields, None);
}

#[test]
fn what_is_kept_of_the_wire_has_no_record_of_owners() {
    let [_, Original(Kept::Own(own))] = both() else { panic!("from the wire") };
    let text = String::from_utf8(own.text.to_vec()).expect("text");
    assert!(text.contains(r#""managedFields":null,"name":"a""#) && !text.contains("f:spec"), "{text}");
}

#[test]
fn what_cannot_be_read_says_which_object_it_is() {
    let odd = br#"{"metadata":{"name":"odd","uid":"u","resourceVersion":"4"},"spec":3}"#;
    let error = Original::own(odd).expect("it has a name").read::<Pod>().expect_err("no spec");
    assert_eq!((error.object.name.as_deref(), error.object.kind.as_deref()), (Some("odd"), Some("Pod")));
    assert!(Original::own(b"[]").is_err());
}
