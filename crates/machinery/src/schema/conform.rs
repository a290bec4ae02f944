//! The form in which upstream's decoder keeps an object.

use facts::{Field, Opaque, Schema, Type};
use serde_json::Value;

use super::scalar::{self, Precision, Verdict};
use super::unstructured::from_unstructured;
use crate::codec::Path;
use crate::codec::numbers::{go_text, of_float};
use crate::patch::json_type;
use crate::value::Object;

/// The most unknown fields that are named.
const MAX_UNKNOWN: usize = 100;

/// Brings an object into the form upstream's decoder would have kept. Answers with the complaints of a strict reader
/// (`unknown field "spec.foo"`), or with Go's message for the first value of a wrong type.
pub fn conform(value: &mut Value, of: &Type) -> Result<Vec<String>, String> {
    let mut walk = Walk { unknown: Vec::new(), root: of, converts: false };
    walk.whole(value)?;
    Ok(walk.unknown)
}

/// As [`conform`], where upstream converts and does not decode: what its converter makes of a value that a decoder refuses is
/// taken, and what neither takes is named as the converter names it.
pub fn conform_converted(value: &mut Value, of: &Type) -> Result<Vec<String>, String> {
    let mut walk = Walk { unknown: Vec::new(), root: of, converts: true };
    // Up to the value that was refused, the tree is as it should be: the second walk goes on from there.
    if walk.whole(value).is_err() {
        from_unstructured(value, of)?;
        walk.whole(value)?;
    }
    Ok(walk.unknown)
}

/// The type errors that [`conform`] would find, for callers that keep the value as it is.
pub fn check_types(value: &Value, of: &Type) -> Result<(), String> {
    conform(&mut value.clone(), of).map(|_| ())
}

/// Drops the fields that the type does not have, and names them.
pub fn prune_unknown(value: &mut Value, of: &Type) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Value::Object(fields) = value {
        prune_object(fields, of, Path::Root, &mut unknown);
    }
    unknown
}

fn prune_object(fields: &mut Object, of: &Type, path: Path<'_>, unknown: &mut Vec<String>) {
    fields.retain(|key, value| match of.field(key) {
        Some(field) => {
            prune_value(value, &field.schema, Path::Key(&path, key), unknown);
            true
        }
        None if of.preserve_unknown => true,
        None => {
            complain(unknown, Path::Key(&path, key));
            false
        }
    });
}

fn prune_value(value: &mut Value, schema: &Schema, path: Path<'_>, unknown: &mut Vec<String>) {
    match (value, schema) {
        (Value::Object(entries), Schema::Map(map)) => {
            for (key, entry) in entries.iter_mut() {
                prune_value(entry, &map.values, Path::Entry(&path, key), unknown);
            }
        }
        (Value::Object(fields), schema) => {
            if let Some(of) = schema.object() {
                prune_object(fields, of, path, unknown);
            }
        }
        (Value::Array(items), Schema::Array(list)) => {
            for (at, item) in items.iter_mut().enumerate() {
                prune_value(item, &list.items, Path::Index(&path, at), unknown);
            }
        }
        _ => {}
    }
}

fn complain(unknown: &mut Vec<String>, path: Path<'_>) {
    if unknown.len() < MAX_UNKNOWN {
        unknown.push(format!("unknown field {:?}", path.to_string()));
    }
}

pub(super) struct Walk<'t> {
    pub(super) unknown: Vec<String>,
    pub(super) root: &'t Type,
    /// Whether upstream converts the value, and decodes only what reads itself.
    pub(super) converts: bool,
}

impl Walk<'_> {
    fn whole(&mut self, value: &mut Value) -> Result<(), String> {
        let of = self.root;
        match value {
            Value::Object(fields) => self.object(fields, of, Path::Root),
            other => Err(format!("json: cannot unmarshal {} into Go value of type {}", json_type(other), go_name(of))),
        }
    }

    fn object(&mut self, fields: &mut Object, of: &Type, at: Path<'_>) -> Result<(), String> {
        let mut result = Ok(());
        fields.retain(|key, value| {
            if result.is_err() {
                return true;
            }
            let path = Path::Key(&at, key);
            let Some(field) = of.field(key) else {
                if of.preserve_unknown {
                    return true;
                }
                complain(&mut self.unknown, path);
                return false;
            };
            if value.is_null() {
                return field.nullable;
            }
            match self.value(value, &field.schema, path) {
                Ok(set) => set && !is_unset(value, field, of, &at),
                Err(error) => {
                    result = Err(error);
                    true
                }
            }
        });
        result
    }

    /// Checks one value that is not null; false if it means "not set".
    fn value(&mut self, value: &mut Value, schema: &Schema, at: Path<'_>) -> Result<bool, String> {
        let verdict = match (schema, &mut *value) {
            (Schema::String | Schema::Duration, Value::String(_)) | (Schema::Bool, Value::Bool(_)) => {
                return Ok(true);
            }
            (Schema::Any(kind), other) => {
                self.opaque(*kind, other, at)?;
                return Ok(true);
            }
            (Schema::Int32, Value::Number(number)) => match number.as_i64().map(i32::try_from) {
                Some(Ok(_)) => return Ok(true),
                _ => return Err(self.mismatch(&format!("number {}", go_text(number)), at)),
            },
            (Schema::Int64, Value::Number(number)) => match number.as_i64() {
                Some(_) => return Ok(true),
                None => return Err(self.mismatch(&format!("number {}", go_text(number)), at)),
            },
            // What is whole is written without a fraction, however it came.
            (Schema::Double, Value::Number(number)) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => Verdict::Replace(of_float(float)),
                None => return Ok(true),
            },
            (Schema::IntOrString, Value::String(_)) => return Ok(true),
            (Schema::IntOrString, Value::Number(number)) => match number.as_i64().map(i32::try_from) {
                Some(Ok(_)) => return Ok(true),
                _ => return Err(self.mismatch(&format!("number {}", go_text(number)), at)),
            },
            (Schema::Bytes, Value::String(text)) => scalar::bytes(text)?,
            (Schema::Quantity, other) => scalar::quantity(other)?,
            (Schema::Time, Value::String(text)) => scalar::timestamp(text, Precision::Seconds)?,
            (Schema::MicroTime, Value::String(text)) => scalar::timestamp(text, Precision::Micros)?,
            (Schema::Array(list), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.element(item, &list.items, Path::Index(&at, index))?;
                }
                return Ok(true);
            }
            (Schema::Map(map), Value::Object(entries)) => {
                for (key, entry) in entries.iter_mut() {
                    self.element(entry, &map.values, Path::Entry(&at, key))?;
                }
                return Ok(true);
            }
            (schema, Value::Object(fields)) if schema.object().is_some() => {
                let of = schema.object().expect("just checked");
                self.object(fields, of, at)?;
                return Ok(true);
            }
            (_, other) => return Err(self.mismatch(json_type(other), at)),
        };
        match verdict {
            Verdict::Keep => Ok(true),
            Verdict::Unset => Ok(false),
            Verdict::Replace(canonical) => {
                *value = canonical;
                Ok(true)
            }
        }
    }

    /// Most opaque values are whatever they are. Those of a schema may be a schema again, or something else that is not null.
    fn opaque(&mut self, kind: Opaque, value: &mut Value, at: Path<'_>) -> Result<(), String> {
        if !reads_itself(kind) {
            return Ok(());
        }
        let known = self.unknown.len();
        match (kind, &mut *value) {
            (_, Value::Object(fields)) => match json_schema() {
                Some(of) => self.object(fields, of.def(), at)?,
                None => return Ok(()),
            },
            (Opaque::SchemaOrBool, Value::Bool(_)) => {}
            (Opaque::SchemaOrBool, _) => return Err("boolean or JSON schema expected".to_owned()),
            (_, Value::Array(items)) if !items.is_empty() => {
                let strings = kind == Opaque::SchemaOrStrings;
                let schema = if strings { Some(Schema::String) } else { json_schema().map(Schema::Ref) };
                for (index, item) in items.iter_mut().enumerate() {
                    if let Some(schema) = &schema {
                        self.element(item, schema, Path::Index(&at, index))?;
                    }
                }
            }
            // Go reads anything else as nothing.
            _ => *value = Value::Null,
        }
        // What reads itself does not say what it did not know.
        self.unknown.truncate(known);
        Ok(())
    }

    /// Go's complaint about a value of a wrong type. It names the innermost struct, the fields on the way there, and the type.
    pub(super) fn mismatch(&self, found: &str, at: Path<'_>) -> String {
        let mut steps = Vec::new();
        let mut step = &at;
        loop {
            steps.push(step);
            step = match step {
                Path::Root => break,
                Path::Key(before, _) | Path::Entry(before, _) | Path::Index(before, _) => before,
            };
        }
        let (mut parent, mut of) = (self.root, Some(self.root));
        let (mut fields, mut schema, mut wanted) = (Vec::new(), None::<&Schema>, String::new());
        let mut converts = self.converts;
        for step in steps.into_iter().rev() {
            match step {
                Path::Root => continue,
                Path::Key(_, key) => {
                    parent = of.unwrap_or(parent);
                    let go = facts::go_field(&parent.name, key);
                    fields.extend(go.map(|go| go.embedded).filter(|name| !name.is_empty()));
                    fields.push(key);
                    schema = parent.field(key).map(|field| &field.schema);
                    wanted = match go.and_then(|go| go.ty) {
                        Some(named) => named.to_owned(),
                        None => schema.map(go_type).unwrap_or_default(),
                    };
                    // Nobody knows the way to what is decoded inside of a conversion.
                    if converts && matches!(schema, Some(Schema::Any(kind)) if reads_itself(*kind)) {
                        fields.clear();
                        converts = false;
                    }
                }
                Path::Entry(..) | Path::Index(..) => {
                    schema = schema.and_then(|schema| match schema {
                        Schema::Array(list) => Some(&list.items),
                        Schema::Map(map) => Some(&map.values),
                        _ => None,
                    });
                    wanted = match wanted.strip_prefix("[]").or_else(|| wanted.strip_prefix("map[string]")) {
                        Some(element) => element.to_owned(),
                        None => schema.map(go_type).unwrap_or_default(),
                    };
                }
            }
            of = schema.and_then(Schema::object);
        }
        let (name, path) = (parent.short_name(), fields.join("."));
        format!("json: cannot unmarshal {found} into Go struct field {name}.{path} of type {wanted}")
    }

    /// Checks an element of a list or a map, which stays whatever it is: a null is the zero of its type.
    fn element(&mut self, value: &mut Value, schema: &Schema, at: Path<'_>) -> Result<(), String> {
        if value.is_null() {
            // Empty and absent bytes are distinct only until they are stored.
            *value = if *schema == Schema::Bytes { Value::from("") } else { zero(schema) };
            return Ok(());
        }
        if !self.value(value, schema, at)? {
            *value = Value::Null;
        }
        Ok(())
    }
}

/// Whether values of a kind have a reader of their own: a schema, or something else.
fn reads_itself(kind: Opaque) -> bool {
    matches!(kind, Opaque::SchemaOrArray | Opaque::SchemaOrBool | Opaque::SchemaOrStrings)
}

/// The schema of a schema.
pub(crate) fn json_schema() -> Option<facts::TypeId> {
    facts::type_named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
}

/// Whether a value is what Go does not tell from an absent one. Those that upstream always writes come back with
/// [`super::complete`]; an empty list among them is kept, since there upstream tells it from an absent one.
fn is_unset(value: &Value, field: &Field, of: &Type, at: &Path<'_>) -> bool {
    if field.proto.is_some_and(|proto| proto.pointer) {
        return false;
    }
    match value {
        Value::String(text) => text.is_empty() && !matches!(field.schema, Schema::Any(_) | Schema::IntOrString),
        Value::Bool(flag) => !flag && !matches!(field.schema, Schema::Any(_)),
        Value::Number(number) => {
            number.as_f64() == Some(0.0) && !matches!(field.schema, Schema::Any(_) | Schema::IntOrString)
        }
        // An empty list of managers asks to forget them all.
        Value::Array(_) if field.name == "managedFields" => false,
        Value::Array(items) => items.is_empty() && field.schema.list().is_some() && !kept_empty(field, of, at),
        Value::Object(entries) => entries.is_empty() && field.schema.map().is_some() && !kept_empty(field, of, at),
        Value::Null => true,
    }
}

fn kept_empty(field: &Field, of: &Type, at: &Path<'_>) -> bool {
    field.always || super::presence::is_distinct(of, field, at)
}

/// The zero of a type, as JSON shows it.
pub(super) fn zero(schema: &Schema) -> Value {
    match schema {
        Schema::String => Value::from(""),
        Schema::Int32 | Schema::Int64 | Schema::Double | Schema::IntOrString => Value::from(0),
        Schema::Bool => Value::from(false),
        Schema::Quantity => Value::from("0"),
        Schema::Duration => Value::from("0s"),
        Schema::Ref(_) | Schema::Object(_) => Value::Object(Object::new()),
        Schema::Time | Schema::MicroTime | Schema::Bytes | Schema::Any(_) | Schema::Array(_) | Schema::Map(_) => {
            Value::Null
        }
    }
}

fn go_type(schema: &Schema) -> String {
    match schema {
        Schema::String | Schema::Duration | Schema::Time | Schema::MicroTime | Schema::Quantity => "string".to_owned(),
        Schema::Bytes => "[]uint8".to_owned(),
        Schema::Int32 | Schema::IntOrString => "int32".to_owned(),
        Schema::Int64 => "int64".to_owned(),
        Schema::Double => "float64".to_owned(),
        Schema::Bool => "bool".to_owned(),
        Schema::Any(_) => "interface {}".to_owned(),
        Schema::Array(list) => format!("[]{}", go_type(&list.items)),
        Schema::Map(map) => format!("map[string]{}", go_type(&map.values)),
        schema => schema.object().map_or_else(String::new, go_name),
    }
}

/// The package and the name of a struct: `v1.PodSpec`.
fn go_name(of: &Type) -> String {
    let mut parts = of.name.rsplit('.');
    let name = parts.next().unwrap_or_default();
    match parts.next() {
        Some(package) => format!("{package}.{name}"),
        None => name.to_owned(),
    }
}
