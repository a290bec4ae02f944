//! A write as webhooks and policies see it: in the version they want, with the request described as upstream describes it.

use std::borrow::Cow;
use std::sync::Arc;

use kinds::convert;
use machinery::object::Object;
use machinery::status::ApiError;
use machinery::{Value, schema, value};
use serde_json::json;

use super::{Operation, Request};
use crate::registry::Shared;
use crate::verbs::{Api, scale_of, user_info};

/// A write, and what it makes of the object.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Where to look things up.
    pub api: &'a Api,
    pub request: &'a Request<'a>,
    /// The object as it would be, in storage form; none for deletions.
    pub new: Option<&'a Value>,
    /// The object as it is; none for creations.
    pub old: Option<&'a Value>,
}

impl<'a> Subject<'a> {
    /// Whether it is about a namespace itself.
    pub fn is_namespace(&self) -> bool {
        let name = &self.request.resource.name;
        name.group.is_empty() && name.resource == "namespaces"
    }

    /// Whether it may change webhooks or policies: those are never shown to them, or a broken one could not be mended.
    pub fn is_exempt(&self) -> bool {
        self.request.resource.name.group == "admissionregistration.k8s.io"
    }

    /// The name of the object, as far as it is known.
    pub fn name(&self) -> &'a str {
        match self.request.info.name.as_str() {
            "" => self.new.map_or("", |new| value::text(new, "metadata.name")),
            name => name,
        }
    }

    /// Every version in which the resource is served.
    pub fn versions(&self) -> Vec<Shared<facts::Resource>> {
        self.api.registry.versions(self.request.resource)
    }

    /// The namespace of this name, which must be there.
    pub fn namespace(&self, name: &str) -> Result<Arc<Object>, ApiError> {
        let resource = machinery::gvk::GroupResource::new("", "namespaces");
        let namespaces = self.api.registry.stored("", "namespaces");
        namespaces.and_then(|all| all.cache.get(name)).ok_or_else(|| ApiError::not_found(&resource, name))
    }

    /// The namespace that the object lives in.
    pub fn own_namespace(&self) -> Result<Option<Arc<Object>>, ApiError> {
        match self.request.info.namespace.as_str() {
            "" => Ok(None),
            _ if self.is_namespace() => Ok(None),
            name => self.namespace(name).map(Some),
        }
    }

    /// The object as a version shows it. A subresource with a kind of its own shows that.
    pub fn show(&self, object: &Value, version: &facts::Resource) -> Value {
        let storage = &self.request.resource.storage;
        if value::text(object, "kind") != &*storage.kind {
            // A binding, an eviction, options to connect.
            return object.clone();
        }
        if self.request.info.subresource == "scale" {
            return scale_of(self.request.resource, object);
        }
        let mut shown = convert::between(storage, version, object.clone());
        match version.ty {
            Some(ty) => {
                schema::settle(&mut shown, ty.def(), schema::Form::Shown);
            }
            // Others read `1.0` into no integer, and are sent `1`.
            None => {
                if let Cow::Owned(written) = apiextensions::as_go_writes(&shown) {
                    shown = written;
                }
            }
        }
        shown
    }

    /// What a change of the shown object makes of the object: in storage form, with defaults for what was left out.
    pub fn take(&self, mut shown: Value, version: &facts::Resource, new: &Value) -> Result<Value, ApiError> {
        let resource = self.request.resource;
        if self.request.info.subresource == "scale" {
            let mut changed = new.clone();
            let replicas = resource.strategy.scaling().replicas;
            value::set(&mut changed, replicas, value::int(&shown, "spec.replicas").unwrap_or(0));
            return Ok(changed);
        }
        if value::text(&shown, "kind") != &*resource.storage.kind {
            return Ok(shown);
        }
        if let Some(ty) = version.ty {
            schema::conform(&mut shown, ty.def()).map_err(ApiError::internal)?;
            schema::default(&mut shown, ty.def());
        } else if let Some(read) = resource.strategy.read(&mut shown) {
            read.map_err(ApiError::internal)?;
        }
        let mut stored = convert::between(version, &resource.storage, shown);
        resource.strategy.default(&mut stored);
        if let Some(ty) = resource.storage.ty {
            schema::complete(&mut stored, ty.def());
        }
        Ok(stored)
    }

    /// The `AdmissionRequest`, without the objects.
    pub fn describe(&self, version: &facts::Resource) -> Value {
        let (info, request) = (self.request.info, self.request);
        let mut tree = json!({
            "kind": self.kind_in(version), "resource": resource_in(version),
            "requestKind": self.kind_in(request.facts), "requestResource": resource_in(request.facts),
            "operation": request.operation.name(), "userInfo": user_info(request.user), "dryRun": request.dry_run,
            "options": self.options(),
        });
        let optional = [
            ("subResource", info.subresource.as_str()),
            ("requestSubResource", info.subresource.as_str()),
            ("name", self.name()),
            ("namespace", info.namespace.as_str()),
        ];
        for (key, text) in optional.into_iter().filter(|(_, text)| !text.is_empty()) {
            tree[key] = json!(text);
        }
        tree
    }

    fn kind_in(&self, version: &facts::Resource) -> Value {
        let (mut group, mut number, mut kind) = (&*version.group, &*version.version, &*version.kind);
        if let Some(subresource) = version.subresource(&self.request.info.subresource) {
            kind = &subresource.kind;
            if let Some((other, version)) = &subresource.kind_of {
                (group, number) = (other, version);
            }
        }
        // What is asked for may be of a kind that discovery does not tell: options to connect.
        if self.request.operation == Operation::Connect
            && let Some(new) = self.new
        {
            (group, number, kind) = ("", "v1", value::text(new, "kind"));
        }
        json!({"group": group, "version": number, "kind": kind})
    }

    fn options(&self) -> Value {
        let kind = match self.request.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.request.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        for (key, text) in self.request.options {
            let plain = match key.as_str() {
                "fieldManager" | "fieldValidation" => self.request.operation != Operation::Delete,
                "propagationPolicy" => self.request.operation == Operation::Delete,
                _ => false,
            };
            if plain && !text.is_empty() {
                options[key] = json!(text);
            }
        }
        options
    }
}

fn resource_in(version: &facts::Resource) -> Value {
    json!({"group": version.group, "version": version.version, "resource": version.plural})
}

/// What a request to connect carries: the options in its query, as an object of their kind.
pub fn connect_options(resource: &str, subresource: &str, query: &[(String, String)]) -> Value {
    let kind = match (resource, subresource) {
        ("pods", "exec") => "PodExecOptions",
        ("pods", "attach") => "PodAttachOptions",
        ("pods", "portforward") => "PodPortForwardOptions",
        ("pods", _) => "PodProxyOptions",
        ("nodes", _) => "NodeProxyOptions",
        _ => "ServiceProxyOptions",
    };
    let mut tree = json!({"kind": kind, "apiVersion": "v1"});
    let mut push = |key: &str, item: Value| {
        let list = value::as_object_mut(&mut tree).entry(key).or_insert_with(|| json!([]));
        list.as_array_mut().into_iter().for_each(|all| all.push(item.clone()));
    };
    for (key, text) in query {
        match key.as_str() {
            "command" => push("command", json!(text)),
            "ports" => {
                text.split(',').filter_map(|port| port.parse::<u16>().ok()).for_each(|port| push("ports", json!(port)))
            }
            _ => {}
        }
    }
    for (key, text) in query {
        match key.as_str() {
            "stdin" | "stdout" | "stderr" | "tty" if matches!(text.as_str(), "false" | "0") => {}
            "stdin" | "stdout" | "stderr" | "tty" => tree[key] = json!(true),
            "container" | "path" => tree[key] = json!(text),
            _ => {}
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connection_asks_for_is_an_object() {
        let pairs = |text: &[(&str, &str)]| -> Vec<(String, String)> {
            text.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
        };
        let exec =
            pairs(&[("command", "sh"), ("command", "-c"), ("stdin", "true"), ("tty", "false"), ("container", "c")]);
        assert_eq!(
            connect_options("pods", "exec", &exec),
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh", "-c"], "stdin": true, "container": "c"})
        );
        assert_eq!(
            connect_options("pods", "portforward", &pairs(&[("ports", "80,443")])),
            json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80, 443]})
        );
        assert_eq!(connect_options("nodes", "proxy", &pairs(&[("path", "/x")]))["kind"], "NodeProxyOptions");
    }
}
