//! What a strict reader objects to in a JSON text, in the order of the text.
//!
//! Upstream's decoder complains while it reads, so its complaints also name what a later key of the same name replaces. A tree knows neither;
//! this walk is for texts of which the tree has shown that something is wrong.

use std::collections::HashSet;
use std::fmt;

use facts::{Schema, Type};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::codec::Path;

const MAX_COMPLAINTS: usize = 100;

/// The unknown and duplicate fields of an object in JSON (`unknown field "spec.foo"`); `None` if it cannot be read.
pub fn complaints(json: &[u8], of: &Type) -> Option<Vec<String>> {
    let mut complaints = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.disable_recursion_limit();
    Node { complaints: &mut complaints, shape: Shape::Object(of), path: Path::Root }
        .deserialize(&mut deserializer)
        .ok()?;
    Some(complaints)
}

/// What a value is expected to be.
#[derive(Clone, Copy)]
enum Shape<'a> {
    Object(&'a Type),
    Other(&'a Schema),
}

struct Node<'a> {
    complaints: &'a mut Vec<String>,
    shape: Shape<'a>,
    path: Path<'a>,
}

impl Node<'_> {
    fn complain(&mut self, what: &str, path: Path<'_>) {
        let complaint = format!("{what} field {:?}", path.to_string());
        if self.complaints.len() < MAX_COMPLAINTS && !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let opaque = match self.shape {
            Shape::Object(_) | Shape::Other(Schema::Array(_) | Schema::Map(_)) => false,
            Shape::Other(schema) => schema.object().is_none(),
        };
        if opaque {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the schema")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let of = match self.shape {
            Shape::Object(of) => Some(of),
            Shape::Other(schema) => schema.object(),
        };
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let parent = self.path;
            let (path, shape) = match (of, self.shape) {
                (Some(of), _) => (Path::Key(&parent, &key), of.field(&key).map(|field| Shape::Other(&field.schema))),
                (None, Shape::Other(Schema::Map(entries))) => {
                    (Path::Entry(&parent, &key), Some(Shape::Other(&entries.values)))
                }
                (None, _) => (Path::Key(&parent, &key), None),
            };
            match shape {
                None if of.is_some_and(|of| !of.preserve_unknown) => self.complain("unknown", path),
                _ if seen.contains(&key) => self.complain("duplicate", path),
                _ => {}
            }
            match shape {
                Some(shape) => map.next_value_seed(Node { complaints: &mut *self.complaints, shape, path })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Shape::Other(Schema::Array(list)) = self.shape else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let mut at = 0;
        loop {
            let path = Path::Index(&self.path, at);
            let item = Node { complaints: &mut *self.complaints, shape: Shape::Other(&list.items), path };
            if seq.next_element_seed(item)?.is_none() {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_come_in_the_order_of_the_text() {
        let of = facts::type_named("io.k8s.api.apps.v1.Deployment").expect("Deployments").def();
        let text = br#"{"apiVersion":"apps/v1","kind":"Deployment",
            "metadata":{"name":"d","zz":1,"labels":{"app":"a","app":"b"},"managedFields":[{"fieldsV1":{"a":1,"a":2}}]},
            "spec":{"unknownField":{"a":1,"a":2},"unknownField":"foo","replicas":2,"replicas":3,"aaa":1,
                "template":{"spec":{"containers":[{"name":"n","image":"x","image":"y","ports":[{"containerPort":1,"foo":2,"containerPort":1}]}],
                    "containers":[{"name":"n","image":"x","zoo":1,"image":"y"}]}}},
            "spec":{"bad":1,"template":null}}"#;
        let expected = [
            "unknown field \"metadata.zz\"",
            "duplicate field \"metadata.labels.app\"",
            "unknown field \"spec.unknownField\"",
            "duplicate field \"spec.replicas\"",
            "unknown field \"spec.aaa\"",
            "duplicate field \"spec.template.spec.containers[0].image\"",
            "unknown field \"spec.template.spec.containers[0].ports[0].foo\"",
            "duplicate field \"spec.template.spec.containers[0].ports[0].containerPort\"",
            "duplicate field \"spec.template.spec.containers\"",
            "unknown field \"spec.template.spec.containers[0].zoo\"",
            "duplicate field \"spec\"",
            "unknown field \"spec.bad\"",
        ];
        assert_eq!(complaints(text, of).expect("JSON"), expected);
        assert_eq!(complaints(b"{", of), None);
    }
}
