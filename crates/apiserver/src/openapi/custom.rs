//! The schemas of custom resources, which their definitions bring along.
//!
//! Version 3 publishes a schema as it is, completed by what every object has. Version 2 has no words for some
//! of it, and kubectl of old refuses what it does not understand, so such parts are left out there.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

use facts::Resource;
use serde_json::{Map, Value, json};

use super::form::{Encoding, Form, Parts, Trees};
use super::operation::PathItem;
use super::paths::{Base, list_type_name, type_name};
use super::schemas::Dialect;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// Where upstream says what lists are.
const CONVENTIONS: &str =
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The built-in types that schemas of custom resources refer to.
pub(super) const REFERRED: [&str; 2] = [OBJECT_META, LIST_META];

/// Reads the `openAPIV3Schema` of a version. Without one (or with one that is not structural) objects may hold anything.
pub type Schema = Box<dyn Fn() -> Option<Value> + Send + Sync>;

/// What a definition says about a version of a custom resource, and what documents say of that, from the first time somebody asks.
pub struct Custom {
    resource: Resource,
    schema: Schema,
    /// The paths of `selectableFields`, without the leading dot.
    selectable: Vec<String>,
    /// What tells it from what was or will be said: the definition, and its generation.
    source: String,
    made: [OnceLock<Parts>; 4],
}

impl std::fmt::Debug for Custom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Custom").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Custom {
    pub fn new(resource: Resource, schema: Schema, selectable: Vec<String>, source: String) -> Self {
        Self { resource, schema, selectable, source, made: Default::default() }
    }

    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Makes what documents say of it, before anybody asks.
    pub(crate) fn prepare(&self) {
        self.make(&Encoding::ALL);
    }

    /// What documents of a form say of it.
    pub(super) fn parts(&self, form: Form) -> &Parts {
        let made = &self.made[form as usize];
        if made.get().is_none() {
            self.make(&[form.encoding()]);
        }
        made.get_or_init(|| form.parts(&Trees::new(Map::new(), Map::new())))
    }

    /// Makes what documents in these encodings say of it, as far as it is not made: the schema is read once, and written down once for each version.
    fn make(&self, encodings: &[Encoding]) {
        let missing = |dialect: Dialect| {
            let forms = encodings.iter().map(move |encoding| encoding.form(dialect));
            forms.filter(|form| self.made[*form as usize].get().is_none())
        };
        if Dialect::ALL.into_iter().flat_map(missing).next().is_none() {
            return;
        }
        let schema = (self.schema)();
        for dialect in Dialect::ALL {
            let mut forms = missing(dialect).peekable();
            if forms.peek().is_some() {
                let trees = self.trees(schema.as_ref(), dialect);
                for form in forms {
                    self.made[form as usize].get_or_init(|| form.parts(&trees));
                }
            }
        }
    }

    /// The schemas of its objects, and of lists of them.
    fn schemas(&self, schema: Option<&Value>, dialect: Dialect) -> Map<String, Value> {
        let name = type_name(&self.resource).into_owned();
        let list_name = list_type_name(&self.resource).into_owned();
        let object = object(self, schema, dialect);
        Map::from_iter([(list_name, list(self, dialect)), (name, object)])
    }

    fn paths(&self, dialect: Dialect) -> Map<String, Value> {
        let items = Base::new(&self.resource.group, &self.resource.version).paths(&self.resource);
        items.into_iter().map(|item| (item.path.clone(), dialect.path(&item))).collect()
    }

    /// As trees, for who has to look into them.
    pub(super) fn read(&self, dialect: Dialect) -> Trees {
        self.trees((self.schema)().as_ref(), dialect)
    }

    fn trees(&self, schema: Option<&Value>, dialect: Dialect) -> Trees {
        Trees::new(self.schemas(schema, dialect), self.paths(dialect))
    }
}

/// What is known of custom resources, by the name of their type (see [`type_name`]).
#[derive(Clone, Debug, Default)]
pub struct Customs(BTreeMap<String, Arc<Custom>>);

impl Customs {
    /// Adds what is known of a resource.
    pub fn insert(&mut self, custom: Arc<Custom>) {
        self.0.insert(type_name(&custom.resource).into_owned(), custom);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Custom>> + Clone {
        self.0.values()
    }

    /// The custom ones among these resources.
    pub(super) fn of<'a>(&'a self, resources: &'a [Resource]) -> impl Iterator<Item = &'a Arc<Custom>> + Clone {
        let custom = resources.iter().filter(|resource| resource.ty.is_none());
        custom.filter_map(|resource| self.0.get(&*type_name(resource)))
    }
}

/// What some of them are made from.
pub(super) fn source<'a>(customs: impl Iterator<Item = &'a Arc<Custom>>) -> String {
    customs.map(|custom| custom.source.as_str()).collect::<Vec<_>>().join(" ")
}

/// The operations of some of them, of which those that need the same types are told once.
pub(super) fn kinds_of_operations<'a>(customs: impl Iterator<Item = &'a Arc<Custom>>) -> Vec<PathItem> {
    let mut seen = HashSet::new();
    let mut items = Vec::new();
    for Custom { resource, .. } in customs.map(|custom| &**custom) {
        let parts: Vec<&str> = resource.subresources.iter().map(|sub| &*sub.name).collect();
        if seen.insert((resource.verbs.iter().collect::<Vec<_>>(), parts)) {
            items.extend(Base::new(&resource.group, &resource.version).paths(resource));
        }
    }
    items
}

fn object(custom: &Custom, schema: Option<&Value>, dialect: Dialect) -> Value {
    let mut schema = match schema {
        // Properties, even those that every object has, would make clients refuse all others.
        None => json!({ "type": "object" }),
        Some(schema) if dialect == Dialect::V2 && schema[PRESERVE] == true => json!({ "type": "object" }),
        Some(schema) => {
            let mut schema = schema.clone();
            if dialect == Dialect::V2 {
                to_v2(&mut schema);
            }
            embed(&mut schema, dialect);
            add_object_fields(&mut schema, dialect);
            schema
        }
    };
    add_kind(&mut schema, custom, &custom.resource.kind);
    schema
}

fn list(custom: &Custom, dialect: Dialect) -> Value {
    let resource = &custom.resource;
    let mut schema = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": described(LIST_META, dialect),
            "items": { "type": "array", "items": dialect.reference(&type_name(resource)) },
        },
    });
    describe_list(&mut schema, &resource.list_kind, &resource.kind, &resource.plural);
    add_kind(&mut schema, custom, &resource.list_kind);
    schema
}

/// Says what a list and its fields are for.
pub(super) fn describe_list(schema: &mut Value, list_kind: &str, kind: &str, plural: &str) {
    describe_object_fields(&mut schema["properties"]);
    schema["properties"]["metadata"]["description"] =
        json!(format!("Standard list metadata. {CONVENTIONS}#types-kinds"));
    schema["properties"]["items"]["description"] = json!(format!("List of {plural}. {CONVENTIONS}"));
    schema["description"] = json!(format!("{list_kind} is a list of {kind}"));
}

fn add_kind(schema: &mut Value, custom: &Custom, kind: &str) {
    let gvk = json!({ "group": custom.resource.group, "kind": kind, "version": custom.resource.version });
    schema["x-kubernetes-group-version-kind"] = json!([gvk]);
    if !custom.selectable.is_empty() {
        let fields = custom.selectable.iter().map(|path| json!({ "fieldPath": path }));
        schema["x-kubernetes-selectable-fields"] = fields.collect();
    }
}

/// A reference in a place that also has a description, or may get one.
fn described(name: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => dialect.reference(name),
        Dialect::V3 => json!({ "allOf": [dialect.reference(name)] }),
    }
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

fn add_object_fields(schema: &mut Value, dialect: Dialect) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({ "type": "string" });
    properties["kind"] = json!({ "type": "string" });
    properties["metadata"] = described(OBJECT_META, dialect);
    describe_object_fields(properties);
}

/// Says what the fields are for that every object has. Any kind's own words will do: they are the same everywhere.
fn describe_object_fields(properties: &mut Value) {
    let fields = prose::of("io.k8s.api.core.v1.Pod").into_iter().flat_map(prose::Prose::fields);
    for (field, text) in fields.filter(|(field, _)| ["apiVersion", "kind", "metadata"].contains(field)) {
        properties[field]["description"] = Value::from(text);
    }
}

/// Gives whole objects inside of objects the fields that every object has.
fn embed(schema: &mut Value, dialect: Dialect) {
    for child in children(schema) {
        embed(child, dialect);
    }
    // Clients of version 2 would refuse the unknown fields that are meant to be kept.
    if schema[EMBEDDED] != true || (dialect == Dialect::V2 && schema[PRESERVE] == true) {
        return;
    }
    add_object_fields(schema, dialect);
    // Of these upstream has other words inside of objects than for objects.
    for (field, description) in [
        (
            "apiVersion",
            "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
        ),
        (
            "kind",
            "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
        ),
    ] {
        schema["properties"][field]["description"] = json!(description);
    }
    let mut required: Vec<Value> = schema["required"].as_array().cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(json!(name));
        }
    }
    schema["required"] = Value::Array(required);
}

/// Leaves out what version 2 cannot say.
fn to_v2(schema: &mut Value) {
    let nullable = |schema: &Value| schema["nullable"] == true;
    let optional: Vec<String> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, property)| nullable(property))
        .map(|(name, _)| name.clone())
        .collect();
    let untyped = nullable(schema);
    let nothing_required = nullable(&schema["additionalProperties"]);
    let Some(object) = schema.as_object_mut() else { return };
    for keyword in ["allOf", "oneOf", "anyOf", "not", "nullable", "default"] {
        object.remove(keyword);
    }
    let preserves = object.get(PRESERVE) == Some(&Value::Bool(true));
    if untyped || preserves {
        object.remove("items");
        object.remove("properties");
    }
    let is = |object: &Map<String, Value>, kind: &str| object.get("type").is_some_and(|found| found == kind);
    if untyped || (is(object, "array") && !object.contains_key("items")) || (preserves && is(object, "object")) {
        object.remove("type");
    }
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|name| !nothing_required && !optional.iter().any(|optional| name == optional));
        if required.is_empty() {
            object.remove("required");
        }
    }
    for child in children(schema) {
        to_v2(child);
    }
}

/// The schemas directly inside of a schema.
fn children(schema: &mut Value) -> Vec<&mut Value> {
    let Some(object) = schema.as_object_mut() else { return Vec::new() };
    let mut children = Vec::new();
    for (keyword, value) in object {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => children.extend(properties.values_mut()),
            ("items" | "additionalProperties", value @ Value::Object(_)) => children.push(value),
            _ => {}
        }
    }
    children
}
