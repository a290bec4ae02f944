//! Against upstream's own goldens: the same object in JSON and in protobuf.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::*;

#[test]
fn upstreams_goldens_are_read_and_written_without_loss() {
    let Some(folder) = goldens::upstream("wire") else { return };
    let mut compared = 0;
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "pb") {
            continue;
        }
        let bytes = std::fs::read(&path).expect("a golden");
        let json = std::fs::read_to_string(path.with_extension("json")).expect("its JSON");
        let expect: Value = serde_json::from_str(&json).expect("JSON");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        // A few goldens are of types that are no kinds, or of versions that are served no more.
        let Some(parsed) = GroupVersion::parse(value::text(&expect, "apiVersion")) else { continue };
        let Some(id) = facts::type_of(&parsed.group, &parsed.version, value::text(&expect, "kind")) else { continue };
        compared += 1;
        match decode(&bytes, None) {
            Err(error) => failures.push(format!("{name}: {error}")),
            Ok(got) if got != expect => {
                failures.push(format!("{name}: {}", goldens::difference("", &got, &expect).unwrap_or_default()))
            }
            Ok(got) => {
                let again = encode(&got, id.def());
                if again != bytes {
                    let at = again.iter().zip(&bytes).position(|(a, b)| a != b).unwrap_or(again.len().min(bytes.len()));
                    failures.push(format!("{name}: encoded differs at byte {at} of {}", bytes.len()));
                }
            }
        }
    }
    assert!(compared > 50, "only {compared} goldens were compared");
    assert!(failures.is_empty(), "{} of {compared}:\n{}", failures.len(), failures.join("\n"));
}

/// What upstream's goldens prove holds for objects of our own making, whose encoding is known by its checksum.
#[test]
fn every_field_of_every_kind_is_read_and_written_without_loss() {
    let mut lines = Vec::new();
    for (name, of, mut object) in crate::testing::every_kind().filter(|(_, of, _)| of.message) {
        // Messages within messages do not say what they are.
        for template in value::list_mut(&mut object, "spec.volumeClaimTemplates") {
            value::remove(template, "apiVersion");
            value::remove(template, "kind");
        }
        let bytes = encode(&object, of);
        let mut again = decode(&bytes, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        // What is written as null in JSON is nothing at all here.
        crate::schema::complete(&mut again, of);
        assert_eq!(goldens::difference(&name, &again, &object), None);
        lines.push(format!("{name} {}", BASE64.encode(bytes)));
    }
    assert!(lines.len() > 80, "only {} kinds were checked", lines.len());
    goldens::facts("machinery/protobuf", lines, None);
}

#[test]
fn what_is_no_protobuf_is_refused() {
    let pod = facts::type_of("", "v1", "Pod").expect("a type").def();
    assert_eq!(decode(b"{}", None), Err(Error::NoMagic));
    for bytes in [&b"k8s\0\x0a"[..], b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"k8s\0\x0b"] {
        assert_eq!(decode(bytes, Some(("Pod", pod))), Err(Error::Truncated), "{bytes:?}");
    }
    assert!(matches!(decode(b"k8s\0\x0a\x06\x0a\x01x\x12\x01y", None), Err(Error::UnknownKind { .. })));
}

#[test]
fn nesting_is_bounded() {
    // A schema inside a schema inside a schema: `not` is field 28 of its type.
    let mut bytes = Vec::new();
    for _ in 0..1000 {
        let mut outer = Vec::new();
        super::wire::put_bytes(&mut outer, 28, &bytes);
        bytes = outer;
    }
    let schema = facts::type_named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    assert_eq!(decode_message(&bytes, schema.expect("a type").def()), Err(Error::TooDeep));
}
