//! From an answer to typed objects, whichever transport brought it.
//!
//! In process the payload is a shared, encoded object: it is decoded from the bytes in the watch cache, without a copy, and
//! the revision is put in afterwards. Over HTTPS the payload is a stream of bytes.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use machinery::codec::typed;
use machinery::object::Object;
use machinery::rest::{Payload, Response, WatchEvent};
use machinery::{ApiError, Value};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::frames::Frames;
use crate::undecodable::Undecodable;

/// The largest answer that is collected: some 400,000 pods.
const MAX_ANSWER: usize = 1 << 30;

/// One page of objects.
#[derive(Debug, Clone)]
pub struct List<K: ?Sized> {
    /// The objects, ordered by namespace and name.
    pub items: Vec<Arc<K>>,
    /// The `resourceVersion` to watch from.
    pub revision: String,
    /// The token of the next page, if there is one.
    pub next: Option<String>,
    /// How many objects follow this page, where the server says so.
    pub remaining: Option<u64>,
    /// Those among them that cannot be read.
    pub undecodable: Vec<Undecodable>,
}

impl<K: ?Sized> List<K> {
    /// The same page of objects in another form. Those that cannot be brought into it join the undecodable ones.
    pub fn map<B: ?Sized>(self, form: impl Fn(Arc<K>) -> Result<Arc<B>, Undecodable>) -> List<B> {
        let mut undecodable = self.undecodable;
        let formed = self.items.into_iter().filter_map(|item| form(item).map_err(|odd| undecodable.push(odd)).ok());
        let items = formed.collect();
        List { items, revision: self.revision, next: self.next, remaining: self.remaining, undecodable }
    }
}

/// One event of a watch.
#[derive(Debug)]
pub enum Event<K: ?Sized> {
    /// The object came to be, or came to match the selectors.
    Added(Arc<K>),
    Modified(Arc<K>),
    /// The object went, or stopped to match; its last state.
    Deleted(Arc<K>),
    /// Everything up to `revision` has been sent.
    Bookmark {
        /// Where a later watch may start.
        revision: String,
        /// Whether the initial events of a streaming list end here.
        initial_events_end: bool,
    },
    /// Something became of an object that cannot be read. The watch goes on.
    Undecodable {
        /// Which object it is.
        object: Undecodable,
        /// Whether it went; otherwise it came to be or changed.
        deleted: bool,
    },
}

impl<K: ?Sized> Event<K> {
    /// The same event about another form of the object, or about one that cannot be brought into it.
    pub fn map<B: ?Sized>(self, form: impl FnOnce(Arc<K>) -> Result<Arc<B>, Undecodable>) -> Event<B> {
        let unread = |deleted| move |object| Event::Undecodable { object, deleted };
        match self {
            Self::Added(object) => form(object).map_or_else(unread(false), Event::Added),
            Self::Modified(object) => form(object).map_or_else(unread(false), Event::Modified),
            Self::Deleted(object) => form(object).map_or_else(unread(true), Event::Deleted),
            Self::Bookmark { revision, initial_events_end } => Event::Bookmark { revision, initial_events_end },
            Self::Undecodable { object, deleted } => Event::Undecodable { object, deleted },
        }
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(Arc::clone(object)),
            Self::Modified(object) => Self::Modified(Arc::clone(object)),
            Self::Deleted(object) => Self::Deleted(Arc::clone(object)),
            Self::Bookmark { revision, initial_events_end } => {
                Self::Bookmark { revision: revision.clone(), initial_events_end: *initial_events_end }
            }
            Self::Undecodable { object, deleted } => Self::Undecodable { object: object.clone(), deleted: *deleted },
        }
    }
}

/// A watch under way. It ends after an error.
pub(crate) type Watch<T> = BoxStream<'static, Result<Event<T>, Error>>;

/// How objects of one type are read.
pub(crate) struct Reader<T> {
    /// For messages, such as `Pod`.
    pub(crate) what: &'static str,
    /// That of the kind; empty where it is not one kind that is read.
    pub(crate) api_version: &'static str,
    /// From a shared object. Bytes from the wire are read by `T`'s own `Deserialize`.
    pub(crate) shared: fn(&Object) -> Result<T, serde_json::Error>,
    /// Drops from an object of the wire what is not read of shared ones, so that both transports show the same.
    pub(crate) trim: fn(&mut T),
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Reader<T> {}

impl<T: DeserializeOwned + Send + Sync + 'static> Reader<T> {
    fn bytes(&self, bytes: &[u8]) -> Result<T, serde_json::Error> {
        let mut object = typed::from_slice(bytes, (self.api_version, self.what))?;
        (self.trim)(&mut object);
        Ok(object)
    }

    fn wrong(&self, source: serde_json::Error) -> Error {
        Error::Decode { what: self.what, source }
    }

    pub(crate) async fn one(&self, response: Response) -> Result<T, Error> {
        match ok(response).await? {
            Payload::Object(object) => (self.shared)(&object),
            payload => self.bytes(&collect(payload).await?),
        }
        .map_err(|source| self.wrong(source))
    }

    /// A page of objects.
    pub(crate) async fn list(&self, response: Response) -> Result<List<T>, Error> {
        let bytes = match ok(response).await? {
            Payload::List(list) => {
                let bytes = list.items.iter().map(|object| object.stored_len()).sum();
                let read =
                    |object: &Arc<Object>| (self.shared)(object).map_err(|error| Undecodable::shared(object, &error));
                let (items, undecodable) = threads::heavy::run(bytes, || split(list.items.iter().map(read))).await;
                let revision = list.revision.to_string();
                return Ok(List { items, revision, next: list.next, remaining: list.remaining, undecodable });
            }
            payload => collect(payload).await?,
        };
        let trimmed = |mut object: T| {
            (self.trim)(&mut object);
            Ok(object)
        };
        match serde_json::from_slice::<WireList<T>>(&bytes) {
            Ok(list) => Ok(page(list.metadata, split(list.items.into_iter().flatten().map(trimmed)))),
            // As a whole it cannot be read; perhaps only some of it cannot.
            Err(_) => one_by_one(*self, &bytes).map_err(|source| self.wrong(source)),
        }
    }

    /// One object among others.
    fn item(&self, bytes: &[u8]) -> Result<T, Undecodable> {
        self.bytes(bytes).map_err(|error| Undecodable::wire(bytes, self.api_version, self.what, &error))
    }

    /// A stream of events.
    pub(crate) async fn watch(self, response: Response) -> Result<Watch<T>, Error> {
        watch(self, response).await
    }
}

/// What becomes of an object that an answer brings.
pub(crate) trait Form: Copy + Send + Sync + 'static {
    type Item: Send + Sync + 'static;

    /// From a shared object of this process.
    fn shared(self, object: &Arc<Object>) -> Result<Self::Item, Undecodable>;

    /// From its bytes on the wire.
    fn wire(self, bytes: &[u8]) -> Result<Self::Item, Undecodable>;
}

impl<T: DeserializeOwned + Send + Sync + 'static> Form for Reader<T> {
    type Item = T;

    fn shared(self, object: &Arc<Object>) -> Result<T, Undecodable> {
        (self.shared)(object).map_err(|error| Undecodable::shared(object, &error))
    }

    fn wire(self, bytes: &[u8]) -> Result<T, Undecodable> {
        self.item(bytes)
    }
}

/// A list from the wire, each of whose items is read by itself.
pub(crate) fn one_by_one<F: Form>(form: F, bytes: &[u8]) -> Result<List<F::Item>, serde_json::Error> {
    let list: WireList<&RawValue> = serde_json::from_slice(bytes)?;
    let items = list.items.into_iter().flatten().map(|item| form.wire(item.get().as_bytes()));
    Ok(page(list.metadata, split(items)))
}

fn page<T>(metadata: ListMeta, (items, undecodable): (Vec<Arc<T>>, Vec<Undecodable>)) -> List<T> {
    List {
        items,
        revision: metadata.resource_version.unwrap_or_default(),
        next: metadata.continue_.filter(|token| !token.is_empty()),
        remaining: metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok()),
        undecodable,
    }
}

/// A stream of events about objects in a form.
pub(crate) async fn watch<F: Form>(form: F, response: Response) -> Result<Watch<F::Item>, Error> {
    match ok(response).await? {
        Payload::Watch(events) => Ok(end_after_error(events.map(move |one| event(form, one)).boxed())),
        Payload::Stream(chunks) => Ok(end_after_error(frames(form, chunks))),
        _ => Err(Error::Unexpected("a watch")),
    }
}

fn event<F: Form>(form: F, event: WatchEvent) -> Result<Event<F::Item>, Error> {
    let raw = match event {
        WatchEvent::Added(object) => Event::Added(object),
        WatchEvent::Modified(object) => Event::Modified(object),
        WatchEvent::Deleted(object) => Event::Deleted(object),
        WatchEvent::Bookmark { revision, initial_events_end } => {
            Event::Bookmark { revision: revision.to_string(), initial_events_end }
        }
        WatchEvent::Error(error) => return Err(Error::Api(error)),
    };
    Ok(raw.map(|object| form.shared(&object).map(Arc::new)))
}

fn frames<F: Form>(form: F, chunks: BoxStream<'static, Result<Bytes, std::io::Error>>) -> Watch<F::Item> {
    stream::unfold((chunks, Frames::default(), false), move |(mut chunks, mut frames, mut over)| async move {
        loop {
            match frames.next() {
                Ok(Some(one)) => return Some((frame(form, &one), (chunks, frames, over))),
                Ok(None) => {}
                Err(error) => return Some((Err(error), (chunks, frames, over))),
            }
            if over {
                return None;
            }
            match chunks.next().await {
                Some(Ok(chunk)) => frames.push(&chunk),
                Some(Err(error)) => return Some((Err(Error::transport(error)), (chunks, frames, over))),
                None => {
                    over = true;
                    let rest = frames.rest()?;
                    return Some((frame(form, &rest), (chunks, frames, over)));
                }
            }
        }
    })
    .boxed()
}

fn frame<F: Form>(form: F, frame: &[u8]) -> Result<Event<F::Item>, Error> {
    let frame: Frame<'_> =
        serde_json::from_slice(frame).map_err(|source| Error::Decode { what: "a watch event", source })?;
    let object = frame.object.get().as_bytes();
    let item = |of: fn(Arc<F::Item>) -> Event<F::Item>, deleted| {
        form.wire(object).map_or_else(|object| Event::Undecodable { object, deleted }, |item| of(Arc::new(item)))
    };
    Ok(match &*frame.kind {
        "ADDED" => item(Event::Added, false),
        "MODIFIED" => item(Event::Modified, false),
        "DELETED" => item(Event::Deleted, true),
        "BOOKMARK" => {
            let bookmark: Bookmark =
                serde_json::from_slice(object).map_err(|source| Error::Decode { what: "a bookmark", source })?;
            let end = bookmark.metadata.annotations.and_then(|annotations| annotations.initial_events_end);
            Event::Bookmark {
                revision: bookmark.metadata.resource_version,
                initial_events_end: end.as_deref() == Some("true"),
            }
        }
        "ERROR" => {
            let status: Value =
                serde_json::from_slice(object).map_err(|source| Error::Decode { what: "a Status", source })?;
            let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
            return Err(Error::Api(ApiError::from_value(code, &status)));
        }
        _ => return Err(Error::Unexpected("a watch event of a known type")),
    })
}

/// After an error nothing that follows could be trusted to be without a gap.
fn end_after_error<T: Send + Sync + 'static>(watch: Watch<T>) -> Watch<T> {
    watch
        .scan(false, |failed, event| {
            let ends = std::mem::replace(failed, event.is_err());
            std::future::ready((!ends).then_some(event))
        })
        .boxed()
}

/// What could be read, and what could not.
fn split<T>(all: impl Iterator<Item = Result<T, Undecodable>>) -> (Vec<Arc<T>>, Vec<Undecodable>) {
    let mut undecodable = Vec::new();
    let items = all.filter_map(|one| one.map(Arc::new).map_err(|odd| undecodable.push(odd)).ok()).collect();
    (items, undecodable)
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct WireList<T> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default = "Option::default")]
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
struct BookmarkMeta {
    #[serde(rename = "resourceVersion", default)]
    resource_version: String,
    annotations: Option<BookmarkAnnotations>,
}

#[derive(Deserialize)]
struct BookmarkAnnotations {
    #[serde(rename = "k8s.io/initial-events-end")]
    initial_events_end: Option<String>,
}

/// The payload of a success; anything else becomes the error it describes. On the heap for the reason of [`Calling`](crate::client::Calling).
pub(crate) fn ok(response: Response) -> BoxFuture<'static, Result<Payload, Error>> {
    Box::pin(success(response))
}

async fn success(response: Response) -> Result<Payload, Error> {
    let (head, payload) = response.into_parts();
    if head.status.is_success() {
        return Ok(payload);
    }
    let code = head.status.as_u16();
    let status = match payload {
        Payload::Value(value) => value,
        payload => {
            let bytes = collect(payload).await?;
            // Not every error comes from the API server itself: a proxy in between answers in text.
            serde_json::from_slice(&bytes).unwrap_or_else(|_| {
                let text = String::from_utf8_lossy(&bytes);
                serde_json::json!({"message": text.trim().chars().take(1024).collect::<String>()})
            })
        }
    };
    let mut error = ApiError::from_value(code, &status);
    if error.message.is_empty() {
        error.message = head.status.to_string();
    }
    // A server that is too busy to make a Status says in the head when to come back.
    let later = head.headers.get(http::header::RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    if let Some(seconds) = later {
        error.details.get_or_insert_default().retry_after = seconds;
    }
    Err(Error::Api(error))
}

/// All bytes of an answer. On the heap, likewise.
pub(crate) fn collect(payload: Payload) -> BoxFuture<'static, Result<Bytes, Error>> {
    Box::pin(whole(payload))
}

async fn whole(payload: Payload) -> Result<Bytes, Error> {
    let mut chunks = match payload {
        Payload::Empty => return Ok(Bytes::new()),
        Payload::Bytes(bytes) => return Ok(bytes),
        Payload::Object(object) => return Ok(object.json()),
        Payload::Value(value) => return serde_json::to_vec(&value).map(Bytes::from).map_err(Error::Encode),
        Payload::Stream(chunks) => chunks,
        Payload::List(_) | Payload::Watch(_) => return Err(Error::Unexpected("a single document")),
    };
    let mut first = match chunks.next().await {
        None => return Ok(Bytes::new()),
        Some(chunk) => chunk.map_err(Error::transport)?,
    };
    let mut whole = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(Error::transport)?;
        // The first chunk is copied only once there is a second: most answers are one chunk.
        whole.extend_from_slice(&std::mem::take(&mut first));
        whole.extend_from_slice(&chunk);
        if whole.len() > MAX_ANSWER {
            return Err(Error::TooLarge { limit: MAX_ANSWER });
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

#[cfg(test)]
mod tests;
