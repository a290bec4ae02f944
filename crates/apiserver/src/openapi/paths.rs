//! The operations of a group version, described once for both versions of OpenAPI.
//!
//! Which paths exist, what they are called and what goes in and out follows from a resource's verbs and
//! subresources alone, so custom resources have the same operations as built-in kinds; they only know fewer
//! media types and have no paths to watch, which upstream deprecated before it had custom resources.

use facts::{Gvk, Resource, Schema, Str, Subresource, Type};

use super::action::Action;
use super::names::{capital, group_tag};
use super::operation::{Body, Content, ContentSchema, Operation, Parameter, PathItem, Response};
use super::words;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CBOR: &str = "application/cbor";

const OBJECT: &[&str] = &[JSON, YAML, PROTOBUF, CBOR];
const CUSTOM: &[&str] = &[JSON, YAML];
const LOG: &[&str] = &["text/plain", JSON, YAML, PROTOBUF, CBOR];
const STREAM: &[&str] = &[
    JSON,
    YAML,
    PROTOBUF,
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
    CBOR,
    "application/cbor-seq",
];
const ANYTHING: &[&str] = &["*/*"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
];
/// Strategic merge patch is not for custom resources: their schemas have no patch strategies.
const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

type Query = (&'static str, &'static str);
const LIST: &[Query] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const DELETE: &[Query] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
/// A collection is chosen as a list is, but not watched.
const NOT_FOR_COLLECTIONS: [&str; 2] = ["allowWatchBookmarks", "watch"];
const WRITE: &[Query] = &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const FORCE: Query = ("force", "boolean");

/// A group version, for the names of its paths and operations.
pub(super) struct Base<'a> {
    group: &'a str,
    version: &'a str,
}

impl<'a> Base<'a> {
    pub fn new(group: &'a str, version: &'a str) -> Base<'a> {
        Base { group, version }
    }

    /// Such as `/api/v1` and `/apis/apps/v1`.
    pub fn path(&self) -> String {
        match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }

    /// Such as `rbacAuthorization_v1`.
    fn tag(&self) -> String {
        format!("{}_{}", group_tag(self.group), self.version)
    }

    /// Such as `RbacAuthorizationV1`.
    fn camel(&self) -> String {
        capital(&group_tag(self.group)) + &capital(self.version)
    }

    /// The path that lists the resources of the group version.
    pub fn resources(&self) -> PathItem {
        let id = format!("get{}APIResources", self.camel());
        discovery(format!("{}/", self.path()), (id, "get available resources"), self.tag(), "APIResourceList")
    }

    /// Every path of a resource.
    pub fn paths(&self, resource: &Resource) -> Vec<PathItem> {
        let places: &[Place] = if resource.namespaced { &[Place::All, Place::Namespace] } else { &[Place::Cluster] };
        let mut items = Vec::new();
        for &place in places {
            let at = Site { base: self, resource, place, sub: None, with_path: false };
            let has = |verb| resource.verbs.has(verb);
            let mut collection = Vec::new();
            collection.extend(has("list").then_some(Action::List));
            if place != Place::All {
                collection.extend(has("create").then_some(Action::Post));
                collection.extend(has("deletecollection").then_some(Action::DeleteCollection));
            }
            items.extend(at.item(at.path(false), &collection));
            if has("watch") && !at.is_custom() {
                items.extend(at.item(at.watch_path(false), &[Action::WatchList]));
            }
            if place == Place::All {
                continue;
            }
            let verbs =
                [("get", Action::Get), ("update", Action::Put), ("patch", Action::Patch), ("delete", Action::Delete)];
            let object: Vec<Action> =
                verbs.into_iter().filter(|(verb, _)| has(verb)).map(|(_, action)| action).collect();
            items.extend(at.item(at.path(true), &object));
            if has("watch") && !at.is_custom() {
                items.extend(at.item(at.watch_path(true), &[Action::Watch]));
            }
            for sub in &resource.subresources {
                let at = Site { sub: Some(sub), ..at };
                let actions = sub_actions(sub);
                items.extend(at.item(at.path(true), &actions));
                if sub.name == "proxy" {
                    let at = Site { with_path: true, ..at };
                    items.extend(at.item(at.path(true), &actions));
                }
            }
        }
        items
    }
}

/// What the roots are for.
const VERSIONS: &str = "get available API versions";

/// Paths outside of group versions: the roots, a group, the version and the keys of the token issuer.
pub(super) fn api_root() -> PathItem {
    discovery("/api/".to_owned(), ("getCoreAPIVersions".to_owned(), VERSIONS), "core".to_owned(), "APIVersions")
}

pub(super) fn apis_root() -> PathItem {
    discovery("/apis/".to_owned(), ("getAPIVersions".to_owned(), VERSIONS), "apis".to_owned(), "APIGroupList")
}

pub(super) fn group_root(group: &str) -> PathItem {
    let tag = group_tag(group);
    let id = format!("get{}APIGroup", capital(&tag));
    discovery(format!("/apis/{group}/"), (id, "get information of a group"), tag, "APIGroup")
}

pub(super) fn version() -> PathItem {
    let info = ContentSchema::Type(Str::Borrowed("io.k8s.apimachinery.pkg.version.Info"));
    let said = ("getCodeVersion", "get the version information for this server");
    plain("/version/", said, "version", (&[JSON], Content { produces: &[JSON], schema: info }))
}

pub(super) fn issuer() -> PathItem {
    let issuer = Content { produces: &[JSON], schema: ContentSchema::Text };
    let said = (
        "getServiceAccountIssuerOpenIDConfiguration",
        "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
    );
    plain("/.well-known/openid-configuration/", said, "WellKnown", (&[], issuer))
}

pub(super) fn keys() -> PathItem {
    let keys = Content { produces: &["application/jwk-set+json"], schema: ContentSchema::Text };
    let said = (
        "getServiceAccountIssuerOpenIDKeyset",
        "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
    );
    plain("/openid/v1/jwks/", said, "openid", (&[], keys))
}

/// `said` is the name of the operation, and what it is for.
fn discovery(path: String, said: (String, &str), tag: String, kind: &str) -> PathItem {
    let content = Content { produces: OBJECT, schema: ContentSchema::Type(format!("{META}{kind}").into()) };
    plain(path, said, tag, (OBJECT, content))
}

/// `media` is what version 2 says that it reads, and what it answers.
fn plain(
    path: impl Into<String>,
    said: (impl Into<String>, &str),
    tag: impl Into<String>,
    media: (&'static [&'static str], Content),
) -> PathItem {
    let (reads, content) = media;
    let operation = Operation {
        method: "get",
        id: said.0.into(),
        description: said.1.to_owned(),
        tag: tag.into(),
        about: None,
        parameters: Vec::new(),
        body: None,
        reads,
        responses: vec![Response { code: "200", content: Some(content) }, UNAUTHORIZED],
    };
    PathItem { path: path.into(), parameters: Vec::new(), operations: vec![operation] }
}

const UNAUTHORIZED: Response = Response { code: "401", content: None };

/// Where a collection lives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Cluster,
    Namespace,
    All,
}

/// A resource or subresource at a place.
#[derive(Clone, Copy)]
struct Site<'a> {
    base: &'a Base<'a>,
    resource: &'a Resource,
    place: Place,
    sub: Option<&'a Subresource>,
    /// Whether a path of the client's own follows.
    with_path: bool,
}

impl Site<'_> {
    fn path(&self, named: bool) -> String {
        let mut path = self.base.path();
        self.push(&mut path, named);
        path
    }

    fn watch_path(&self, named: bool) -> String {
        let mut path = self.base.path() + "/watch";
        self.push(&mut path, named);
        path
    }

    fn push(&self, path: &mut String, named: bool) {
        if self.place == Place::Namespace {
            path.push_str("/namespaces/{namespace}");
        }
        path.push('/');
        path.push_str(&self.resource.plural);
        if named {
            path.push_str("/{name}");
        }
        if let Some(sub) = self.sub {
            path.push('/');
            path.push_str(&sub.name);
        }
        if self.with_path {
            path.push_str("/{path}");
        }
    }

    fn item(&self, path: String, actions: &[Action]) -> Option<PathItem> {
        let mut operations: Vec<Operation> = actions.iter().map(|action| self.operation(*action, &path)).collect();
        let (first, rest) = operations.split_first_mut()?;
        let shared: Vec<Parameter> = first
            .parameters
            .iter()
            .filter(|parameter| rest.iter().all(|operation| operation.parameters.contains(parameter)))
            .cloned()
            .collect();
        for operation in &mut operations {
            operation.parameters.retain(|parameter| !shared.contains(parameter));
        }
        Some(PathItem { path, parameters: shared, operations })
    }

    fn operation(&self, action: Action, path: &str) -> Operation {
        let gvk = match (self.sub, self.sub.and_then(|sub| sub.kind_of.clone())) {
            (Some(sub), Some((group, version))) if !self.is_custom() => Gvk { group, version, kind: sub.kind.clone() },
            (sub, _) => Gvk {
                group: self.base.group.to_owned().into(),
                version: self.base.version.to_owned().into(),
                kind: sub.filter(|_| !self.is_custom()).map_or(&self.resource.kind, |sub| &sub.kind).clone(),
            },
        };
        Operation {
            method: action.method(),
            id: self.id(action),
            description: self.description(action),
            tag: self.base.tag(),
            about: Some((action.name(), gvk)),
            parameters: self.parameters(action, path),
            body: self.body(action),
            reads: if self.is_custom() { CUSTOM } else { ANYTHING },
            responses: self.responses(action),
        }
    }

    fn description(&self, action: Action) -> String {
        // Upstream describes lists of custom resources without a word of watches.
        let is_watched = self.resource.verbs.has("watch") && !self.is_custom();
        words::of_operation(action, &self.resource.kind, self.sub.map(|sub| &*sub.name), is_watched)
    }

    /// Such as `readCoreV1NamespacedPodStatus`.
    fn id(&self, action: Action) -> String {
        let mut id = action.prefix().to_owned() + &self.base.camel();
        match action {
            Action::DeleteCollection => id.push_str("Collection"),
            Action::Connect(method) => id.push_str(&capital(method)),
            _ => {}
        }
        if self.place == Place::Namespace {
            id.push_str("Namespaced");
        }
        match self.place {
            Place::All => id.push_str(&capital(&self.resource.kind)),
            _ => id.push_str(&self.resource.kind),
        }
        if let Some(sub) = self.sub {
            id.push_str(&capital(&sub.name));
        }
        if action == Action::WatchList {
            id.push_str("List");
        }
        if self.place == Place::All {
            id.push_str("ForAllNamespaces");
        }
        if self.with_path {
            id.push_str("WithPath");
        }
        id
    }

    fn parameters(&self, action: Action, path: &str) -> Vec<Parameter> {
        // What is read or written there, which is not always what has the name.
        let of = self.sub.filter(|_| !self.is_custom()).map_or(&self.resource.kind, |sub| &sub.kind);
        let new = |name: &'static str, place: &'static str, kind: &'static str| {
            let description = words::of_parameter(action, place, name, of);
            Parameter { name: Str::Borrowed(name), place, kind, description }
        };
        let query = |&(name, kind): &Query| new(name, "query", kind);
        let mut parameters: Vec<Parameter> = match action {
            Action::Get if self.is_log() => options("PodLogOptions"),
            Action::Get if self.is_custom() => vec![query(&("resourceVersion", "string"))],
            Action::Get => Vec::new(),
            // Upstream describes the deletion of a collection of custom resources as a list of them.
            Action::DeleteCollection if self.is_custom() => LIST.iter().map(query).collect(),
            Action::List | Action::Watch | Action::WatchList => LIST.iter().map(query).collect(),
            Action::Post | Action::Put => WRITE.iter().map(query).collect(),
            Action::Patch => WRITE.iter().chain([&FORCE]).map(query).collect(),
            Action::Delete => DELETE.iter().map(query).collect(),
            Action::DeleteCollection => {
                let chosen = LIST.iter().filter(|(name, _)| !NOT_FOR_COLLECTIONS.contains(name));
                chosen.chain(DELETE).map(query).collect()
            }
            Action::Connect(_) => self.sub.map(|sub| options(&sub.kind)).unwrap_or_default(),
        };
        if !matches!(action, Action::Connect(_)) {
            parameters.push(query(&("pretty", "string")));
        }
        for name in ["name", "namespace", "path"] {
            if path.contains(&format!("{{{name}}}")) {
                parameters.push(new(name, "path", "string"));
            }
        }
        parameters.sort();
        parameters
    }

    fn body(&self, action: Action) -> Option<Body> {
        let meta = |kind| Str::Owned(format!("{META}{kind}"));
        let (object, patches) = if self.is_custom() { (CUSTOM, CUSTOM_PATCHES) } else { (ANYTHING, PATCHES) };
        let (consumes, schema, required) = match action {
            Action::Post | Action::Put => (object, self.type_name(), true),
            Action::Patch => (patches, meta("Patch"), true),
            Action::DeleteCollection if self.is_custom() => return None,
            Action::Delete | Action::DeleteCollection => (object, meta("DeleteOptions"), false),
            _ => return None,
        };
        Some(Body { consumes, schema, required })
    }

    fn responses(&self, action: Action) -> Vec<Response> {
        let (object, stream) = if self.is_custom() { (CUSTOM, CUSTOM) } else { (OBJECT, STREAM) };
        let (codes, produces, schema): (&[&'static str], _, _) = match action {
            Action::Get if self.is_log() => (&["200"], LOG, None),
            Action::Get => (&["200"], object, Some(self.type_name())),
            Action::List => (&["200"], stream, Some(self.list_name())),
            Action::Watch | Action::WatchList => (&["200"], stream, Some(format!("{META}WatchEvent").into())),
            Action::Post => (&["200", "201", "202"], object, Some(self.type_name())),
            Action::Patch if self.is_custom() => (&["200"], object, Some(self.type_name())),
            Action::Put | Action::Patch => (&["200", "201"], object, Some(self.type_name())),
            Action::Delete if self.resource.returns_deleted => (&["200", "202"], object, Some(self.type_name())),
            Action::Delete => (&["200", "202"], object, Some(format!("{META}Status").into())),
            Action::DeleteCollection => (&["200"], object, Some(format!("{META}Status").into())),
            Action::Connect(_) => (&["200"], ANYTHING, None),
        };
        let content = |schema: &Option<Str>| Content {
            produces,
            schema: schema.clone().map_or(ContentSchema::Text, ContentSchema::Type),
        };
        let mut responses: Vec<Response> =
            codes.iter().map(|code| Response { code, content: Some(content(&schema)) }).collect();
        responses.push(UNAUTHORIZED);
        responses
    }

    fn is_custom(&self) -> bool {
        self.resource.ty.is_none()
    }

    fn is_log(&self) -> bool {
        self.sub.is_some_and(|sub| sub.name == "log")
    }

    /// The name of the type that is read and written here.
    fn type_name(&self) -> Str {
        if self.is_custom() && self.sub.is_some_and(|sub| sub.name == "scale") {
            return Str::Borrowed("io.k8s.api.autoscaling.v1.Scale");
        }
        let of = self.sub.map_or(self.resource.ty, |sub| sub.ty);
        of.map_or_else(|| type_name(self.resource), |of| of.def().name.clone())
    }

    fn list_name(&self) -> Str {
        self.resource.list_ty.map_or_else(|| list_type_name(self.resource), |of| of.def().name.clone())
    }
}

/// The name of the type of a resource's objects. A custom resource's is made of its group, back to front.
pub fn type_name(resource: &Resource) -> Str {
    resource.ty.map_or_else(|| custom_name(resource, &resource.kind), |of| of.def().name.clone())
}

/// The name of the type of lists of a custom resource.
pub(super) fn list_type_name(resource: &Resource) -> Str {
    custom_name(resource, &resource.list_kind)
}

fn custom_name(resource: &Resource, kind: &str) -> Str {
    let mut parts: Vec<&str> = resource.group.split('.').rev().collect();
    parts.extend([&*resource.version, kind]);
    Str::Owned(parts.join("."))
}

fn sub_actions(sub: &Subresource) -> Vec<Action> {
    const METHODS: [(&str, &str); 5] =
        [("create", "post"), ("delete", "delete"), ("get", "get"), ("patch", "patch"), ("update", "put")];
    let methods = METHODS.into_iter().filter(|(verb, _)| sub.verbs.has(verb)).map(|(_, method)| method);
    if sub.kind.ends_with("Options") {
        // A proxy passes on every method; the verbs name those that have one.
        let silent: &[&str] = if sub.name == "proxy" { &["head", "options"] } else { &[] };
        return methods.chain(silent.iter().copied()).map(Action::Connect).collect();
    }
    let action = |method| match method {
        "post" => Action::Post,
        "delete" => Action::Delete,
        "get" => Action::Get,
        "patch" => Action::Patch,
        _ => Action::Put,
    };
    methods.map(action).collect()
}

/// The query parameters that are the fields of a type of options: scalars and lists of them.
fn options(options: &str) -> Vec<Parameter> {
    let of = facts::type_of("", "v1", options).map(facts::TypeId::def);
    let fields = of.map(Type::fields).unwrap_or_default().iter();
    let fields = fields.filter(|field| !matches!(&*field.name, "apiVersion" | "kind"));
    let scalar = |schema: &Schema| match schema {
        Schema::String => Some("string"),
        Schema::Bool => Some("boolean"),
        Schema::Int32 | Schema::Int64 => Some("integer"),
        _ => None,
    };
    let kind = |schema: &Schema| scalar(schema.list().map_or(schema, |list| &list.items));
    let parameter = |field: &facts::Field| {
        let (kind, description) = (kind(&field.schema)?, words::of_option(options, &field.name));
        Some(Parameter { name: field.name.clone(), place: "query", kind, description })
    };
    fields.filter_map(parameter).collect()
}
