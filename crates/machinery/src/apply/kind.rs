//! How a value merges, as its schema says.

use facts::{List, ListType, MapType, Opaque, Schema, Str, Type};
use serde_json::Value;

use super::path::Element;

/// What may stand in a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Text,
    Number,
    Flag,
    Any,
}

/// How a value merges.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'a> {
    /// As a whole; it is a scalar.
    Scalar(Scalar),
    /// As a whole; nothing is known of its inside.
    Opaque,
    /// As a whole; it is an object of this type.
    AtomicStruct(&'a Type),
    /// As a whole; it is a map of these values.
    AtomicMap(&'a Schema),
    /// As a whole; it is a list of these items.
    AtomicList(&'a Schema),
    Struct(&'a Type),
    Map(&'a Schema),
    /// Item by item, told apart by their values.
    Set(&'a List),
    /// Item by item, told apart by their keys.
    Keyed(&'a List),
    /// Entry by entry as far down as there are objects; everything else as a whole.
    Deduced,
}

impl<'a> Kind<'a> {
    /// The kind of a schema, wherever it stands.
    pub(super) fn of(schema: &'a Schema) -> Self {
        Self::at(schema, None)
    }

    /// The kind of a schema at a field that may say itself how its value merges.
    fn at(schema: &'a Schema, map_type: Option<MapType>) -> Self {
        match schema {
            Schema::String | Schema::Bytes | Schema::Duration => Kind::Scalar(Scalar::Text),
            Schema::Int32 | Schema::Int64 | Schema::Double => Kind::Scalar(Scalar::Number),
            Schema::Bool => Kind::Scalar(Scalar::Flag),
            Schema::Quantity | Schema::Time | Schema::MicroTime => Kind::Scalar(Scalar::Any),
            // Upstream's schema says nothing about what it may be, so nothing is checked before it is read into its type.
            Schema::IntOrString => Kind::Opaque,
            Schema::Any(Opaque::Preserved) => Kind::Deduced,
            Schema::Any(_) => Kind::Opaque,
            Schema::Array(list) => match list.list_type {
                Some(ListType::Set) => Kind::Set(list),
                Some(ListType::Map) => Kind::Keyed(list),
                Some(ListType::Atomic) | None => Kind::AtomicList(&list.items),
            },
            Schema::Map(map) => match map_type.or(map.map_type) {
                Some(MapType::Atomic) => Kind::AtomicMap(&map.values),
                _ => Kind::Map(&map.values),
            },
            Schema::Ref(_) | Schema::Object(_) => {
                let of = schema.object().expect("these two are objects");
                match map_type.or(of.map_type) {
                    Some(MapType::Atomic) => Kind::AtomicStruct(of),
                    _ => Kind::Struct(of),
                }
            }
        }
    }

    /// The kind below a key of an object, and whether the schema declares that very key. `None` where there is none.
    pub(super) fn child(self, key: &str) -> Option<(Kind<'a>, Option<&'a Str>)> {
        match self {
            Kind::Struct(of) | Kind::AtomicStruct(of) => match of.field(key) {
                Some(field) => Some((Kind::at(&field.schema, field.map_type), Some(&field.name))),
                None => of.preserve_unknown.then_some((Kind::Deduced, None)),
            },
            Kind::Map(values) | Kind::AtomicMap(values) => Some((Kind::of(values), None)),
            Kind::Deduced => Some((Kind::Deduced, None)),
            _ => None,
        }
    }

    /// The kind of the items of a list.
    pub(super) fn item(self) -> Kind<'a> {
        match self {
            Kind::Set(list) | Kind::Keyed(list) => Kind::of(&list.items),
            Kind::AtomicList(items) => Kind::of(items),
            _ => Kind::Opaque,
        }
    }
}

/// The step to a field or an entry. The names of declared fields are not copied.
pub(super) fn field_element(key: &str, declared: Option<&Str>) -> Element {
    match declared {
        Some(name) => Element::Field(name.clone()),
        None => Element::field(key.to_owned()),
    }
}

/// The step to an item of a list that merges item by item.
pub(super) fn item_element(kind: Kind<'_>, item: &Value) -> Result<Element, String> {
    match kind {
        Kind::Keyed(list) => keyed(list, item),
        _ => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(Element::Value(scalar.clone())),
        },
    }
}

fn keyed(list: &List, item: &Value) -> Result<Element, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let of = list.items.object();
    let mut keys: Vec<(Str, Value)> = Vec::with_capacity(list.keys.len());
    for key in &list.keys {
        let value = match fields.get(&**key) {
            Some(value) => Some(value.clone()),
            None => of
                .and_then(|of| of.field(key))
                .and_then(|field| field.default.as_deref())
                .and_then(|text| serde_json::from_str(text).ok()),
        };
        keys.extend(value.map(|value| (key.clone(), value)));
    }
    if keys.is_empty() {
        let shown: Vec<String> = list.keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            shown.join(" ")
        ));
    }
    keys.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(Element::Key(keys.into()))
}
