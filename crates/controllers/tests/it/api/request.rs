//! From a request's path and query to what it is about; and the discovery documents.

use facts::Resource;
use machinery::object::Meta;
use machinery::selector::{FieldSelector, LabelSelector};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// What a request is about.
#[derive(Debug, Clone)]
pub struct Target {
    resource: &'static Resource,
    pub namespace: String,
    pub name: Option<String>,
    pub subresource: String,
    pub content_type: String,
    query: Vec<(String, String)>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Target {
    pub fn parse(parts: &http::request::Parts) -> Option<Self> {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let mut segments = parts.uri.path().trim_matches('/').split('/').map(decode);
        let group = match segments.next()?.as_str() {
            "api" => String::new(),
            "apis" => segments.next()?,
            _ => return None,
        };
        let version = segments.next()?;
        let mut rest: Vec<String> = segments.collect();
        let mut namespace = String::new();
        // `/namespaces/x` is the namespace itself, `/namespaces/x/status` too; anything longer is something in it.
        if rest.len() >= 3 && rest[0] == "namespaces" && !matches!(rest[2].as_str(), "status" | "finalize") {
            namespace = rest[1].clone();
            rest.drain(..2);
        }
        let resource = facts::resource(&group, &version, rest.first()?)?;
        let query: Vec<(String, String)> = parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (decode(key), decode(value)))
            .collect();
        let find = |key: &str| query.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value.as_str());
        Some(Self {
            resource,
            namespace,
            name: rest.get(1).cloned(),
            subresource: rest.get(2).cloned().unwrap_or_default(),
            content_type: parts
                .headers
                .get(http::header::CONTENT_TYPE)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            labels: LabelSelector::parse(find("labelSelector")).ok()?,
            fields: FieldSelector::parse(find("fieldSelector")).ok()?,
            query,
        })
    }

    pub fn resource(&self) -> &'static Resource {
        self.resource
    }

    pub fn query(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    pub fn flag(&self, key: &str) -> bool {
        self.query(key) == Some("true")
    }

    pub fn selects(&self, meta: &Meta) -> bool {
        self.labels.matches_meta(meta) && self.fields.matches_meta(meta)
    }
}

/// The document at a discovery path, if it is one.
pub fn discovery(path: &str) -> Option<Value> {
    if path == "/apis" {
        let groups = facts::groups().iter().filter(|group| !group.name.is_empty()).map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .filter(|version| version.default_on)
                .map(|version| json!({"groupVersion": format!("{}/{}", group.name, version.name), "version": version.name}))
                .collect();
            json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
        });
        let groups: Vec<Value> = groups.filter(|group| group["preferredVersion"].is_object()).collect();
        return Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}));
    }
    let (group, version) = match path.strip_prefix("/api/") {
        Some(version) => ("", version),
        None => path.strip_prefix("/apis/")?.split_once('/')?,
    };
    if version.contains('/') {
        return None;
    }
    let version = facts::table().version(group, version)?;
    let resources: Vec<Value> = version
        .resources
        .iter()
        .map(|resource| {
            json!({
                "name": resource.plural,
                "singularName": resource.singular,
                "kind": resource.kind,
                "namespaced": resource.namespaced,
                "verbs": resource.verbs.iter().collect::<Vec<_>>(),
            })
        })
        .collect();
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": path, "resources": resources}))
}
