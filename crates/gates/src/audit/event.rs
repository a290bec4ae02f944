//! One request as `audit.k8s.io/v1` Event lines: what is known of it so far, and how that is written.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::USER_AGENT;
use jiff::Timestamp;
use machinery::rest::{Payload, Peer, User};
use machinery::{Value, time, value};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::policy::{Level, Stage};
use crate::{Exchange, RequestInfo};

/// The longest user agent that is written.
const MAX_USER_AGENT: usize = 1024;

/// What is known of a request.
#[derive(Debug)]
pub struct Event {
    pub audit_id: String,
    pub uri: String,
    pub verb: &'static str,
    pub user: Arc<User>,
    pub impersonated: Option<Arc<User>>,
    /// The permission by which, where it is not one for everything.
    pub constraint: Option<&'static str>,
    pub source_ips: Vec<String>,
    pub user_agent: String,
    pub object: Option<ObjectRef>,
    pub status: Option<Value>,
    pub request: Option<Box<RawValue>>,
    pub response: Option<Box<RawValue>>,
    pub received: Timestamp,
    pub annotations: BTreeMap<String, String>,
}

/// Which object a request is about.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// The part of a sent object that tells which one it is.
#[derive(Debug, Default, Deserialize)]
pub struct Named {
    #[serde(default)]
    metadata: NamedMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NamedMetadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

impl ObjectRef {
    fn of(info: &RequestInfo) -> Self {
        Self {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..Self::default()
        }
    }

    /// Fills in what the path does not say.
    pub fn complete(&mut self, named: Named) {
        let NamedMetadata { namespace, name, uid, resource_version } = named.metadata;
        for (known, new) in [
            (&mut self.namespace, namespace),
            (&mut self.name, name),
            (&mut self.uid, uid),
            (&mut self.resource_version, resource_version),
        ] {
            if known.is_empty() {
                *known = new;
            }
        }
    }
}

impl Named {
    pub fn of(tree: &Value) -> Self {
        let text = |path: &str| value::text(tree, path).to_owned();
        Self {
            metadata: NamedMetadata {
                namespace: text("metadata.namespace"),
                name: text("metadata.name"),
                uid: text("metadata.uid"),
                resource_version: text("metadata.resourceVersion"),
            },
        }
    }
}

impl Event {
    /// Of a request that has just come.
    pub fn new(exchange: &Exchange, user: Arc<User>, received: Timestamp) -> Self {
        let Exchange { parts, info, peer, .. } = exchange;
        let address = match peer {
            Peer::Remote { address, .. } => Some(*address),
            Peer::InProcess(_) => None,
        };
        let agent = parts.headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()).into_owned());
        Self {
            audit_id: exchange.audit_id().to_owned(),
            uri: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            verb: info.verb,
            user,
            impersonated: None,
            constraint: None,
            source_ips: source_ips(&parts.headers, address),
            user_agent: shortened(agent.unwrap_or_default()),
            object: info.is_resource.then(|| ObjectRef::of(info)),
            status: None,
            request: None,
            response: None,
            received,
            annotations: BTreeMap::new(),
        }
    }

    /// The line of a stage.
    pub fn line(&self, level: Level, stage: Stage, now: Timestamp) -> Bytes {
        let line = Line {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: level.name(),
            audit_id: &self.audit_id,
            stage: stage.name(),
            request_uri: &self.uri,
            verb: self.verb,
            user: UserInfo::of(&self.user),
            impersonated_user: self.impersonated.as_deref().map(UserInfo::of),
            authentication_metadata: self
                .constraint
                .map(|constraint| Metadata { impersonation_constraint: constraint }),
            source_ips: &self.source_ips,
            user_agent: &self.user_agent,
            object_ref: self.object.as_ref(),
            response_status: self.status.as_ref(),
            request_object: self.request.as_deref(),
            response_object: self.response.as_deref(),
            request_received_timestamp: time::format_micro(self.received),
            stage_timestamp: time::format_micro(now),
            annotations: &self.annotations,
        };
        let mut bytes = serde_json::to_vec(&line).expect("strings and JSON that was parsed always encode");
        bytes.push(b'\n');
        Bytes::from(bytes)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'static str,
    user: UserInfo<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<UserInfo<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_metadata: Option<Metadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<&'a ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<&'a RawValue>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    impersonation_constraint: &'static str,
}

#[derive(Serialize)]
struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl<'a> UserInfo<'a> {
    fn of(user: &'a User) -> Self {
        Self { username: &user.name, uid: &user.uid, groups: &user.groups, extra: &user.extra }
    }
}

/// An answer's status: what a `Status` says of itself, or the bare code.
pub fn status(code: u16, payload: &Payload) -> Value {
    let mut status = serde_json::json!({"metadata": {}});
    if let Payload::Value(tree) = payload
        && value::text(tree, "kind") == "Status"
    {
        for field in ["status", "message", "reason", "details"] {
            if let Some(value) = tree.get(field) {
                status[field] = value.clone();
            }
        }
    }
    status["code"] = code.into();
    status
}

/// An answer's object, where it has one.
pub fn object(payload: &Payload, omit_managed_fields: bool) -> Option<Box<RawValue>> {
    let tree = match payload {
        Payload::Value(tree) => tree.clone(),
        Payload::Object(object) if !omit_managed_fields => return raw_bytes(&object.json()),
        Payload::Object(object) => object.to_value(),
        Payload::List(list) => {
            let items: Vec<Value> = list.items.iter().map(|object| object.to_value()).collect();
            serde_json::json!({
                "kind": list.kind, "apiVersion": list.api_version,
                "metadata": {"resourceVersion": list.revision.to_string()}, "items": items,
            })
        }
        Payload::Empty | Payload::Bytes(_) | Payload::Watch(_) | Payload::Stream(_) => return None,
    };
    raw(tree, omit_managed_fields)
}

/// A tree as it is written.
pub fn raw(mut tree: Value, omit_managed_fields: bool) -> Option<Box<RawValue>> {
    if omit_managed_fields {
        value::remove(&mut tree, "metadata.managedFields");
        for item in tree.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            value::remove(item, "metadata.managedFields");
        }
    }
    serde_json::value::to_raw_value(&tree).ok()
}

fn raw_bytes(json: &[u8]) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(json.to_vec()).ok()?).ok()
}

/// Where a request came from: proxies on the way first, as they tell, and the peer last.
fn source_ips(headers: &HeaderMap, address: Option<SocketAddr>) -> Vec<String> {
    let header = |name: &str| headers.get(name).and_then(|header| header.to_str().ok()).unwrap_or_default().to_owned();
    let mut ips: Vec<String> = Vec::new();
    let forwarded = header("x-forwarded-for");
    let candidates =
        forwarded.split(',').map(str::trim).map(str::to_owned).chain([header("x-real-ip").trim().to_owned()]);
    for ip in candidates.filter_map(|text| text.parse::<std::net::IpAddr>().ok()) {
        if !ips.contains(&ip.to_string()) {
            ips.push(ip.to_string());
        }
    }
    if let Some(peer) = address.map(|address| address.ip().to_string())
        && ips.last() != Some(&peer)
    {
        ips.push(peer);
    }
    ips
}

fn shortened(mut agent: String) -> String {
    if agent.len() > MAX_USER_AGENT {
        let mut end = MAX_USER_AGENT;
        while !agent.is_char_boundary(end) {
            end -= 1;
        }
        agent.truncate(end);
        agent.push_str("...TRUNCATED");
    }
    agent
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use machinery::rest::Body;
    use serde_json::json;

    fn event() -> Event {
        let peer = Peer::Remote {
            address: "10.0.0.7:80".parse().expect("an address"),
            certificates: Arc::new([]),
            doubtful: false,
        };
        let request = http::Request::post("/api/v1/namespaces/a/pods?dryRun=All")
            .header("x-forwarded-for", "10.0.0.9, junk, 10.0.0.8")
            .header(USER_AGENT, "a".repeat(2000))
            .extension(peer)
            .body(Body::Empty)
            .expect("a request");
        let (exchange, _) = Exchange::open(request, HeaderValue::from_static("id-1"), crate::exchange::REQUEST_TIMEOUT)
            .expect("an exchange");
        let user = Arc::new(User::new("jane", ["devs"]));
        let at = time::parse("2026-01-02T03:04:05.000006Z").expect("a time");
        Event::new(&exchange, user, at)
    }

    #[test]
    fn a_line_reads_as_upstreams() {
        let mut event = event();
        event
            .object
            .as_mut()
            .expect("a resource")
            .complete(Named::of(&json!({"metadata": {"name": "web", "namespace": "b"}})));
        event.status = Some(status(201, &Payload::Empty));
        event.annotations.insert("authorization.k8s.io/decision".to_owned(), "allow".to_owned());
        let line = event.line(Level::Metadata, Stage::ResponseComplete, event.received);
        assert_eq!(line.last(), Some(&b'\n'));
        let mut tree: Value = serde_json::from_slice(&line).expect("JSON");
        let agent = tree.as_object_mut().and_then(|tree| tree.remove("userAgent")).expect("an agent");
        assert_eq!(agent.as_str().map(str::len), Some(1024 + "...TRUNCATED".len()));
        assert_eq!(
            tree,
            json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "id-1",
                "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/a/pods?dryRun=All", "verb": "create",
                "user": {"username": "jane", "groups": ["devs", "system:authenticated"]},
                "sourceIPs": ["10.0.0.9", "10.0.0.8", "10.0.0.7"],
                "objectRef": {"resource": "pods", "namespace": "a", "name": "web", "apiVersion": "v1"},
                "responseStatus": {"metadata": {}, "code": 201},
                "requestReceivedTimestamp": "2026-01-02T03:04:05.000006Z", "stageTimestamp": "2026-01-02T03:04:05.000006Z",
                "annotations": {"authorization.k8s.io/decision": "allow"},
            })
        );
    }

    #[test]
    fn managed_fields_can_be_left_out() {
        let object =
            json!({"metadata": {"name": "a", "managedFields": [{}]}, "items": [{"metadata": {"managedFields": [{}]}}]});
        let with = raw(object.clone(), false).expect("JSON");
        assert!(with.get().contains("managedFields"));
        let without = raw(object, true).expect("JSON");
        assert_eq!(without.get(), r#"{"items":[{"metadata":{}}],"metadata":{"name":"a"}}"#);
    }

    #[test]
    fn a_status_keeps_what_it_says() {
        let refusal = json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403, "metadata": {"x": 1}});
        assert_eq!(
            status(403, &Payload::Value(refusal)),
            json!({"metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403})
        );
    }
}
