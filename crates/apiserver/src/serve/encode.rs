//! From a [`Payload`] to bytes, in the form that was negotiated. Objects are copied from their one encoding, never encoded again.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use machinery::codec::{cbor, protobuf, yaml};
use machinery::gvk::GroupVersion;
use machinery::object::Object;
use machinery::rest::{List, Payload, Response, WatchEvent};
use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;

use super::body::Answer;
use super::frames;
use super::negotiate::{Accepted, Media, Shape, accepted};
use crate::query::Query;
use crate::rest::Watched;
use crate::table::Tables;

/// The pieces a long list is sent in.
const PIECE: usize = 256 * 1024;
/// How many events that are ready at once go into one piece.
const EVENTS: usize = 64;

/// Encodes an answer for the client with these headers.
pub fn encode(headers: &HeaderMap, query: &Query, response: Response) -> http::Response<Answer> {
    let (mut parts, payload) = response.into_parts();
    // Only objects have several forms; what is bytes already says itself what it is.
    let accepted = match &payload {
        Payload::Empty | Payload::Bytes(_) | Payload::Stream(_) => Ok(PLAIN),
        _ => accepted(headers),
    };
    let (accepted, payload) = match accepted {
        Ok(accepted) => (accepted, payload),
        Err(error) => {
            parts.status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::NOT_ACCEPTABLE);
            (PLAIN, Payload::Value(error.to_value()))
        }
    };
    let pretty = query.flag("pretty");
    let (body, content): (Answer, Option<&'static str>) = match payload {
        Payload::Empty => (Answer::Full(None), None),
        Payload::Bytes(bytes) => (bytes.into(), None),
        Payload::Stream(stream) => (Answer::Stream(stream), None),
        Payload::Value(tree) => {
            let media = writable(accepted.media, &tree);
            (tree_bytes(media, &tree, pretty).into(), Some(media.name()))
        }
        Payload::Object(object) => object_answer(accepted, &object, query, pretty),
        Payload::List(list) => list_answer(accepted, list, query, pretty),
        Payload::Watch(events) => {
            let watched = parts.extensions.remove::<Watched>();
            (watch_answer(accepted, events, query, watched), Some(accepted.media.stream_name()))
        }
    };
    if let Some(content) = content {
        parts.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content));
    }
    http::Response::from_parts(parts, body)
}

const PLAIN: Accepted = Accepted { media: Media::Json, shape: Shape::Whole };

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
    let version = GroupVersion::parse(value::text(tree, "apiVersion"))?;
    let of = facts::type_of(&version.group, &version.version, value::text(tree, "kind"))?.def();
    of.message.then_some(of)
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
) -> (Answer, Option<&'static str>) {
    let content = Some(accepted.media.name());
    if accepted.media == Media::Protobuf {
        let tree = if accepted.shape == Shape::Whole { object.to_value() } else { partial(object) };
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
            let table = Tables::of(object).table(
                std::slice::from_ref(object),
                query,
                &json!({"resourceVersion": object.revision().to_string()}),
                Timestamp::now(),
            );
            (tree_bytes(accepted.media, &table, pretty).into(), content)
        }
        Shape::Metadata | Shape::MetadataList => (tree_bytes(accepted.media, &partial(object), pretty).into(), content),
    }
}

fn list_answer(accepted: Accepted, list: List, query: &Query, pretty: bool) -> (Answer, Option<&'static str>) {
    let content = Some(accepted.media.name());
    let metadata = list_metadata(&list);
    match accepted.shape {
        Shape::Whole if accepted.media == Media::Json && !pretty => (list_json(list, &metadata), content),
        Shape::Whole => {
            let items: Vec<Value> = list.items.iter().map(|object| item(object)).collect();
            let tree = json!({"kind": list.kind, "apiVersion": list.api_version, "metadata": metadata, "items": items});
            let media = writable(accepted.media, &tree);
            (tree_bytes(media, &tree, pretty).into(), Some(media.name()))
        }
        Shape::Table => {
            let kind = list.kind.strip_suffix("List").unwrap_or(&list.kind);
            let table = Tables::named(&list.api_version, kind).table(&list.items, query, &metadata, Timestamp::now());
            (tree_bytes(accepted.media, &table, pretty).into(), content)
        }
        Shape::Metadata | Shape::MetadataList => {
            let items: Vec<Value> = list.items.iter().map(partial).collect();
            let tree = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items});
            (tree_bytes(accepted.media, &tree, pretty).into(), content)
        }
    }
}

fn list_metadata(list: &List) -> Value {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
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

fn partial(object: &Arc<Object>) -> Value {
    let mut tree = object.to_value();
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value::remove(&mut tree, "metadata")})
}

/// Events as they come, one JSON document a line; what is ready at once goes out at once.
fn watch_answer(
    accepted: Accepted,
    events: BoxStream<'static, WatchEvent>,
    query: &Query,
    watched: Option<Watched>,
) -> Answer {
    let include = query.get("includeObject").to_owned();
    let mut first_row = true;
    let pieces = events.ready_chunks(EVENTS).map(move |events| {
        let mut frames = events.iter().map(|event| frame(accepted, event, &include, watched.as_ref(), &mut first_row));
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

/// One event. What is the same for all watchers is made once.
fn frame(
    accepted: Accepted,
    event: &WatchEvent,
    include: &str,
    watched: Option<&Watched>,
    first_row: &mut bool,
) -> Bytes {
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
            _ => tree_frame(media, name, &object.to_value()),
        }),
        Shape::Table => {
            let metadata = json!({"resourceVersion": object.revision().to_string()});
            let tables = Tables::of(object);
            let mut table = tables.table(
                std::slice::from_ref(object),
                &Query::parse(&format!("includeObject={include}")),
                &metadata,
                Timestamp::now(),
            );
            // Columns are said once; later rows go without.
            if !std::mem::take(first_row) {
                table["columnDefinitions"] = json!([]);
            }
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
        Media::Json => {
            let mut frame = json!({"type": name, "object": tree}).to_string();
            frame.push('\n');
            frame.into()
        }
        Media::Protobuf => {
            // An event's object is an envelope inside a RawExtension; the event itself has none.
            let object = message_type(tree).map(|of| protobuf::encode(tree, of)).unwrap_or_default();
            let event = protobuf::encode_event(name, &object);
            let mut frame = BytesMut::with_capacity(event.len() + 4);
            frame.put_u32(u32::try_from(event.len()).unwrap_or(u32::MAX));
            frame.put_slice(&event);
            frame.freeze()
        }
        Media::Cbor => cbor::encode(&json!({"type": name, "object": tree})).into(),
        Media::Yaml => format!("---\n{}", yaml::encode(&json!({"type": name, "object": tree}))).into(),
    }
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
