//! The way of a request's body up to the store, and from there to clients, without a server: for the fuzz target and for objects made at random.

use apiserver::registry::strategy;
use machinery::codec::{self, cbor, protobuf, yaml};
use machinery::gvk::GroupVersion;
use machinery::{Value, schema, value};

use crate::typed;

/// The media types that bodies come in.
pub const MEDIA: [&str; 4] =
    ["application/json", "application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf"];

/// Takes bytes as the body of a create and of an update. Whatever they are, they are refused or understood; an object
/// that was understood is the same after every encoding.
pub fn swallow(media: &str, bytes: &[u8]) {
    let Ok((mut object, _duplicates)) = codec::decode(media, bytes) else { return };
    let Some(version) = GroupVersion::parse(value::text(&object, "apiVersion")) else { return };
    let kind = value::text(&object, "kind").to_owned();
    let Some(facts) = facts::kind(&version.group, &version.version, &kind) else { return };
    let Some(of) = facts.ty.map(|of| of.def()) else { return };
    if schema::conform(&mut object, of).is_err() {
        return;
    }
    for other in [
        codec::decode("application/yaml", yaml::encode(&object).as_bytes()),
        codec::decode("application/cbor", &cbor::encode(&object)),
    ] {
        assert_eq!(other.expect("what was written can be read").0, object);
    }
    if of.message {
        codec::decode(MEDIA[3], &protobuf::encode(&object, of)).expect("what was written can be read");
    }
    schema::default(&mut object, of);
    let rules = strategy(&facts.group, &facts.kind);
    rules.default(&mut object);
    schema::complete(&mut object, of);
    if let Some(Err(error)) = typed::decode(facts, &object) {
        panic!("clients cannot read {object}: {error}");
    }
    let before = object.clone();
    rules.prepare_for_create(&mut object);
    rules.validate(&object);
    rules.warnings(&object, Some(&before));
    let mut after = before.clone();
    rules.prepare_for_update(&mut after, &before);
    rules.validate_update(&after, &object);
    rules.prepare_for_status_update(&mut after, &before);
    rules.validate_status_update(&after, &before);
    for subresource in facts.subresources.iter() {
        rules.prepare_for_subresource_update(&subresource.name, &mut after, &before);
        rules.validate_subresource_update(&subresource.name, &after, &before);
    }
    rules.prepare_for_deletion(&mut after);
    let _held: (bool, Value) = (rules.holds(&after), after);
}
