//! One encoding of a change for all who watch it.
//!
//! The watchers of a change are served one after the other by few threads, so the last frame a thread made is nearly
//! always the one it needs next. Nothing else is kept: a cache of frames would hold the recent past in memory once more.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use gates::forms::Media;
use machinery::object::{Meta, Object};

thread_local! {
    static LAST: RefCell<Option<Frame>> = const { RefCell::new(None) };
}

struct Frame {
    /// Which object it is, held so that no other can come to lie at its address.
    object: Arc<Meta>,
    revision: u64,
    event: &'static str,
    media: Media,
    bytes: Bytes,
}

impl Frame {
    fn is_of(&self, media: Media, event: &str, object: &Object) -> bool {
        self.revision == object.revision()
            && self.media == media
            && self.event == event
            && Arc::ptr_eq(&self.object, object.identity())
    }
}

/// The frame of this event, made by `encode` unless this thread just made it.
pub fn shared(media: Media, event: &'static str, object: &Object, encode: impl FnOnce() -> Bytes) -> Bytes {
    LAST.with_borrow_mut(|last| {
        if let Some(frame) = last.as_ref().filter(|frame| frame.is_of(media, event, object)) {
            return frame.bytes.clone();
        }
        let bytes = encode();
        let (revision, object) = (object.revision(), object.identity().clone());
        *last = Some(Frame { object, revision, event, media, bytes: bytes.clone() });
        bytes
    })
}

#[cfg(test)]
mod tests {
    use machinery::object::FieldPaths;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_encoded_once_for_all_its_watchers_and_again_for_what_differs() {
        let tree = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}});
        let object = Object::from_value(&tree, 7, &FieldPaths::default()).expect("an object");
        let mut made = 0;
        let mut frame = |media, event, object: &Object| {
            shared(media, event, object, || {
                made += 1;
                Bytes::from(made.to_string())
            })
        };
        assert_eq!(frame(Media::Json, "ADDED", &object), "1");
        assert_eq!(frame(Media::Json, "ADDED", &object), "1");
        assert_eq!(frame(Media::Json, "DELETED", &object), "2");
        assert_eq!(frame(Media::Protobuf, "DELETED", &object), "3");
        assert_eq!(frame(Media::Protobuf, "DELETED", &object.at_revision(8)), "4");
        let same_text = Object::from_value(&tree, 8, &FieldPaths::default()).expect("an object");
        assert_eq!(frame(Media::Protobuf, "DELETED", &same_text), "5");
    }
}
