//! An object as it came, which is read when somebody asks.
//!
//! In process it is the very object that the watch cache has, so keeping it costs a pointer. From the wire it is a text of its own, without
//! `managedFields`, and what is asked before anything is read: what the object is called and which version it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use machinery::object::Object;
use machinery::rest::{Payload, Response};
use machinery::selector::LabelSelector;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::answer::{self, Form, List, Reader};
use crate::client::{self, Kind};
use crate::dynamic::{self, Partial};
use crate::error::Error;
use crate::undecodable::Undecodable;

/// An object that is not read yet, or not kept as what was read. Cheap to clone in process.
#[derive(Clone)]
pub struct Original(Kept);

#[derive(Clone)]
enum Kept {
    Shared(Arc<Object>),
    Own(Arc<Own>),
}

struct Own {
    text: Box<[u8]>,
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    revision: Box<str>,
}

impl Original {
    /// An object of this process.
    pub fn shared(object: Arc<Object>) -> Self {
        Self(Kept::Shared(object))
    }

    /// From the wire; an error if it does not even say what it is called.
    pub(crate) fn own(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let Named { metadata } = serde_json::from_slice(bytes)?;
        let metadata = metadata.unwrap_or_default();
        // It is cut out where it was found, because it is often half of the text.
        let text = match metadata.managed_fields {
            None => bytes.into(),
            Some(record) => {
                let start = record.get().as_ptr().addr() - bytes.as_ptr().addr();
                [&bytes[..start], b"null", &bytes[start + record.get().len()..]].concat().into()
            }
        };
        let word = |part: Option<Box<str>>| part.unwrap_or_default();
        Ok(Self(Kept::Own(Arc::new(Own {
            text,
            namespace: word(metadata.namespace),
            name: word(metadata.name),
            uid: word(metadata.uid),
            revision: word(metadata.resource_version),
        }))))
    }

    /// Empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        match &self.0 {
            Kept::Shared(object) => &object.meta().namespace,
            Kept::Own(own) => &own.namespace,
        }
    }

    pub fn name(&self) -> &str {
        match &self.0 {
            Kept::Shared(object) => &object.meta().name,
            Kept::Own(own) => &own.name,
        }
    }

    pub fn uid(&self) -> &str {
        match &self.0 {
            Kept::Shared(object) => &object.meta().uid,
            Kept::Own(own) => &own.uid,
        }
    }

    /// Its `resourceVersion`.
    pub fn revision(&self) -> Cow<'_, str> {
        match &self.0 {
            Kept::Shared(object) => object.revision().to_string().into(),
            Kept::Own(own) => Cow::Borrowed(&own.revision),
        }
    }

    /// Whether a selector picks it.
    pub fn is_selected(&self, by: &LabelSelector) -> bool {
        match &self.0 {
            Kept::Shared(object) => by.matches_meta(object.meta()),
            Kept::Own(own) => {
                let labels = serde_json::from_slice::<Labelled>(&own.text).unwrap_or_default().metadata.labels;
                // A label without a value is read as Go reads it.
                by.matches(|key| labels.as_ref()?.get(key).map(|value| value.as_deref().unwrap_or_default()))
            }
        }
    }

    /// The object, as [`Client::get`](crate::Client::get) would answer it.
    pub fn read<K: Kind>(&self) -> Result<K, Undecodable> {
        self.read_by(client::reader())
    }

    /// Its metadata.
    pub fn read_metadata(&self) -> Result<Partial, Undecodable> {
        self.read_by(dynamic::partial_reader())
    }

    fn read_by<T: DeserializeOwned + Send + Sync + 'static>(&self, reader: Reader<T>) -> Result<T, Undecodable> {
        match &self.0 {
            Kept::Shared(object) => reader.shared(object),
            Kept::Own(own) => reader.wire(&own.text),
        }
    }
}

impl fmt::Debug for Original {
    /// Names it and never shows its content, which may be a Secret's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Original({}/{}@{})", self.namespace(), self.name(), self.revision())
    }
}

/// How objects are taken as they come.
#[derive(Clone, Copy)]
pub(crate) struct Originals {
    api_version: &'static str,
    what: &'static str,
}

impl Originals {
    pub(crate) fn of(api_version: &'static str, what: &'static str) -> Self {
        Self { api_version, what }
    }

    /// A page of objects.
    pub(crate) async fn list(self, response: Response) -> Result<List<Original>, Error> {
        match answer::ok(response).await? {
            Payload::List(list) => Ok(List {
                items: list.items.into_iter().map(|object| Arc::new(Original::shared(object))).collect(),
                revision: list.revision.to_string(),
                next: list.next,
                remaining: list.remaining,
                undecodable: Vec::new(),
            }),
            payload => answer::one_by_one(self, &answer::collect(payload).await?)
                .map_err(|source| Error::Decode { what: self.what, source }),
        }
    }
}

impl Form for Originals {
    type Item = Original;

    fn shared(self, object: &Arc<Object>) -> Result<Original, Undecodable> {
        Ok(Original::shared(object.clone()))
    }

    fn wire(self, bytes: &[u8]) -> Result<Original, Undecodable> {
        Original::own(bytes).map_err(|error| Undecodable::wire(bytes, self.api_version, self.what, &error))
    }
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    metadata: Option<Names<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Names<'a> {
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
    uid: Option<Box<str>>,
    resource_version: Option<Box<str>>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Labelled {
    metadata: Labels,
}

#[derive(Default, Deserialize)]
struct Labels {
    labels: Option<BTreeMap<String, Option<String>>>,
}

#[cfg(test)]
mod tests;
