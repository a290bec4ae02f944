//! A structural schema, read once and asked often.
//!
//! A cluster may have thousands of large definitions, so a node has only what nearly every node needs; the rest is behind boxes that most nodes do not
//! have.

use machinery::Value;
use machinery::value;
use regex::Regex;

use crate::formats::Format;

/// Deeper schemas are refused: objects may not be that deep either.
const MAX_DEPTH: usize = 256;

/// Why a schema cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// It is nested too deeply.
    TooDeep,
}

/// The JSON types that a value may have; none means any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Types(u8);

/// In the order in which messages list them.
const NAMES: [(&str, Types); 7] = [
    ("integer", Types::INTEGER),
    ("string", Types::STRING),
    ("array", Types(1 << 2)),
    ("boolean", Types(1 << 3)),
    ("number", Types::NUMBER),
    ("object", Types(1 << 5)),
    ("null", Types(1 << 6)),
];

impl Types {
    /// A number without a fraction.
    pub const INTEGER: Self = Self(1);
    pub const STRING: Self = Self(1 << 1);
    pub const NUMBER: Self = Self(1 << 4);

    pub(crate) fn named(name: &str) -> Self {
        NAMES.iter().find(|(known, _)| *known == name).map_or(Self(0), |(_, types)| *types)
    }

    /// Whether any value will do.
    pub fn is_any(self) -> bool {
        self.0 == 0
    }

    /// Whether all of the others are among these.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0 && other.0 != 0
    }

    /// The name of the only type, if there is only one.
    pub fn only(self) -> Option<&'static str> {
        if self.0.count_ones() != 1 {
            return None;
        }
        NAMES.iter().find(|(_, types)| *types == self).map(|(name, _)| *name)
    }

    /// As messages list them.
    pub fn listed(self) -> String {
        let names: Vec<&str> = NAMES.iter().filter(|(_, types)| self.has(*types)).map(|(name, _)| *name).collect();
        names.join(",")
    }
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects told apart by the keys.
    Map,
}

/// `x-kubernetes-map-type`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MapType {
    /// Merged field by field.
    #[default]
    Granular,
    /// Replaced as a whole.
    Atomic,
}

/// `additionalProperties`.
#[derive(Debug, Clone, Default)]
pub enum Additional {
    #[default]
    Unsaid,
    /// Allowed or not, whatever they are.
    Allowed(bool),
    /// Allowed where they fit.
    Schema(Box<Schema>),
}

/// One of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    pub rule: String,
    /// What to say when it is false.
    pub message: String,
    /// An expression that makes what to say.
    pub message_expression: String,
    /// A reason of a field error.
    pub reason: String,
    /// Where the error is, below the rule's place.
    pub field_path: String,
    /// Whether the old value may be absent.
    pub optional_old_self: Option<bool>,
}

/// Limits of a single value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) format: Option<Format>,
    pub(crate) allowed: Vec<Value>,
}

/// A regular expression, or why it is none.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) compiled: Result<Regex, String>,
}

/// Schemas of which some must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Combined {
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Schema>,
}

/// A place in the objects of a custom resource.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// What a value may be.
    pub types: Types,
    /// Whether null is a value.
    pub nullable: bool,
    /// Whether fields that the schema does not know are kept.
    pub preserve_unknown: bool,
    /// Whether an object here has `apiVersion`, `kind` and `metadata`.
    pub embedded_resource: bool,
    /// Whether anything inside of it has. Nearly nothing does, so nearly nothing is looked through for it.
    pub(crate) embeds: bool,
    /// Whether an integer and a string are both fine.
    pub int_or_string: bool,
    pub list_type: Option<ListType>,
    pub map_type: Option<MapType>,
    /// What tells the items of a list apart.
    pub list_keys: Box<[String]>,
    /// The fields, by name.
    pub properties: Box<[(String, Schema)]>,
    /// The fields that must be there.
    pub required: Box<[String]>,
    /// Fields beside those named.
    pub additional: Additional,
    /// The items of a list.
    pub items: Option<Box<Schema>>,
    /// What a value is when none is given.
    pub default: Option<Box<Value>>,
    /// Expressions that must hold.
    pub rules: Box<[Rule]>,
    pub(crate) limits: Option<Box<Limits>>,
    pub(crate) combined: Option<Box<Combined>>,
    /// Whether nothing is dropped, whatever the schema says: `spec.preserveUnknownFields` of definitions from before schemas had to be structural.
    pub(crate) unpruned: bool,
}

impl Schema {
    /// Reads a `JSONSchemaProps`.
    pub fn read(props: &Value) -> Result<Self, ReadError> {
        Reader { depth: 0 }.schema(props)
    }

    /// The schema of a field, named or additional; nothing where the schema says nothing about it.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.property(name).or(match &self.additional {
            Additional::Schema(schema) => Some(schema),
            Additional::Unsaid | Additional::Allowed(_) => None,
        })
    }

    /// The schema of a named field.
    pub fn property(&self, name: &str) -> Option<&Schema> {
        let at = self.properties.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }
}

impl Schema {
    pub(crate) fn max_length(&self) -> Option<i64> {
        self.limits.as_deref().and_then(|limits| limits.max_length)
    }

    /// The format of a text, where it means something.
    pub(crate) fn format(&self) -> &str {
        let format = self.limits.as_deref().and_then(|limits| limits.format.as_ref());
        format.map_or("", |format| format.name.as_str())
    }
}

struct Reader {
    depth: usize,
}

impl Reader {
    fn schema(&mut self, props: &Value) -> Result<Schema, ReadError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ReadError::TooDeep);
        }
        let int_or_string = value::flag(props, "x-kubernetes-int-or-string");
        let types = if int_or_string {
            Types(Types::INTEGER.0 | Types::STRING.0)
        } else {
            Types::named(value::text(props, "type"))
        };
        let mut properties = Vec::new();
        for (name, property) in props["properties"].as_object().into_iter().flatten() {
            properties.push((name.clone(), self.schema(property)?));
        }
        properties.sort_by(|(a, _), (b, _)| a.cmp(b));
        let additional = match &props["additionalProperties"] {
            Value::Bool(allowed) => Additional::Allowed(*allowed),
            schema @ Value::Object(_) => Additional::Schema(Box::new(self.schema(schema)?)),
            _ => Additional::Unsaid,
        };
        let items = match &props["items"] {
            schema @ Value::Object(_) => Some(Box::new(self.schema(schema)?)),
            _ => None,
        };
        let inside = properties.iter().map(|(_, property)| property).chain(items.as_deref()).chain(match &additional {
            Additional::Schema(schema) => Some(&**schema),
            Additional::Unsaid | Additional::Allowed(_) => None,
        });
        let embeds = inside.into_iter().any(|schema| schema.embedded_resource || schema.embeds);
        let schema = Schema {
            types,
            embeds,
            nullable: value::flag(props, "nullable"),
            preserve_unknown: value::flag(props, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: value::flag(props, "x-kubernetes-embedded-resource"),
            int_or_string,
            list_type: match value::text(props, "x-kubernetes-list-type") {
                "atomic" => Some(ListType::Atomic),
                "set" => Some(ListType::Set),
                "map" => Some(ListType::Map),
                _ => None,
            },
            map_type: match value::text(props, "x-kubernetes-map-type") {
                "granular" => Some(MapType::Granular),
                "atomic" => Some(MapType::Atomic),
                _ => None,
            },
            list_keys: texts(&props["x-kubernetes-list-map-keys"]),
            properties: properties.into(),
            required: texts(&props["required"]),
            additional,
            items,
            default: props.get("default").filter(|default| !default.is_null()).cloned().map(Box::new),
            rules: value::list(props, "x-kubernetes-validations").iter().map(rule).collect(),
            limits: limits(props, types),
            combined: self.combined(props)?,
            unpruned: false,
        };
        self.depth -= 1;
        Ok(schema)
    }

    fn combined(&mut self, props: &Value) -> Result<Option<Box<Combined>>, ReadError> {
        let mut combined = Combined::default();
        for (name, list) in
            [("allOf", &mut combined.all_of), ("anyOf", &mut combined.any_of), ("oneOf", &mut combined.one_of)]
        {
            for schema in value::list(props, name) {
                list.push(self.schema(schema)?);
            }
        }
        if props["not"].is_object() {
            combined.not = Some(self.schema(&props["not"])?);
        }
        let Combined { all_of, any_of, one_of, not } = &combined;
        let none = all_of.is_empty() && any_of.is_empty() && one_of.is_empty() && not.is_none();
        Ok((!none).then(|| Box::new(combined)))
    }
}

fn texts(list: &Value) -> Box<[String]> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn rule(props: &Value) -> Rule {
    let text = |name: &str| value::text(props, name).to_owned();
    Rule {
        rule: text("rule"),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: text("reason"),
        field_path: text("fieldPath"),
        optional_old_self: props["optionalOldSelf"].as_bool(),
    }
}

fn limits(props: &Value, types: Types) -> Option<Box<Limits>> {
    const FIELDS: [&str; 15] = [
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "multipleOf",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxProperties",
        "minProperties",
        "format",
        "enum",
    ];
    if FIELDS.iter().all(|field| props.get(field).is_none_or(Value::is_null)) {
        return None;
    }
    let float = |name: &str| props[name].as_f64();
    let int = |name: &str| value::int(props, name);
    let pattern = value::text(props, "pattern");
    Some(Box::new(Limits {
        maximum: float("maximum"),
        exclusive_maximum: value::flag(props, "exclusiveMaximum"),
        minimum: float("minimum"),
        exclusive_minimum: value::flag(props, "exclusiveMinimum"),
        multiple_of: float("multipleOf"),
        max_length: int("maxLength"),
        min_length: int("minLength"),
        pattern: (!pattern.is_empty()).then(|| compile(pattern)),
        max_items: int("maxItems"),
        min_items: int("minItems"),
        unique_items: value::flag(props, "uniqueItems"),
        max_properties: int("maxProperties"),
        min_properties: int("minProperties"),
        format: Format::of(value::text(props, "format"), types),
        allowed: value::list(props, "enum").to_vec(),
    }))
}

fn compile(pattern: &str) -> Pattern {
    Pattern { text: pattern.to_owned(), compiled: cel::regexp::compile(pattern) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_found_by_name_and_says_what_it_may_be() {
        let schema = Schema::read(&json!({"type": "object", "properties": {
            "size": {"x-kubernetes-int-or-string": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {"type": "object", "additionalProperties": true},
        }}))
        .expect("a schema");
        assert_eq!(schema.property("size").map(|size| size.types.listed()).as_deref(), Some("integer,string"));
        let labels = schema.property("labels").expect("labels");
        assert_eq!(labels.field("a").and_then(|label| label.types.only()), Some("string"));
        assert!(schema.property("any").is_some_and(|any| any.field("x").is_none()));
    }

    #[test]
    fn a_schema_without_end_is_refused() {
        let mut props = json!({"type": "object"});
        for _ in 0..MAX_DEPTH {
            props = json!({"type": "object", "properties": {"deeper": props}});
        }
        assert!(matches!(Schema::read(&props), Err(ReadError::TooDeep)));
    }
}
