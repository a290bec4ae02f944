//! The events of a watch as bytes, one after the other as they come.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use common::Clock;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use gates::Asked;
use gates::forms::{Accepted, Media, Shape};
use kinds::table::Tables;
use machinery::Value;
use machinery::codec::{cbor, protobuf};
use machinery::object::{Draft, FieldPaths, Object};
use machinery::query::Query;
use machinery::rest::WatchEvent;
use machinery::status::ApiError;
use rest::{Columns, Watched};
use serde_json::json;

use super::body::Answer;
use super::encode::{message_type, object_protobuf, partial, tables};
use super::frames;

/// How many events that are ready at once go into one piece.
const EVENTS: usize = 64;
/// The bytes that say how long an event in protobuf is.
const LENGTH: usize = 4;

/// How the events of one watch are written.
pub(super) struct Watch {
    accepted: Accepted,
    watched: Option<Watched>,
    rows: Rows,
}

impl Watch {
    pub(super) fn new(
        accepted: Accepted,
        asked: Arc<Asked>,
        watched: Option<Watched>,
        columns: Option<Columns>,
        clock: Clock,
    ) -> Self {
        Self { accepted, watched, rows: Rows { asked, tables: None, columns, clock } }
    }

    fn frame(&mut self, event: &WatchEvent) -> Bytes {
        frame(self.accepted, event, self.watched.as_ref(), &mut self.rows)
    }

    /// Events as they come, one JSON document a line; what is ready at once goes out at once.
    pub(super) fn answer(mut self, events: BoxStream<'static, WatchEvent>) -> Answer {
        let pieces = events.ready_chunks(EVENTS).map(move |events| {
            let mut frames = events.iter().map(|event| self.frame(event));
            match (frames.next(), frames.next()) {
                (Some(only), None) => Ok(only),
                (first, second) => {
                    let mut out = BytesMut::new();
                    first.into_iter().chain(second).chain(frames).for_each(|frame| out.put_slice(&frame));
                    Ok(out.freeze())
                }
            }
        });
        Answer::Stream(pieces.boxed())
    }

    /// One message for each event. A message needs no length in front.
    pub(super) fn messages(
        mut self,
        events: BoxStream<'static, WatchEvent>,
    ) -> BoxStream<'static, Result<Bytes, std::io::Error>> {
        let messages = events.map(move |event| {
            let frame = self.frame(&event);
            Ok(if self.accepted.media == Media::Protobuf { frame.slice(LENGTH..) } else { frame })
        });
        messages.boxed()
    }
}

/// What the rows of one watch have in common.
struct Rows {
    /// How much of the objects goes along.
    asked: Arc<Asked>,
    /// The columns, which are said with the first row and known from then on.
    tables: Option<Tables>,
    /// The columns of a custom resource.
    columns: Option<Columns>,
    clock: Clock,
}

impl Rows {
    /// A table with the row of one object.
    fn table(&mut self, object: &Arc<Object>, query: &Query) -> Value {
        let metadata = json!({"resourceVersion": object.revision().to_string()});
        let one = std::slice::from_ref(object);
        let now = (self.clock)();
        match &self.tables {
            Some(tables) => tables.rows(one, query, &metadata, now),
            None => {
                let tables = tables(self.columns.take(), || Tables::of(object));
                self.tables.insert(tables).table(one, query, &metadata, now)
            }
        }
    }
}

/// A bookmark in a table: the row of an object that has nothing but the mark. The end of the initial events can be seen however
/// little of objects goes along.
fn table_bookmark(watched: &Watched, revision: u64, end: bool, rows: &mut Rows) -> Value {
    let tree = bookmark(Shape::Whole, Some(watched), revision, end);
    let Ok(draft) = Draft::new(&tree, &FieldPaths::new(&[])) else { return tree };
    let object = Arc::new(draft.at_revision(revision));
    let asked = rows.asked.clone();
    if end && asked.query.get("includeObject") == "None" {
        return rows.table(&object, &Query::default());
    }
    rows.table(&object, &asked.query)
}

/// One event. What is the same for all watchers is made once.
fn frame(accepted: Accepted, event: &WatchEvent, watched: Option<&Watched>, rows: &mut Rows) -> Bytes {
    let media = accepted.media;
    let (name, object) = match event {
        WatchEvent::Added(object) => ("ADDED", object),
        WatchEvent::Modified(object) => ("MODIFIED", object),
        WatchEvent::Deleted(object) => ("DELETED", object),
        WatchEvent::Bookmark { revision, initial_events_end } => {
            let (revision, end) = (*revision, *initial_events_end);
            let tree = match watched.filter(|_| accepted.shape == Shape::Table) {
                Some(watched) => table_bookmark(watched, revision, end, rows),
                None => bookmark(accepted.shape, watched, revision, end),
            };
            return tree_frame(media, "BOOKMARK", &tree);
        }
        WatchEvent::Error(error) => return tree_frame(media, "ERROR", &ApiError::to_value(error)),
    };
    match accepted.shape {
        Shape::Whole => frames::shared(media, name, object, || match media {
            Media::Json => json_frame(name, object),
            Media::Protobuf => match object_protobuf(object) {
                Some(bytes) => protobuf_frame(name, &bytes),
                None => tree_frame(media, name, &object.to_value()),
            },
            _ => tree_frame(media, name, &object.to_value()),
        }),
        Shape::Table => {
            let asked = rows.asked.clone();
            tree_frame(media, name, &rows.table(object, &asked.query))
        }
        Shape::Metadata | Shape::MetadataList => tree_frame(media, name, &partial(object)),
    }
}

fn json_frame(name: &str, object: &Object) -> Bytes {
    let mut out = BytesMut::with_capacity(object.json_len() + 48);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(name.as_bytes());
    out.put_slice(b"\",\"object\":");
    object.write_json(&mut out);
    out.put_slice(b"}\n");
    out.freeze()
}

fn tree_frame(media: Media, name: &str, tree: &Value) -> Bytes {
    match media {
        // The type comes first, as upstream's and as in the frames of whole objects: readers may go by it.
        // Who asks for YAML is refused before anything is watched: its documents have no frames.
        Media::Json | Media::Yaml => format!("{{\"type\":\"{name}\",\"object\":{tree}}}\n").into(),
        Media::Protobuf => {
            // An event's object is an envelope inside a RawExtension; the event itself has none.
            let object = message_type(tree).map(|of| protobuf::encode(tree, of)).unwrap_or_default();
            protobuf_frame(name, &object)
        }
        Media::Cbor => cbor::event(name, tree).into(),
    }
}

fn protobuf_frame(name: &str, object: &[u8]) -> Bytes {
    let event = protobuf::encode_event(name, object);
    let mut frame = BytesMut::with_capacity(event.len() + LENGTH);
    frame.put_u32(u32::try_from(event.len()).unwrap_or(u32::MAX));
    frame.put_slice(&event);
    frame.freeze()
}

fn bookmark(shape: Shape, watched: Option<&Watched>, revision: u64, initial_events_end: bool) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
    if initial_events_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    match shape {
        Shape::Metadata | Shape::MetadataList => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        }
        Shape::Whole | Shape::Table => match watched {
            Some(watched) => json!({"kind": watched.kind, "apiVersion": watched.api_version, "metadata": metadata}),
            None => json!({"metadata": metadata}),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_any_shape_begins_with_its_type() {
        let tree = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a"}});
        let frame = tree_frame(Media::Json, "ADDED", &tree);
        assert!(frame.starts_with(br#"{"type":"ADDED","object":{"#) && frame.ends_with(b"}\n"), "{frame:?}");
        assert_eq!(serde_json::from_slice::<Value>(&frame).expect("JSON")["object"], tree);
    }

    #[test]
    fn the_end_of_a_streaming_list_is_a_row_of_its_table() {
        let watched = Watched { api_version: "v1".to_owned(), kind: "Pod".to_owned() };
        let check = |query: &str, kind: &str| {
            let asked = Asked { query: Query::parse(query), forms: Default::default() };
            let clock: Clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
            let mut rows = Rows { asked: Arc::new(asked), tables: None, columns: None, clock };
            let accepted = Accepted { media: Media::Json, shape: Shape::Table, beta: false };
            let mut next = |end: bool| {
                let event = WatchEvent::Bookmark { revision: 7, initial_events_end: end };
                let frame = frame(accepted, &event, Some(&watched), &mut rows);
                serde_json::from_slice::<Value>(&frame).expect("JSON")
            };
            let end = next(true);
            assert_eq!((&end["type"], &end["object"]["kind"]), (&json!("BOOKMARK"), &json!("Table")));
            assert_eq!(end["object"]["columnDefinitions"][0]["name"], "Name");
            let row = &end["object"]["rows"][0];
            assert_eq!(
                row["cells"].as_array().map(Vec::len),
                end["object"]["columnDefinitions"].as_array().map(Vec::len)
            );
            assert_eq!(row["object"]["kind"], kind, "{row}");
            assert_eq!(row["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{row}");
            let later = next(false);
            assert_eq!(later["object"].get("columnDefinitions"), Some(&Value::Null), "columns are said once");
        };
        check("", "PartialObjectMetadata");
        check("includeObject=None", "PartialObjectMetadata");
        check("includeObject=Object", "Pod");
    }
}
