//! From a [`Payload`] to bytes, in the form that was negotiated. Objects are copied from their one encoding, never encoded again.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use machinery::codec::{cbor, protobuf, yaml};
use machinery::gvk::GroupVersion;
use machinery::object::{Draft, FieldPaths, Object};
use machinery::rest::{List, Payload, Response, WatchEvent};
use machinery::status::{ApiError, Reason};
use machinery::{Value, value};
use serde_json::json;

use super::body::Answer;
use super::frames;
use super::gzip;
use super::negotiate::{self, Accepted, Media, PLAIN, Shape, accepted};
use crate::messages::Switch;
use crate::query::Query;
use crate::rest::{Clock, Watched, package};
use crate::table::Tables;

/// The pieces a long list is sent in.
const PIECE: usize = 256 * 1024;
/// How many events that are ready at once go into one piece.
const EVENTS: usize = 64;
/// The bytes that say how long an event in protobuf is.
const LENGTH: usize = 4;

/// How many bytes have to be worked on to encode an answer. What is copied as it is, or sent piece by piece, is no work.
pub fn weight(headers: &HeaderMap, query: &Query, response: &Response) -> usize {
    let copied = || {
        let Ok(accepted) = accepted(headers, true) else { return true };
        let plain = accepted.media == Media::Json && !negotiate::pretty(headers, query);
        accepted.shape == Shape::Whole && plain
    };
    match response.body() {
        Payload::List(list) if !copied() => list.items.iter().map(|item| item.json_len()).sum(),
        Payload::Object(object) if gzip::wanted(headers) || !copied() => object.json_len(),
        _ => 0,
    }
}

/// Encodes an answer for the client with these headers.
pub fn encode(headers: &HeaderMap, query: &Query, response: Response, clock: &Clock) -> http::Response<Answer> {
    let (mut parts, payload) = response.into_parts();
    // Only objects have several forms; what is bytes already says itself what it is.
    let failed = parts.status.is_client_error() || parts.status.is_server_error();
    let accepted = match &payload {
        Payload::Empty | Payload::Bytes(_) | Payload::Stream(_) => Ok(Some(PLAIN)),
        // What went wrong is told even to those who take none of our forms.
        Payload::Value(_) if failed => Ok(negotiate::of_errors(headers).map(|media| Accepted { media, ..PLAIN })),
        Payload::Value(tree) => accepted(headers, !is_answer(tree)).map(Some),
        _ => accepted(headers, true).map(Some),
    };
    let mut pretty = negotiate::pretty(headers, query);
    let (accepted, payload) = match accepted {
        Ok(Some(accepted)) => (accepted, payload),
        Ok(None) => {
            pretty = true;
            (PLAIN, payload)
        }
        Err(error) => {
            pretty = true;
            parts.status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::NOT_ACCEPTABLE);
            (PLAIN, Payload::Value(error.to_value()))
        }
    };
    // Bytes were made elsewhere and are sent as they are; a watch must not wait for its next piece to be full.
    let packs = matches!(payload, Payload::Value(_) | Payload::Object(_) | Payload::List(_)) && gzip::wanted(headers);
    let (body, content): (Answer, Option<&'static str>) = match payload {
        Payload::Empty => (Answer::Full(None), None),
        Payload::Bytes(bytes) => (bytes.into(), None),
        Payload::Stream(stream) => match parts.extensions.remove::<Switch>() {
            Some(switch) => {
                switch.begin(false, stream);
                (Answer::Full(None), None)
            }
            None => (Answer::Stream(stream), None),
        },
        Payload::Value(tree) if accepted.shape != Shape::Whole && has_shapes(&tree) => {
            match shaped(accepted, tree, query, pretty, clock) {
                Ok(answer) => answer,
                Err(error) => refusal(&mut parts.status, headers, pretty, &error),
            }
        }
        Payload::Value(tree) => {
            let media = writable(accepted.media, &tree);
            (tree_bytes(media, &tree, pretty).into(), Some(media.name()))
        }
        Payload::Object(object) => match single(accepted.shape, || object.type_meta()) {
            Ok(()) => object_answer(accepted, &object, query, pretty, clock),
            Err(error) => refusal(&mut parts.status, headers, pretty, &error),
        },
        Payload::List(list) => match several(accepted.shape, &list.api_version, &list.kind) {
            Ok(()) => list_answer(accepted, list, query, pretty, clock),
            Err(error) => refusal(&mut parts.status, headers, pretty, &error),
        },
        Payload::Watch(events) => {
            let watched = parts.extensions.remove::<Watched>();
            let watch = Watch::new(accepted, query, watched, clock.clone());
            match parts.extensions.remove::<Switch>() {
                Some(switch) => {
                    switch.begin(accepted.media == Media::Json, watch.messages(events));
                    (Answer::Full(None), None)
                }
                None => (watch.answer(events), Some(accepted.media.stream_name())),
            }
        }
    };
    if let Some(content) = content {
        parts.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content));
    }
    let body = if packs { gzip::compress(body, &mut parts.headers) } else { body };
    http::Response::from_parts(parts, body)
}

/// An answer that cannot be given in the shape that was asked for.
fn refusal(
    status: &mut StatusCode,
    headers: &HeaderMap,
    pretty: bool,
    error: &ApiError,
) -> (Answer, Option<&'static str>) {
    *status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::NOT_ACCEPTABLE);
    let (media, pretty) = negotiate::of_errors(headers).map_or((Media::Json, true), |media| (media, pretty));
    (tree_bytes(media, &error.to_value(), pretty).into(), Some(media.name()))
}

/// One object has no shape of a list.
fn single(shape: Shape, of: impl FnOnce() -> (String, String)) -> Result<(), ApiError> {
    if shape != Shape::MetadataList {
        return Ok(());
    }
    let (api_version, kind) = of();
    let message = "you requested PartialObjectMetadataList, but the requested object is not a list";
    Err(ApiError::new(Reason::NotAcceptable, format!("{message} ({})", go_pointer(&api_version, &kind))))
}

/// A list has no shape of one object.
fn several(shape: Shape, api_version: &str, kind: &str) -> Result<(), ApiError> {
    if shape != Shape::Metadata {
        return Ok(());
    }
    let message = "you requested PartialObjectMetadata, but the requested object is a list";
    Err(ApiError::new(Reason::NotAcceptable, format!("{message} ({})", go_pointer(api_version, kind))))
}

/// The type that upstream holds objects of a kind in.
fn go_pointer(api_version: &str, kind: &str) -> String {
    let group = GroupVersion::parse(api_version).map(|version| version.group).unwrap_or_default();
    format!("*{}.{kind}", package(&group))
}

/// Whether a tree is the answer to a question that nothing is kept of: there are no tables of those.
fn is_answer(tree: &Value) -> bool {
    let kind = value::text(tree, "kind");
    kind.ends_with("Review") || kind == "TokenRequest"
}

/// Whether a tree is an object, or a list of them, and not a word about what happened.
fn has_shapes(tree: &Value) -> bool {
    tree.get("metadata").is_some_and(Value::is_object) && value::text(tree, "kind") != "Status"
}

/// What is made up for an answer, a review or a scale, in another shape than its own.
fn shaped(
    accepted: Accepted,
    tree: Value,
    query: &Query,
    pretty: bool,
    clock: &Clock,
) -> Result<(Answer, Option<&'static str>), ApiError> {
    let fields = FieldPaths::new(&[]);
    let object = |tree: &Value| -> Result<Arc<Object>, ApiError> {
        let revision = value::text(tree, "metadata.resourceVersion").parse().unwrap_or(0);
        let draft = Draft::new(tree, &fields).map_err(ApiError::internal)?;
        Ok(Arc::new(draft.at_revision(revision)))
    };
    let (api_version, kind) = (value::text(&tree, "apiVersion").to_owned(), value::text(&tree, "kind").to_owned());
    if !kind.ends_with("List") {
        single(accepted.shape, || (api_version, kind))?;
        return Ok(object_answer(accepted, &object(&tree)?, query, pretty, clock));
    }
    several(accepted.shape, &api_version, &kind)?;
    let items = value::list(&tree, "items").iter().map(object).collect::<Result<_, _>>()?;
    let list = List { kind, api_version, revision: 0, items, next: None, remaining: None };
    Ok(list_answer(accepted, list, query, pretty, clock))
}

fn tree_bytes(media: Media, tree: &Value, pretty: bool) -> Bytes {
    match media {
        Media::Json if pretty => serde_json::to_vec_pretty(tree).map(Bytes::from).unwrap_or_default(),
        Media::Json => {
            let mut bytes = serde_json::to_vec(tree).unwrap_or_default();
            bytes.push(b'\n');
            Bytes::from(bytes)
        }
        Media::Yaml => Bytes::from(yaml::encode(tree)),
        Media::Cbor => Bytes::from(cbor::encode(tree)),
        Media::Protobuf => match message_type(tree) {
            Some(of) => Bytes::from(protobuf::encode(tree, of)),
            None => Bytes::new(),
        },
    }
}

/// The protobuf message of a tree's kind, where it has one.
fn message_type(tree: &Value) -> Option<&'static facts::Type> {
    named_type(value::text(tree, "apiVersion"), value::text(tree, "kind"))
}

/// The negotiated encoding, or JSON for what has no protobuf form: custom resources, discovery.
fn writable(media: Media, tree: &Value) -> Media {
    if media == Media::Protobuf && message_type(tree).is_none() { Media::Json } else { media }
}

fn object_answer(
    accepted: Accepted,
    object: &Arc<Object>,
    query: &Query,
    pretty: bool,
    clock: &Clock,
) -> (Answer, Option<&'static str>) {
    let content = Some(accepted.media.name());
    if accepted.media == Media::Protobuf {
        if accepted.shape == Shape::Whole
            && let Some(bytes) = object_protobuf(object)
        {
            return (Bytes::from(bytes).into(), content);
        }
        let mut tree = if accepted.shape == Shape::Whole { object.to_value() } else { partial(object) };
        rename(accepted, &mut tree);
        let media = writable(accepted.media, &tree);
        return (tree_bytes(media, &tree, pretty).into(), Some(media.name()));
    }
    match accepted.shape {
        Shape::Whole if accepted.media == Media::Json && !pretty => {
            let mut out = BytesMut::with_capacity(object.json_len() + 1);
            object.write_json(&mut out);
            out.put_u8(b'\n');
            (out.freeze().into(), content)
        }
        Shape::Whole => (tree_bytes(accepted.media, &object.to_value(), pretty).into(), content),
        Shape::Table => {
            let mut table = Tables::of(object).table(
                std::slice::from_ref(object),
                query,
                &json!({"resourceVersion": object.revision().to_string()}),
                clock(),
            );
            rename(accepted, &mut table);
            (tree_bytes(accepted.media, &table, pretty).into(), content)
        }
        Shape::Metadata | Shape::MetadataList => {
            let mut tree = partial(object);
            rename(accepted, &mut tree);
            (tree_bytes(accepted.media, &tree, pretty).into(), content)
        }
    }
}

fn list_answer(
    accepted: Accepted,
    list: List,
    query: &Query,
    pretty: bool,
    clock: &Clock,
) -> (Answer, Option<&'static str>) {
    let content = Some(accepted.media.name());
    let metadata = list_metadata(&list);
    match accepted.shape {
        Shape::Whole if accepted.media == Media::Json && !pretty => (list_json(list, &metadata), content),
        Shape::Whole if accepted.media == Media::Protobuf && item_type(&list).is_some() => {
            (list_protobuf(list, &metadata), content)
        }
        Shape::Whole => {
            let items: Vec<Value> = list.items.iter().map(|object| item(object)).collect();
            let tree = json!({"kind": list.kind, "apiVersion": list.api_version, "metadata": metadata, "items": items});
            let media = writable(accepted.media, &tree);
            (tree_bytes(media, &tree, pretty).into(), Some(media.name()))
        }
        Shape::Table => {
            let kind = list.kind.strip_suffix("List").unwrap_or(&list.kind);
            let mut table = Tables::named(&list.api_version, kind).table(&list.items, query, &metadata, clock());
            rename(accepted, &mut table);
            (tree_bytes(accepted.media, &table, pretty).into(), content)
        }
        Shape::Metadata | Shape::MetadataList => {
            let items: Vec<Value> = list.items.iter().map(partial).collect();
            let mut tree = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items});
            rename(accepted, &mut tree);
            (tree_bytes(accepted.media, &tree, pretty).into(), content)
        }
    }
}

/// Gives what is of `meta.k8s.io/v1` the name of the older version, for those who asked for that.
fn rename(accepted: Accepted, tree: &mut Value) {
    if !accepted.beta {
        return;
    }
    let older = |object: &mut Value| {
        if value::text(object, "kind") == "PartialObjectMetadata" {
            value::set(object, "apiVersion", "meta.k8s.io/v1beta1");
        }
    };
    for item in tree.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        older(item);
    }
    for row in tree.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        row.get_mut("object").into_iter().for_each(older);
    }
    value::set(tree, "apiVersion", "meta.k8s.io/v1beta1");
}

fn list_metadata(list: &List) -> Value {
    // A list that was made up for the answer has no revision.
    let mut metadata = json!({});
    if list.revision > 0 {
        metadata["resourceVersion"] = json!(list.revision.to_string());
    }
    if let Some(next) = &list.next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}

/// Items of a list carry neither `kind` nor `apiVersion`: the list says it for all.
fn item(object: &Object) -> Value {
    let mut tree = object.to_value();
    if let Some(tree) = tree.as_object_mut() {
        tree.remove("kind");
        tree.remove("apiVersion");
    }
    tree
}

/// A list as it goes, in pieces, so that a long one is never whole in memory.
fn list_json(list: List, metadata: &Value) -> Answer {
    let head = json!({"kind": list.kind, "apiVersion": list.api_version, "metadata": metadata}).to_string();
    let mut out = BytesMut::with_capacity(
        PIECE.min(head.len() + 64 + list.items.iter().map(|item| item.json_len()).sum::<usize>()),
    );
    out.put_slice(&head.as_bytes()[..head.len() - 1]);
    out.put_slice(b",\"items\":[");
    let mut items = list.items.into_iter();
    let mut first = true;
    let mut fill = move |out: &mut BytesMut| -> bool {
        for object in items.by_ref() {
            if !std::mem::take(&mut first) {
                out.put_u8(b',');
            }
            object.write_item_json(out);
            if out.len() >= PIECE {
                return true;
            }
        }
        out.put_slice(b"]}\n");
        false
    };
    if !fill(&mut out) {
        return out.freeze().into();
    }
    let rest = stream::unfold(Some(fill), |state| async move {
        let mut fill = state?;
        let mut out = BytesMut::with_capacity(PIECE + 8192);
        let more = fill(&mut out);
        Some((Ok(out.freeze()), more.then_some(fill)))
    });
    Answer::Stream(stream::iter([Ok(out.freeze())]).chain(rest).boxed())
}

/// The protobuf message of a list's items, where they have one.
fn item_type(list: &List) -> Option<&'static facts::Type> {
    named_type(&list.api_version, list.kind.strip_suffix("List")?)
}

fn named_type(api_version: &str, kind: &str) -> Option<&'static facts::Type> {
    if matches!(kind, "APIVersions" | "APIGroup" | "APIGroupList" | "APIResourceList") {
        // Discovery tells its version in other words, or not at all.
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
        return facts::type_named(&name).map(facts::TypeId::def).filter(|of| of.message);
    }
    let version = GroupVersion::parse(api_version)?;
    let of = facts::type_of(&version.group, &version.version, kind)?.def();
    of.message.then_some(of)
}

/// An object as protobuf, if it has such a form.
fn object_protobuf(object: &Object) -> Option<Vec<u8>> {
    let (api_version, kind) = object.type_meta();
    let of = named_type(&api_version, &kind)?;
    Some(protobuf::envelope(&api_version, &kind, object.message(of)))
}

/// A list as protobuf, in pieces, from messages that were made once for all readers.
fn list_protobuf(list: List, metadata: &Value) -> Answer {
    let of = item_type(&list).expect("asked before");
    // The length of the whole stands before it.
    let length: usize = list.items.iter().map(|object| protobuf::item_len(object.message(of))).sum();
    let mut out = protobuf::list_head(&list.api_version, &list.kind, metadata, length);
    out.reserve(PIECE.min(length + 16));
    let mut items = list.items.into_iter();
    let mut fill = move |out: &mut Vec<u8>| -> bool {
        for object in items.by_ref() {
            protobuf::put_item(out, object.message(of));
            if out.len() >= PIECE {
                return true;
            }
        }
        out.extend_from_slice(&protobuf::LIST_TAIL);
        false
    };
    if !fill(&mut out) {
        return Bytes::from(out).into();
    }
    let rest = stream::unfold(Some(fill), |state| async move {
        let mut fill = state?;
        let mut out = Vec::with_capacity(PIECE + 8192);
        let more = fill(&mut out);
        Some((Ok(Bytes::from(out)), more.then_some(fill)))
    });
    Answer::Stream(stream::iter([Ok(Bytes::from(out))]).chain(rest).boxed())
}

fn partial(object: &Arc<Object>) -> Value {
    let mut tree = object.to_value();
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value::remove(&mut tree, "metadata")})
}

/// How the events of one watch are written.
struct Watch {
    accepted: Accepted,
    watched: Option<Watched>,
    rows: Rows,
}

impl Watch {
    fn new(accepted: Accepted, query: &Query, watched: Option<Watched>, clock: Clock) -> Self {
        let query = Query::parse(&format!("includeObject={}", query.get("includeObject")));
        Self { accepted, watched, rows: Rows { query, tables: None, clock } }
    }

    fn frame(&mut self, event: &WatchEvent) -> Bytes {
        frame(self.accepted, event, self.watched.as_ref(), &mut self.rows)
    }

    /// Events as they come, one JSON document a line; what is ready at once goes out at once.
    fn answer(mut self, events: BoxStream<'static, WatchEvent>) -> Answer {
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
    fn messages(mut self, events: BoxStream<'static, WatchEvent>) -> BoxStream<'static, Result<Bytes, std::io::Error>> {
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
    query: Query,
    /// The columns, which are said with the first row and known from then on.
    tables: Option<Tables>,
    clock: Clock,
}

/// One event. What is the same for all watchers is made once.
fn frame(accepted: Accepted, event: &WatchEvent, watched: Option<&Watched>, rows: &mut Rows) -> Bytes {
    let media = accepted.media;
    let (name, object) = match event {
        WatchEvent::Added(object) => ("ADDED", object),
        WatchEvent::Modified(object) => ("MODIFIED", object),
        WatchEvent::Deleted(object) => ("DELETED", object),
        WatchEvent::Bookmark { revision, initial_events_end } => {
            return tree_frame(media, "BOOKMARK", &bookmark(accepted.shape, watched, *revision, *initial_events_end));
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
            let metadata = json!({"resourceVersion": object.revision().to_string()});
            let one = std::slice::from_ref(object);
            let now = (rows.clock)();
            let table = match rows.tables {
                Some(tables) => tables.rows(one, &rows.query, &metadata, now),
                None => rows.tables.insert(Tables::of(object)).table(one, &rows.query, &metadata, now),
            };
            tree_frame(media, name, &table)
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
        Shape::Table => {
            let partial =
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": [], "rows": [{"cells": [], "object": partial}]})
        }
        Shape::Metadata | Shape::MetadataList => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        }
        Shape::Whole => match watched {
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
}
