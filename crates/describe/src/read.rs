//! What describers want to know besides the object, and what they were answered.

use machinery::{Value, value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rules::owners;

/// What Go escapes in a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    /// The plural name, as in paths.
    pub resource: &'static str,
}

impl Resource {
    pub const fn new(group: &'static str, version: &'static str, resource: &'static str) -> Self {
        Self { group, version, resource }
    }

    /// Where its objects are, in a namespace unless that is empty.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("{root}/{}{within}/{}", self.version, self.resource)
    }
}

pub const EVENTS: Resource = Resource::new("", "v1", "events");
pub const PODS: Resource = Resource::new("", "v1", "pods");
pub const SERVICES: Resource = Resource::new("", "v1", "services");
pub const ENDPOINT_SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");

/// One question to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    Get {
        resource: Resource,
        /// Empty for what is not in a namespace.
        namespace: String,
        name: String,
    },
    List {
        resource: Resource,
        /// Empty for all namespaces, or for what is not in one.
        namespace: String,
        /// Empty for no selector.
        labels: String,
        /// Empty for no selector.
        fields: String,
        /// Whether it is read in chunks of `--chunk-size`.
        chunked: bool,
    },
}

impl Read {
    /// All objects of a resource in a namespace.
    pub fn list(resource: Resource, namespace: &str) -> Self {
        Self::List {
            resource,
            namespace: namespace.to_owned(),
            labels: String::new(),
            fields: String::new(),
            chunked: true,
        }
    }

    pub fn get(resource: Resource, namespace: &str, name: &str) -> Self {
        Self::Get { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The path and query of the request. A list in chunks has `limit` objects at a time; 0 is no limit.
    pub fn path(&self, limit: u64) -> String {
        match self {
            Self::Get { resource, namespace, name } => format!("{}/{name}", resource.path(namespace)),
            Self::List { resource, namespace, labels, fields, chunked } => {
                let mut query = Vec::new();
                for (key, selector) in [("fieldSelector", fields), ("labelSelector", labels)] {
                    if !selector.is_empty() {
                        query.push(format!("{key}={}", utf8_percent_encode(selector, ESCAPED)));
                    }
                }
                if *chunked && limit > 0 {
                    query.push(format!("limit={limit}"));
                }
                let question = if query.is_empty() { "" } else { "?" };
                format!("{}{question}{}", resource.path(namespace), query.join("&"))
            }
        }
    }

    /// The same list, of objects with these labels only.
    pub fn with_labels(mut self, selector: impl ToString) -> Self {
        if let Self::List { labels, .. } = &mut self {
            *labels = selector.to_string();
        }
        self
    }

    /// The same list, of objects with these fields only.
    pub fn with_fields(mut self, selector: impl ToString) -> Self {
        if let Self::List { fields, .. } = &mut self {
            *fields = selector.to_string();
        }
        self
    }

    /// The same list, asked for as a whole.
    pub fn at_once(mut self) -> Self {
        if let Self::List { chunked, .. } = &mut self {
            *chunked = false;
        }
        self
    }
}

/// Why the API server did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `reason` of the Status, for example `Forbidden`; empty where there was none.
    pub reason: String,
    /// What upstream's client would print.
    pub message: String,
}

impl Failure {
    /// What upstream makes of a list that failed: it says what was looked for.
    fn of_list(&self, read: &Read) -> String {
        let Read::List { resource, labels, fields, .. } = read else { return self.message.clone() };
        if !["BadRequest", "NotFound"].contains(&&*self.reason) {
            return self.message.clone();
        }
        let (what, why) = (resource.resource, &self.message);
        if labels.is_empty() && fields.is_empty() {
            return format!("Unable to list {what:?}: {why}");
        }
        format!("Unable to find {what:?} that match label selector {labels:?}, field selector {fields:?}: {why}")
    }
}

/// What was answered to each read: an object, or a list with all its items.
#[derive(Debug, Clone, Default)]
pub struct Answers(Vec<(Read, Result<Value, Failure>)>);

impl Answers {
    pub fn insert(&mut self, read: Read, answer: Result<Value, Failure>) {
        self.0.push((read, answer));
    }

    pub fn get(&self, read: &Read) -> Option<&Result<Value, Failure>> {
        self.0.iter().find(|(asked, _)| asked == read).map(|(_, answer)| answer)
    }

    /// The items of a list; `None` if it could not be read.
    pub fn items(&self, read: &Read) -> Option<&[Value]> {
        Some(value::list(self.get(read)?.as_ref().ok()?, "items"))
    }

    /// As [`Answers::items`], for a list without which there is nothing to say.
    pub fn needed(&self, read: &Read) -> Result<&[Value], Error> {
        match self.get(read) {
            Some(Err(failure)) => Err(Error::Read(failure.of_list(read))),
            Some(Ok(list)) => Ok(value::list(list, "items")),
            None => Ok(&[]),
        }
    }
}

/// The events about an object: who asks names what it has in its reference, an empty one is left out.
pub fn events_about(namespace: &str, name: &str, kind: &str, uid: &str) -> Read {
    let mut terms = vec![format!("involvedObject.name={name}"), format!("involvedObject.namespace={namespace}")];
    if !kind.is_empty() {
        terms.push(format!("involvedObject.kind={kind}"));
    }
    if !uid.is_empty() {
        terms.push(format!("involvedObject.uid={uid}"));
    }
    Read::list(EVENTS, namespace).with_fields(terms.join(","))
}

/// The events about an object that says its kind.
pub fn events(object: &Value) -> Read {
    let meta = |field: &str| value::text(object, &format!("metadata.{field}"));
    events_about(meta("namespace"), meta("name"), value::text(object, "kind"), meta("uid"))
}

/// The reads of a kind that wants its events and nothing else.
pub fn only_events(object: &Value, show: bool) -> Vec<Read> {
    if show { vec![events(object)] } else { Vec::new() }
}

pub fn nothing(_: &Value, _: bool) -> Vec<Read> {
    Vec::new()
}

/// Whether an object is controlled by the one with this UID.
pub fn is_controlled_by(object: &Value, uid: &str) -> bool {
    owners::controller_in(object).is_some_and(|owner| value::text(owner, "uid") == uid)
}
