//! Against upstream's own goldens: the same object in JSON and in protobuf.

use std::path::{Path, PathBuf};

use super::*;

/// Where upstream's published facts are, when they are.
fn goldens() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/upstream/wire");
    folder.is_dir().then_some(folder)
}

#[test]
fn upstreams_goldens_are_read_and_written_without_loss() {
    let Some(folder) = goldens() else {
        eprintln!("upstream's facts are not beside the repository: nothing to compare with");
        return;
    };
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
                failures.push(format!("{name}: decoded differs at {}", difference(&got, &expect, "")))
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

/// The first path at which two trees differ.
fn difference(got: &Value, expect: &Value, path: &str) -> String {
    match (got, expect) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()) {
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) if x == y => {}
                    (Some(x), Some(y)) => return difference(x, y, &format!("{path}.{key}")),
                    (x, y) => return format!("{path}.{key}: {x:?} instead of {y:?}"),
                }
            }
            String::new()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let at = a.iter().zip(b).position(|(x, y)| x != y).unwrap_or(0);
            difference(&a[at], &b[at], &format!("{path}[{at}]"))
        }
        _ => format!("{path}: {got} instead of {expect}"),
    }
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

#[test]
fn durations_are_gos() {
    for (nanos, text) in [
        (0, "0s"),
        (1_500_000_000, "1.5s"),
        (3_723_000_000_000, "1h2m3s"),
        (250_000_000, "250ms"),
        (-1, "-1ns"),
        (60_000_000_000, "1m0s"),
    ] {
        assert_eq!(special::go_duration(nanos), text);
        assert_eq!(special::parse_go_duration(text), Some(nanos));
    }
    assert_eq!(special::parse_go_duration("5"), None);
}
