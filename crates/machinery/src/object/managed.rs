//! Where an encoding says who owns which field, and where its metadata end.
//!
//! Field ownership is the API server's own book-keeping, and often half of an object's text. The parts of the process never read it,
//! so it is cut out of the text before that becomes a struct: to find its end is many times cheaper than to build a tree of it. The same goes for all
//! that follows the metadata, for those who want nothing else.

use std::ops::Range;

const KEY: &[u8] = b"\"managedFields\"";

/// The member `managedFields` of the object whose members begin at `start`, with the comma that goes with it.
///
/// `None` where there is none, and where the text is not as [`super::encode`] writes it: then nothing is cut, which is never wrong.
pub(super) fn member(json: &[u8], start: usize) -> Option<Range<usize>> {
    members(json, start).find(|member| member.is_record(json)).map(|member| member.cut(start))
}

/// As [`member`], an empty one where there is none, and what follows the object's last member: its closing brace.
pub(super) fn member_and_end(json: &[u8], start: usize) -> Option<(Range<usize>, usize)> {
    let (mut record, mut last) = (start..start, None);
    for member in members(json, start) {
        if member.is_record(json) {
            record = member.cut(start);
        }
        last = Some(member);
    }
    last.filter(|member| member.last).map(|member| (record, member.end))
}

/// A member of an object: where it begins, where its key and its value end, and whether no other follows.
struct Member {
    at: usize,
    colon: usize,
    end: usize,
    last: bool,
}

impl Member {
    fn is_record(&self, json: &[u8]) -> bool {
        json[self.at..self.colon] == *KEY
    }

    fn cut(&self, start: usize) -> Range<usize> {
        match self.last {
            false => self.at..self.end + 1,
            // The comma before it, unless it is alone.
            true => self.at - usize::from(self.at > start)..self.end,
        }
    }
}

/// The members from `start` on, up to the last or to what is not as it should be.
fn members(json: &[u8], start: usize) -> impl Iterator<Item = Member> {
    let mut next = Some(start);
    std::iter::from_fn(move || {
        let at = next.take()?;
        let colon = string_end(json, at)?;
        if json.get(colon) != Some(&b':') {
            return None;
        }
        let end = value_end(json, colon + 1)?;
        let last = match json.get(end) {
            Some(b',') => false,
            Some(b'}') => true,
            _ => return None,
        };
        next = (!last).then_some(end + 1);
        Some(Member { at, colon, end, last })
    })
}

/// What follows the string that begins at `at`.
fn string_end(json: &[u8], at: usize) -> Option<usize> {
    if json.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', json.get(at..)?)?;
        match json[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// What follows the value that begins at `at`.
fn value_end(json: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match json.get(at)? {
            b'"' => at = string_end(json, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            // A number or a word ends where its parent goes on.
            b',' | b'}' | b']' if depth == 0 => return Some(at),
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::super::{Object, encode};
    use crate::object::FieldPaths;

    fn cut(object: &Value) -> Value {
        let stored = Object::from_stored(encode(object), 7, &FieldPaths::default()).expect("an object");
        let cut: Value = serde_json::from_slice(&stored.unmanaged()).expect("JSON again");
        let partial: Value = serde_json::from_slice(&stored.unmanaged_metadata()).expect("JSON again");
        assert_eq!(partial["metadata"], cut["metadata"], "{object}");
        // Of metadata with nothing in them the end is not looked for.
        let whole = cut["metadata"].as_object().is_none_or(|metadata| metadata.is_empty() && object == &cut);
        assert_eq!(partial.get("spec"), cut.get("spec").filter(|_| whole), "{object}");
        cut
    }

    fn without(mut object: Value) -> Value {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        object
    }

    #[test]
    fn the_record_of_owners_goes_wherever_it_stands() {
        let record = json!([{"manager": "a\"}],", "fieldsV1": {"f:metadata": {"k:{\"name\":\"\\\"[\"}": {".": {}}}}}]);
        for metadata in [
            json!({"managedFields": record}),
            json!({"labels": {"managedFields": "["}, "managedFields": record}),
            json!({"managedFields": record, "name": "a"}),
            json!({"annotations": {"a": "{\"managedFields\":[]}"}, "generation": 3, "managedFields": record, "name": "a"}),
            json!({"managedFields": null, "uid": "u"}),
            json!({"name": "a"}),
            json!({}),
        ] {
            let object =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"managedFields": [1]}});
            assert_eq!(cut(&object), without(object.clone()), "{object}");
        }
    }

    #[test]
    fn what_is_not_ours_is_left_as_it_is() {
        let spaced = br#"{"metadata":{"name": "a", "managedFields": [] }}"#;
        assert_eq!(super::member(spaced, 13), None);
        for torn in 13..spaced.len() {
            assert_eq!(super::member(&spaced[..torn], 13), None);
            assert_eq!(super::member_and_end(&spaced[..torn], 13), None);
        }
        assert_eq!(super::member(b"", 4), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from), "[ -~]{0,6}".prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let entries = prop::collection::vec(("[ -~]{0,4}", inner.clone()), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                entries.prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_else_is_lost(members in prop::collection::btree_map("[a-z\"\\\\{}\\[\\],]{1,4}", any_json(), 0..5), record in any_json()) {
            let mut metadata: Map<String, Value> = members.into_iter().collect();
            metadata.insert("managedFields".to_owned(), record);
            let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
            prop_assert_eq!(cut(&object), without(object.clone()));
        }
    }
}
