//! An operation as both versions of OpenAPI see it; what each makes of it is for [`super::v2`] and
//! [`super::v3`] to say.

use std::hash::{Hash, Hasher};

use facts::{Gvk, Str};
use serde_json::{Map, Value, json};

use super::reason;
use super::schemas::{self, Dialect};

/// A path and what can be done there.
pub(super) struct PathItem {
    /// Such as `/api/v1/namespaces/{namespace}/pods/{name}`.
    pub path: String,
    /// The parameters that all operations share, sorted.
    pub parameters: Vec<Parameter>,
    pub operations: Vec<Operation>,
}

/// What can be done with one method.
pub(super) struct Operation {
    /// The method, in lower case.
    pub method: &'static str,
    /// Its name, unique in the server.
    pub id: String,
    /// What it does, in words.
    pub description: String,
    /// The group version, or what takes its place.
    pub tag: String,
    /// What it does and to which kind; paths that are no resource's do not say.
    pub about: Option<(&'static str, Gvk)>,
    /// The parameters that are this operation's own, sorted.
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// What version 2 says that it reads where there is no body.
    pub reads: &'static [&'static str],
    pub responses: Vec<Response>,
}

impl Operation {
    /// The names of the types that go in and out.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        let answers = self.responses.iter().filter_map(|response| match &response.content.as_ref()?.schema {
            ContentSchema::Type(name) => Some(&**name),
            ContentSchema::Text => None,
        });
        self.body.iter().map(|body| &*body.schema).chain(answers)
    }
}

/// A parameter in the path or the query.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub name: Str,
    /// `path` (and then required) or `query`.
    pub place: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// What it is for, in words.
    pub description: Option<Str>,
}

impl Hash for Parameter {
    /// Descriptions are long, and seldom of one length.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.description.as_ref().map(|text| text.len())).hash(state);
    }
}

/// The body of a request.
pub(super) struct Body {
    pub consumes: &'static [&'static str],
    /// The name of the type.
    pub schema: Str,
    /// Whether there must be one.
    pub required: bool,
}

pub(super) struct Response {
    pub code: &'static str,
    /// What it holds, unless it is empty.
    pub content: Option<Content>,
}

/// What an answer holds.
pub(super) struct Content {
    pub produces: &'static [&'static str],
    pub schema: ContentSchema,
}

/// What the content of an answer is.
pub(super) enum ContentSchema {
    /// An object of the type of this name.
    Type(Str),
    /// Plain text, or what comes out of a stream.
    Text,
}

impl PathItem {
    /// As a document shows it, which says how it shows operations and parameters.
    pub fn shown(&self, operation: fn(&Operation) -> Value, parameter: fn(&Parameter) -> Value) -> Value {
        let mut path: Map<String, Value> =
            self.operations.iter().map(|each| (each.method.to_owned(), operation(each))).collect();
        if !self.parameters.is_empty() {
            path.insert("parameters".to_owned(), self.parameters.iter().map(parameter).collect());
        }
        Value::Object(path)
    }
}

impl Operation {
    /// What every document says last of an operation: its answers, whose content each shows in its own way, and what it is about.
    pub fn finish(&self, value: &mut Value, content: impl Fn(&Content) -> (&'static str, Value)) {
        let responses = self.responses.iter().map(|response| {
            let mut answer = json!({ "description": reason(response.code) });
            if let Some((name, shown)) = response.content.as_ref().map(&content) {
                answer[name] = shown;
            }
            (response.code.to_owned(), answer)
        });
        value["responses"] = responses.collect::<Map<_, _>>().into();
        value["description"] = json!(self.description);
        if let Some((action, gvk)) = &self.about {
            value["x-kubernetes-action"] = json!(action);
            value["x-kubernetes-group-version-kind"] = schemas::kind(gvk);
        }
    }
}

impl Parameter {
    /// What every document says last of a parameter.
    pub fn finish(&self, value: &mut Value) {
        if self.place == "path" {
            value["required"] = json!(true);
        }
        if let Some(description) = &self.description {
            value["description"] = json!(description);
        }
    }
}

impl Content {
    pub fn schema(&self, dialect: Dialect) -> Value {
        match &self.schema {
            ContentSchema::Type(name) => dialect.reference(name),
            ContentSchema::Text => json!({ "type": "string" }),
        }
    }
}
