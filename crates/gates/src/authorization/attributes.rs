//! What an authorizer decides by.

use machinery::query::Query;
use machinery::rest::User;
use machinery::selector::field::FieldSelector;
use machinery::selector::label::LabelSelector;

use crate::RequestInfo;

/// The selectors that narrow a list, a watch or a deletion of a collection.
#[derive(Debug, Clone, Default)]
pub struct Selectors {
    pub fields: Option<FieldSelector>,
    pub labels: Option<LabelSelector>,
}

impl Selectors {
    /// Of a request. One that cannot be read narrows nothing: the request asks for more, and is refused later for it.
    pub fn of(info: &RequestInfo, query: &Query) -> Self {
        if !matches!(info.verb, "list" | "watch" | "deletecollection") {
            return Self::default();
        }
        let given = |name: &str| Some(query.get(name).to_owned()).filter(|text| !text.is_empty());
        Self {
            fields: given("fieldSelector").and_then(|text| FieldSelector::parse(&text).ok()),
            labels: given("labelSelector").and_then(|text| LabelSelector::parse(&text).ok()),
        }
    }

    /// Whether only objects whose field has this value are asked for.
    pub fn require(&self, field: &str, value: &str) -> bool {
        self.fields.as_ref().and_then(|fields| fields.requires_exact_match(field)) == Some(value)
    }
}

/// Who wants to do what to what.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    pub user: &'a User,
    /// The verb; the lower-case method for paths.
    pub verb: &'a str,
    /// Whether it is about a resource; otherwise only the verb and the path count.
    pub is_resource: bool,
    pub group: &'a str,
    /// Its version; `*` in questions about all versions.
    pub version: &'a str,
    /// The namespace; empty for the whole cluster.
    pub namespace: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// The object; empty for collections.
    pub name: &'a str,
    /// The path of a request that is not about a resource.
    pub path: &'a str,
    /// What narrows a collection.
    pub selectors: Option<&'a Selectors>,
    /// Whose trace it is asked for. Nobody decides by it; who asks others names it to them.
    pub trace: hops::Context,
}

impl<'a> Attributes<'a> {
    pub fn of(user: &'a User, info: &'a RequestInfo) -> Self {
        Self {
            user,
            verb: info.verb,
            is_resource: info.is_resource,
            group: &info.group,
            version: &info.version,
            namespace: &info.namespace,
            resource: &info.resource,
            subresource: &info.subresource,
            name: &info.name,
            path: &info.path,
            selectors: None,
            trace: hops::Context::NONE,
        }
    }

    /// A question about a resource in all its versions, asked by the server itself.
    pub fn question(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Self {
        Self {
            user,
            verb,
            is_resource: true,
            group,
            version: "*",
            namespace: "",
            resource,
            subresource: "",
            name,
            path: "",
            selectors: None,
            trace: hops::Context::NONE,
        }
    }

    /// The same for a request.
    pub fn within(self, trace: hops::Trace) -> Self {
        Self { trace: trace.context(), ..self }
    }

    /// The same in a namespace.
    pub fn in_namespace(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }

    /// The same about a subresource.
    pub fn of_subresource(self, subresource: &'a str) -> Self {
        Self { subresource, ..self }
    }
}
