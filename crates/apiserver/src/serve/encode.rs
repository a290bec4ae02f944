//! From a [`Payload`] to bytes, in the form that was negotiated. Objects are copied from their one encoding, never encoded again.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use common::Clock;
use futures::StreamExt as _;
use futures::stream;
use gates::Asked;
use gates::forms::{Accepted, Forms, Media, PLAIN, Shape};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use kinds::table::Tables;
use machinery::codec::{cbor, protobuf, yaml};
use machinery::gvk::GroupVersion;
use machinery::object::{Draft, FieldPaths, Object};
use machinery::query::Query;
use machinery::rest::{List, Payload, Response};
use machinery::status::{ApiError, Reason};
use machinery::{Value, value};
use rest::{AsOf, Columns, Watched, package};
use serde_json::json;

use super::body::Answer;
use super::events::Watch;
use super::gzip;
use crate::messages::Switch;

/// The pieces a long list is sent in.
const PIECE: usize = 256 * 1024;

/// How many bytes have to be worked on to encode an answer. What is copied as it is, or sent piece by piece, is no work.
pub fn weight(asked: &Asked, response: &Response) -> usize {
    let forms = &asked.forms;
    let copied = || {
        let Ok(accepted) = forms.objects() else { return true };
        accepted.shape == Shape::Whole && accepted.media == Media::Json && !forms.pretty
    };
    match response.body() {
        Payload::List(list) if !copied() => list.items.iter().map(|item| item.json_len()).sum(),
        Payload::Object(object) if forms.gzip || !copied() => object.json_len(),
        _ => 0,
    }
}

/// Encodes an answer for a client that asked for this.
pub fn encode(asked: &Arc<Asked>, response: Response, clock: &Clock) -> http::Response<Answer> {
    let Asked { query, forms } = &**asked;
    let (mut parts, payload) = response.into_parts();
    let columns = parts.extensions.remove::<Columns>();
    // What is of the past has the ages that it had then.
    let then = parts.extensions.remove::<AsOf>().map(|AsOf(time)| -> Clock { Arc::new(move || time) });
    let clock = then.as_ref().unwrap_or(clock);
    // Only objects have several forms; what is bytes already says itself what it is.
    let failed = parts.status.is_client_error() || parts.status.is_server_error();
    let accepted = match &payload {
        Payload::Empty | Payload::Bytes(_) | Payload::Stream(_) => Ok(Some(PLAIN)),
        // Errors are written even for clients that take none of our forms.
        Payload::Value(_) if failed => Ok(forms.errors().map(|media| Accepted { media, ..PLAIN })),
        Payload::Value(tree) if is_answer(tree) => forms.answers().map(Some),
        _ if columns.is_some() => forms.custom_objects().map(Some),
        _ => forms.objects().map(Some),
    };
    let mut pretty = forms.pretty;
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
    let packs = matches!(payload, Payload::Value(_) | Payload::Object(_) | Payload::List(_)) && forms.gzip;
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
                Err(error) => refusal(&mut parts.status, forms, pretty, &error),
            }
        }
        Payload::Value(tree) => {
            let media = writable(accepted.media, &tree);
            (tree_bytes(media, &tree, pretty).into(), Some(media.name()))
        }
        Payload::Object(object) => match single(accepted.shape, || object.type_meta()) {
            Ok(()) => object_answer(accepted, &object, columns, query, pretty, clock),
            Err(error) => refusal(&mut parts.status, forms, pretty, &error),
        },
        Payload::List(list) => match several(accepted.shape, &list.api_version, &list.kind) {
            Ok(()) => list_answer(accepted, list, columns, query, pretty, clock),
            Err(error) => refusal(&mut parts.status, forms, pretty, &error),
        },
        Payload::Watch(events) => {
            let watched = parts.extensions.remove::<Watched>();
            let watch = Watch::new(accepted, asked.clone(), watched, columns, clock.clone());
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
fn refusal(status: &mut StatusCode, forms: &Forms, pretty: bool, error: &ApiError) -> (Answer, Option<&'static str>) {
    *status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::NOT_ACCEPTABLE);
    let (media, pretty) = forms.errors().map_or((Media::Json, true), |media| (media, pretty));
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
        return Ok(object_answer(accepted, &object(&tree)?, None, query, pretty, clock));
    }
    several(accepted.shape, &api_version, &kind)?;
    let items = value::list(&tree, "items").iter().map(object).collect::<Result<_, _>>()?;
    let list = List { kind, api_version, revision: 0, items, next: None, remaining: None };
    Ok(list_answer(accepted, list, None, query, pretty, clock))
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
pub(super) fn message_type(tree: &Value) -> Option<&'static facts::Type> {
    named_type(value::text(tree, "apiVersion"), value::text(tree, "kind"))
}

/// The negotiated encoding, or JSON for what has no protobuf form: custom resources, discovery.
fn writable(media: Media, tree: &Value) -> Media {
    if media == Media::Protobuf && message_type(tree).is_none() { Media::Json } else { media }
}

/// The table of objects: a custom resource brings its columns along.
pub(super) fn tables(columns: Option<Columns>, built_in: impl FnOnce() -> Tables) -> Tables {
    columns.map_or_else(built_in, |Columns(version)| Tables::custom(version))
}

fn object_answer(
    accepted: Accepted,
    object: &Arc<Object>,
    columns: Option<Columns>,
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
            let mut table = tables(columns, || Tables::of(object)).table(
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
    columns: Option<Columns>,
    query: &Query,
    pretty: bool,
    clock: &Clock,
) -> (Answer, Option<&'static str>) {
    let content = Some(accepted.media.name());
    let custom = columns.is_some();
    let mut metadata = list_metadata(&list);
    // Upstream's lists of custom resources say so even where nothing is left.
    if custom && accepted.shape == Shape::Whole && list.next.is_none() {
        metadata["continue"] = json!("");
    }
    match accepted.shape {
        Shape::Whole if accepted.media == Media::Json && !pretty => (list_json(list, &metadata, custom), content),
        Shape::Whole if accepted.media == Media::Protobuf && item_type(&list).is_some() => {
            (list_protobuf(list, &metadata), content)
        }
        Shape::Whole => {
            let show = |object: &Arc<Object>| if custom { object.to_value() } else { item(object) };
            let items: Vec<Value> = list.items.iter().map(show).collect();
            let tree = json!({"kind": list.kind, "apiVersion": list.api_version, "metadata": metadata, "items": items});
            let media = writable(accepted.media, &tree);
            (tree_bytes(media, &tree, pretty).into(), Some(media.name()))
        }
        Shape::Table => {
            let kind = list.kind.strip_suffix("List").unwrap_or(&list.kind);
            let tables = tables(columns, || Tables::named(&list.api_version, kind));
            let mut table = tables.table(&list.items, query, &metadata, clock());
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

/// A list as it goes, in pieces, so that a long one is never whole in memory. Custom resources say in every item what they are.
fn list_json(list: List, metadata: &Value, custom: bool) -> Answer {
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
            if custom {
                object.write_json(out);
            } else {
                object.write_item_json(out);
            }
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
pub(super) fn object_protobuf(object: &Object) -> Option<Vec<u8>> {
    let (api_version, kind) = object.type_meta();
    let of = named_type(&api_version, &kind)?;
    Some(protobuf::envelope(&api_version, &kind, &object.message(of)))
}

/// A list as protobuf, in pieces, from messages that were made once for all readers.
fn list_protobuf(list: List, metadata: &Value) -> Answer {
    let of = item_type(&list).expect("asked before");
    // The length of the whole stands before it.
    let length: usize = list.items.iter().map(|object| protobuf::item_len(&object.message(of))).sum();
    let mut out = protobuf::list_head(&list.api_version, &list.kind, metadata, length);
    out.reserve(PIECE.min(length + 16));
    let mut items = list.items.into_iter();
    let mut fill = move |out: &mut Vec<u8>| -> bool {
        for object in items.by_ref() {
            protobuf::put_item(out, &object.message(of));
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

pub(super) fn partial(object: &Arc<Object>) -> Value {
    let mut tree = object.to_value();
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value::remove(&mut tree, "metadata")})
}
