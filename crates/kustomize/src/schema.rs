//! What is known about kinds: which are in namespaces, and how their lists merge. Upstream's embedded schema is of an older version of
//! Kubernetes, so kinds that are younger count as custom ones (`data/kinds.txt`).

use std::collections::HashMap;
use std::sync::LazyLock;

use facts::{Field, Schema, Type};
use machinery::Value;
use machinery::codec::{Limits, yaml};

use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespace,
}

static KINDS: LazyLock<HashMap<(&str, &str), Scope>> = LazyLock::new(|| {
    let rows = include_str!("data/kinds.txt").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let mut words = row.split(' ');
        let scope = |word: &str| if word == "c" { Scope::Cluster } else { Scope::Namespace };
        Some(((words.next()?, words.next()?), scope(words.next()?)))
    })
    .collect()
});

/// Where objects of a kind are, if it is known.
pub fn scope(api_version: &str, kind: &str) -> Option<Scope> {
    KINDS.get(&(api_version, kind)).copied()
}

/// The schemas by which patches merge: those that are built in, or those of a file that takes their place.
#[derive(Debug, Clone, Default)]
pub enum Schemas {
    #[default]
    BuiltIn,
    /// An OpenAPI document.
    Custom(Value),
}

impl Schemas {
    /// The version whose schemas are built in; no other is.
    const VERSION: &str = "v1.21.2";

    pub fn custom(content: &[u8]) -> Result<Self, Error> {
        let read = yaml::decode(content, Limits::default()).map_err(|error| Error::new(error.message))?;
        Ok(Self::Custom(read.value))
    }

    pub fn version(wanted: &str) -> Result<Self, Error> {
        if wanted == Self::VERSION {
            return Ok(Self::BuiltIn);
        }
        Err(Error::new("the specified OpenAPI version is not built in"))
    }

    /// The schema of a kind.
    pub fn of(&self, api_version: &str, kind: &str) -> Option<Node<'_>> {
        let Self::Custom(document) = self else { return Node::of(api_version, kind) };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let names = |definition: &&Value| {
            let kinds = definition.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
            kinds.into_iter().flatten().any(|named| {
                let is = |field: &str, wanted: &str| named.get(field).and_then(Value::as_str).unwrap_or("") == wanted;
                is("group", group) && is("version", version) && is("kind", kind)
            })
        };
        let schema = document.get("definitions")?.as_object()?.values().find(names)?;
        Some(Node { schema: Shape::Custom { schema, document }, field: None })
    }
}

/// What a value in an object is.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    schema: Shape<'a>,
    field: Option<&'a Field>,
}

#[derive(Clone, Copy)]
enum Shape<'a> {
    Whole(&'a Type),
    Part(&'a Schema),
    Custom { schema: &'a Value, document: &'a Value },
}

/// What a reference in a document leads to; a schema that refers to nothing is itself.
fn resolved<'a>(mut schema: &'a Value, document: &'a Value) -> Option<&'a Value> {
    // More references in a row than this are a circle.
    for _ in 0..32 {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return Some(schema) };
        schema = document.get("definitions")?.get(reference.strip_prefix("#/definitions/")?)?;
    }
    None
}

/// How a list merges.
pub struct ByKeys<'a> {
    /// The fields that tell elements apart; none for a list of scalars.
    pub keys: Vec<&'a str>,
}

fn custom_keys(schema: &Value) -> Option<ByKeys<'_>> {
    let strategy = schema.get("x-kubernetes-patch-strategy")?.as_str()?;
    if !strategy.split(',').any(|word| word == "merge") {
        return None;
    }
    let listed = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let keys = match listed {
        Some(keys) => keys.iter().filter_map(Value::as_str).collect(),
        None => schema.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).into_iter().collect(),
    };
    Some(ByKeys { keys })
}

impl<'a> Node<'a> {
    /// The built-in schema of a kind. A version that is gone has the fields of one that is there.
    fn of(api_version: &str, kind: &str) -> Option<Node<'static>> {
        scope(api_version, kind)?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let group = if group == "extensions" { None } else { Some(group) };
        let exact = facts::type_of(group.unwrap_or_default(), version, kind).map(|id| id.def());
        let of = exact.or_else(|| {
            let same = |resource: &&facts::Resource| {
                &*resource.kind == kind && group.is_none_or(|group| *resource.group == *group)
            };
            facts::resources().find(same).and_then(facts::Resource::def)
        })?;
        Some(Node { schema: Shape::Whole(of), field: None })
    }

    pub fn child(&self, name: &str) -> Option<Node<'a>> {
        let of = match self.schema {
            Shape::Whole(of) => of,
            Shape::Custom { schema, document } => {
                let named = schema.get("properties").and_then(|fields| fields.get(name));
                let found = named.or_else(|| schema.get("additionalProperties").filter(|values| values.is_object()))?;
                return Some(Node {
                    schema: Shape::Custom { schema: resolved(found, document)?, document },
                    field: None,
                });
            }
            Shape::Part(Schema::Map(map)) => return Some(Node { schema: Shape::Part(&map.values), field: None }),
            Shape::Part(schema) => schema.object()?,
        };
        let field = of.field(name)?;
        Some(Node { schema: Shape::Part(&field.schema), field: Some(field) })
    }

    pub fn element(&self) -> Option<Node<'a>> {
        let schema = match self.schema {
            Shape::Whole(_) => return None,
            Shape::Part(schema) => Shape::Part(&schema.list()?.items),
            Shape::Custom { schema, document } => {
                Shape::Custom { schema: resolved(schema.get("items")?, document)?, document }
            }
        };
        Some(Node { schema, field: None })
    }

    /// How the list at hand merges, if it does.
    pub fn merges(&self) -> Option<ByKeys<'a>> {
        if let Shape::Custom { schema, .. } = self.schema {
            return custom_keys(schema);
        }
        let field = self.field.filter(|field| field.patch_strategy.merge)?;
        let Shape::Part(schema) = self.schema else { return None };
        let list = schema.list()?;
        let keys: Vec<&str> = list.keys.iter().map(|key| &**key).collect();
        let keys = if keys.is_empty() { field.patch_merge_key.iter().map(|key| &**key).collect() } else { keys };
        Some(ByKeys { keys })
    }
}
