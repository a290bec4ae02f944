//! Types: OpenAPI's schemas, completed by protobuf's numbers and by the messages that OpenAPI lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::enums::{self, Enums};
use super::presence::{self, Presence};
use super::proto::{self, Messages, ProtoField};
use super::{Failure, list, read_json, text};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const RESOURCE: &str = "io.k8s.apimachinery.pkg.api.resource.";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

/// Appends the lines `T`, `K`, `Q`, `U`, `E` and `F`.
pub fn write(facts: &Path, presence: &str, enums: &str, out: &mut String) -> Result<(), Failure> {
    let schemas = read_schemas(&facts.join("openapi-v3"))?;
    let messages = proto::read(facts)?;
    let presence = presence::read(presence);
    let enums = enums::read(enums);
    let groups = Groups::of(&schemas);
    let unknown = Presence::default();
    for name in wanted(&schemas, &messages) {
        let of = TypeWriter {
            name: &name,
            schema: schemas.get(&name),
            message: messages.get(&name),
            messages: &messages,
            presence: presence.get(name.as_str()).unwrap_or(&unknown),
            enums: &enums,
        };
        of.write(&groups, out)?;
    }
    Ok(())
}

/// The names of the types that the table holds.
pub fn names(facts: &Path) -> Result<BTreeSet<String>, Failure> {
    Ok(wanted(&read_schemas(&facts.join("openapi-v3"))?, &proto::read(facts)?))
}

fn wanted(schemas: &BTreeMap<String, Value>, messages: &Messages) -> BTreeSet<String> {
    let packages: BTreeSet<&str> = schemas.keys().filter_map(|name| name.rsplit_once('.')).map(|(of, _)| of).collect();
    let packages: Vec<String> = packages.into_iter().map(|package| format!("{package}.")).collect();
    schemas.keys().chain(messages.keys().filter(|name| proto::is_wanted(name, &packages))).cloned().collect()
}

/// Every schema of every document. Only two differ between documents, in the list of the group versions
/// they serve; the core group's is kept, the shortest.
fn read_schemas(folder: &Path) -> Result<BTreeMap<String, Value>, Failure> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    paths.sort_by_key(|entry| entry.path());
    let mut schemas = BTreeMap::new();
    for entry in paths {
        let mut document = read_json(&entry.path())?;
        let Value::Object(found) = document["components"]["schemas"].take() else { continue };
        for (name, schema) in found {
            match schemas.get_mut(&name) {
                None => {
                    schemas.insert(name, schema);
                }
                Some(known) if *known == schema => {}
                Some(known) => {
                    let kinds = |of: &Value| of["x-kubernetes-group-version-kind"].as_array().map_or(0, Vec::len);
                    if kinds(&schema) < kinds(known) {
                        *known = schema;
                    }
                }
            }
        }
    }
    Ok(schemas)
}

/// The API group of each Go package, learnt from the schemas that name their kinds.
struct Groups(BTreeMap<String, String>);

impl Groups {
    fn of(schemas: &BTreeMap<String, Value>) -> Groups {
        let mut groups = BTreeMap::new();
        for (name, schema) in schemas {
            let of_meta = name.starts_with("io.k8s.apimachinery.");
            for gvk in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten().filter(|_| !of_meta) {
                groups.insert(directory(name).0.to_owned(), text(gvk, "group").to_owned());
            }
        }
        Groups(groups)
    }

    /// The group and version of a kind that only protobuf knows.
    fn kind_of(&self, name: &str) -> (String, String) {
        let (directory, version, kind) = directory(name);
        let group = match self.0.get(directory) {
            Some(group) => group.clone(),
            None if kind.starts_with("PartialObjectMetadata") || kind.starts_with("Table") => "meta.k8s.io".to_owned(),
            None if directory.starts_with("io.k8s.apimachinery.") => String::new(),
            None => format!("{}.k8s.io", directory.rsplit('.').next().unwrap_or_default()),
        };
        (group, version.to_owned())
    }
}

/// A type's name taken apart: the package without its version, the version and the kind.
fn directory(name: &str) -> (&str, &str, &str) {
    let (package, kind) = name.rsplit_once('.').unwrap_or(("", name));
    let (directory, version) = package.rsplit_once('.').unwrap_or((package, ""));
    (directory, version, kind)
}

/// The table's word for a type whose JSON form is no object.
fn shape(name: &str) -> Option<&'static str> {
    let short = name.rsplit('.').next().unwrap_or_default();
    match (name.strip_suffix(short).unwrap_or_default(), short) {
        (META, "Time") => Some("time"),
        (META, "MicroTime") => Some("micro"),
        (META, "Duration") => Some("duration"),
        (META, "FieldsV1") => Some("fields"),
        (META, "Patch") => Some("patch"),
        (META, "Verbs") => Some("strings"),
        (RESOURCE, "Quantity") => Some("quantity"),
        ("io.k8s.apimachinery.pkg.util.intstr.", "IntOrString") => Some("intorstring"),
        ("io.k8s.apimachinery.pkg.runtime.", "RawExtension") => Some("raw"),
        (EXTENSIONS, "JSON") => Some("json"),
        (EXTENSIONS, "JSONSchemaPropsOrArray") => Some("schemaorarray"),
        (EXTENSIONS, "JSONSchemaPropsOrBool") => Some("schemaorbool"),
        (EXTENSIONS, "JSONSchemaPropsOrStringArray") => Some("schemaorstrings"),
        (_, "ExtraValue" | "AttestationValue") => Some("strings"),
        _ => None,
    }
}

struct TypeWriter<'a> {
    name: &'a str,
    schema: Option<&'a Value>,
    message: Option<&'a BTreeMap<String, ProtoField>>,
    messages: &'a Messages,
    presence: &'a Presence,
    enums: &'a Enums<'a>,
}

impl TypeWriter<'_> {
    fn write(&self, groups: &Groups, out: &mut String) -> Result<(), Failure> {
        write!(out, "T {}", self.name)?;
        let shape = shape(self.name);
        if let Some(shape) = shape {
            write!(out, " {shape}")?;
        }
        if let Some(map_type) = self.schema.and_then(|schema| schema["x-kubernetes-map-type"].as_str()) {
            write!(out, " m={}", &map_type[..1])?;
        }
        if self.message.is_some() {
            write!(out, " p")?;
        }
        if self.schema.is_none() {
            write!(out, " u")?;
        }
        out.push('\n');
        match self.schema {
            Some(schema) => self.write_kinds(schema, out)?,
            None if self.presence.kind => {
                let (group, version) = groups.kind_of(self.name);
                writeln!(
                    out,
                    "K {} {version} {}",
                    if group.is_empty() { "-" } else { &group },
                    directory(self.name).2
                )?;
            }
            None => {}
        }
        self.write_fields(shape.is_some(), out)
    }

    fn write_kinds(&self, schema: &Value, out: &mut String) -> Result<(), Failure> {
        const KNOWN: [&str; 8] = [
            "format",
            "oneOf",
            "properties",
            "required",
            "type",
            "x-kubernetes-group-version-kind",
            "x-kubernetes-map-type",
            "x-kubernetes-unions",
        ];
        self.refuse_unknown(schema, &KNOWN)?;
        for gvk in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
            let group = Some(text(gvk, "group")).filter(|group| !group.is_empty()).unwrap_or("-");
            writeln!(out, "K {group} {} {}", text(gvk, "version"), text(gvk, "kind"))?;
        }
        if let required @ [_, ..] = &*list(&schema["required"]) {
            writeln!(out, "Q {}", required.join(","))?;
        }
        for union in schema["x-kubernetes-unions"].as_array().into_iter().flatten() {
            let members: Vec<String> = union["fields-to-discriminateBy"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(field, value)| format!("{field}={}", value.as_str().unwrap_or_default()))
                .collect();
            writeln!(out, "U {} {}", union["discriminator"].as_str().unwrap_or("-"), members.join(","))?;
        }
        Ok(())
    }

    fn write_fields(&self, special: bool, out: &mut String) -> Result<(), Failure> {
        let empty = Map::new();
        let properties = self.schema.and_then(|schema| schema["properties"].as_object()).unwrap_or(&empty);
        let mut numbers: BTreeMap<String, &ProtoField> = BTreeMap::new();
        let mut fields: BTreeMap<String, String> = BTreeMap::new();
        for (name, field) in self.message.into_iter().flatten() {
            match properties.keys().find(|property| folded(property) == folded(name)) {
                Some(property) => {
                    numbers.insert(property.clone(), field);
                }
                None if self.schema.is_some() && !special => {
                    let target = field.wire.strip_prefix('@').filter(|target| self.messages.contains_key(*target));
                    let target = target.ok_or_else(|| format!("{}.{name} is unknown to OpenAPI", self.name))?;
                    writeln!(out, "E {} {target}", field.number)?;
                }
                None => {
                    let name = if special { name.clone() } else { self.json_name(name) };
                    fields.insert(name.clone(), proto_schema(field));
                    numbers.insert(name, field);
                }
            }
        }
        if self.schema.is_none() && self.presence.kind {
            fields.insert("apiVersion".to_owned(), "s".to_owned());
            fields.insert("kind".to_owned(), "s".to_owned());
        }
        for (name, property) in properties {
            fields.insert(
                name.clone(),
                self.schema_of(property).map_err(|error| format!("{}.{name}: {error}", self.name))?,
            );
        }
        for (name, schema) in &fields {
            write!(out, "F {name} {schema}")?;
            if let Some(field) = numbers.get(name) {
                write!(out, " #{}", field.number)?;
                if self.presence.pointers.contains(name) {
                    out.push('?');
                }
                if implied_wire(schema) != (field.label, field.wire.clone()) {
                    write!(out, "={}{}", field.label, field.wire)?;
                }
            }
            if self.is_always(name, numbers.get(name).copied()) {
                write!(out, " !")?;
            }
            if let Some(property) = properties.get(name) {
                self.write_marks(name, property, out)?;
            }
            out.push('\n');
        }
        Ok(())
    }

    /// Whether JSON has the field even when it is zero: without `omitempty`, or when it is a struct held by
    /// value, which only `omitzero` leaves out.
    fn is_always(&self, name: &str, field: Option<&ProtoField>) -> bool {
        let is_struct = field.is_some_and(|field| {
            field.label == '1' && field.wire.strip_prefix('@').is_some_and(|name| shape(name) != Some("strings"))
        });
        let by_value = is_struct && !self.presence.pointers.contains(name) && !self.presence.omitzero.contains(name);
        self.presence.always.contains(name) || by_value
    }

    /// The JSON name of a field that only protobuf tells: it is mostly the same, but where the
    /// message has Go's name the first letter is lowered.
    fn json_name(&self, name: &str) -> String {
        let presence = self.presence;
        let mut known = presence.pointers.iter().chain(&presence.always).chain(&presence.omitzero);
        let known = known.find(|known| folded(known) == folded(name));
        known.cloned().unwrap_or_else(|| name[..1].to_ascii_lowercase() + &name[1..])
    }

    fn write_marks(&self, name: &str, property: &Value, out: &mut String) -> Result<(), Failure> {
        const KNOWN: [&str; 12] = [
            "$ref",
            "additionalProperties",
            "allOf",
            "default",
            "format",
            "items",
            "type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
            "x-kubernetes-patch-merge-key",
            "x-kubernetes-patch-strategy",
        ];
        self.refuse_unknown(property, &KNOWN)?;
        if let Some(default) = property.get("default") {
            let default = serde_json::to_string(default)?;
            if default.contains(' ') {
                return Err(format!("{}: a default with a space: {default}", self.name).into());
            }
            write!(out, " d={default}")?;
        }
        for (mark, key) in [('s', "x-kubernetes-patch-strategy"), ('k', "x-kubernetes-patch-merge-key")] {
            if let Some(value) = property[key].as_str() {
                write!(out, " {mark}={value}")?;
            }
        }
        let is_ref = property["allOf"].is_array() || property["$ref"].is_string();
        if let Some(map_type) = property["x-kubernetes-map-type"].as_str().filter(|_| is_ref) {
            write!(out, " m={}", &map_type[..1])?;
        }
        if property["$ref"].is_string() {
            write!(out, " b")?;
        }
        let mut extra = Map::new();
        if let Some(list_type) = property["x-kubernetes-list-type"].as_str().filter(|_| property["type"] != "array") {
            extra.insert("x-kubernetes-list-type".to_owned(), json!(list_type));
        }
        if let Some(values) = self.enums.get(&(self.name, name)) {
            extra.insert("enum".to_owned(), serde_json::from_str(values)?);
        }
        if !extra.is_empty() {
            // Spaces separate marks; JSON can do without them.
            write!(out, " x={}", serde_json::to_string(&extra)?.replace(' ', "\\u0020"))?;
        }
        Ok(())
    }

    fn schema_of(&self, schema: &Value) -> Result<String, Failure> {
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        if let Some(reference) = reference {
            let name = reference.strip_prefix("#/components/schemas/").ok_or("a reference to elsewhere")?;
            return Ok(shape(name).map_or_else(|| format!("@{name}"), str::to_owned));
        }
        Ok(match (text(schema, "type"), text(schema, "format")) {
            ("string", "byte") => "bytes".to_owned(),
            ("string", "") => "s".to_owned(),
            ("integer", "int32") => "i32".to_owned(),
            ("integer", "int64") => "i64".to_owned(),
            ("number", "double") => "f64".to_owned(),
            ("boolean", "") => "b".to_owned(),
            ("array", "") => {
                let mut list_type = schema["x-kubernetes-list-type"].as_str().map_or("", |of| &of[..1]).to_owned();
                if let keys @ [_, ..] = &*list(&schema["x-kubernetes-list-map-keys"]) {
                    write!(list_type, ":{}", keys.join(","))?;
                }
                format!("[{list_type}]{}", self.schema_of(&schema["items"])?)
            }
            ("object", "") if schema["additionalProperties"].is_object() => {
                let map_type = schema["x-kubernetes-map-type"].as_str().map_or("", |of| &of[..1]);
                format!("{{{map_type}}}{}", self.schema_of(&schema["additionalProperties"])?)
            }
            other => return Err(format!("unknown type and format {other:?}").into()),
        })
    }

    fn refuse_unknown(&self, schema: &Value, known: &[&str]) -> Result<(), Failure> {
        match schema.as_object().into_iter().flatten().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, _)) => Err(format!("{}: unknown keyword {key}", self.name).into()),
            None => Ok(()),
        }
    }
}

/// A name without case and punctuation: protobuf's `xKubernetesListType` is JSON's `x-kubernetes-list-type`.
fn folded(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The schema of a field that only protobuf describes.
fn proto_schema(field: &ProtoField) -> String {
    let scalar = match field.wire.strip_prefix('@').map(|name| (name, shape(name))) {
        None => field.wire.clone(),
        Some((_, Some("strings"))) => "[]s".to_owned(),
        Some((_, Some(shape))) => shape.to_owned(),
        Some((name, None)) => format!("@{name}"),
    };
    match field.label {
        '*' => format!("[]{scalar}"),
        '%' => format!("{{}}{scalar}"),
        _ => scalar,
    }
}

/// The label and wire type that the reader of the table derives from a schema.
fn implied_wire(schema: &str) -> (char, String) {
    let (label, of) = match (schema.strip_prefix('['), schema.strip_prefix('{')) {
        (Some(rest), _) => ('*', rest.split_once(']').map_or("", |(_, of)| of)),
        (_, Some(rest)) => ('%', rest.split_once('}').map_or("", |(_, of)| of)),
        _ => ('1', schema),
    };
    let wire = match of {
        "time" => format!("@{META}Time"),
        "micro" => format!("@{META}MicroTime"),
        "duration" => format!("@{META}Duration"),
        "fields" => format!("@{META}FieldsV1"),
        "patch" => format!("@{META}Patch"),
        "quantity" => format!("@{RESOURCE}Quantity"),
        "intorstring" => "@io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(),
        "raw" => "@io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(),
        "json" => format!("@{EXTENSIONS}JSON"),
        "schemaorarray" => format!("@{EXTENSIONS}JSONSchemaPropsOrArray"),
        "schemaorbool" => format!("@{EXTENSIONS}JSONSchemaPropsOrBool"),
        "schemaorstrings" => format!("@{EXTENSIONS}JSONSchemaPropsOrStringArray"),
        other => other.to_owned(),
    };
    (label, wire)
}
