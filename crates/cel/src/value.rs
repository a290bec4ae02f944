//! Values. Objects of the API are borrowed as they are; what an expression computes is shared.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Map as JsonMap, Value as Json};

use crate::functions::opaque::Opaque;
use crate::unordered::Unordered;

#[derive(Debug, Clone)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// A whole number without a sign.
    Uint(u64),
    Double(f64),
    String(Cow<'a, str>),
    Bytes(Arc<[u8]>),
    List(List<'a>),
    /// A map, or an object.
    Map(Map<'a>),
    /// A span of time.
    Duration(jiff::SignedDuration),
    /// A point in time.
    Timestamp(jiff::Timestamp),
    /// The name of a type.
    Type(Arc<str>),
    /// A value that may not be there.
    Optional(Option<Arc<Value<'a>>>),
    /// What only functions look into: a quantity, an address, a question.
    Opaque(Opaque),
}

#[derive(Debug, Clone)]
pub enum List<'a> {
    Json(&'a [Json]),
    Built(Arc<Vec<Value<'a>>>),
    /// Items of which the order means nothing, or which keys tell apart.
    Unordered(Arc<Unordered<'a>>),
}

#[derive(Debug, Clone)]
pub enum Map<'a> {
    Json(&'a JsonMap<String, Json>),
    /// Computed. Expressions build small ones, so they are searched.
    Built(Arc<Vec<(Value<'a>, Value<'a>)>>),
}

/// What kind of value it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    List,
    Map,
    Duration,
    Timestamp,
    Type,
    Optional,
    Opaque(&'static str),
}

impl<'a> From<&'a Json> for Value<'a> {
    /// Whole numbers are signed, whatever their sign.
    fn from(tree: &'a Json) -> Self {
        match tree {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Self::Int(whole),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::String(Cow::Borrowed(text)),
            Json::Array(list) => Self::List(List::Json(list)),
            Json::Object(fields) => Self::Map(Map::Json(fields)),
        }
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::String(Cow::Owned(text))
    }
}

impl<'a> Value<'a> {
    pub fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Built(Arc::new(items)))
    }

    pub fn map(entries: Vec<(Value<'a>, Value<'a>)>) -> Self {
        Self::Map(Map::Built(Arc::new(entries)))
    }

    /// What cannot be read: an expression that comes upon it fails with these words.
    pub fn fault(why: &str) -> Self {
        Self::Opaque(Opaque::Fault(why.into()))
    }

    /// A value that is there.
    pub fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Its text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::Bool(_) => Kind::Bool,
            Self::Int(_) => Kind::Int,
            Self::Uint(_) => Kind::Uint,
            Self::Double(_) => Kind::Double,
            Self::String(_) => Kind::String,
            Self::Bytes(_) => Kind::Bytes,
            Self::List(_) => Kind::List,
            Self::Map(_) => Kind::Map,
            Self::Duration(_) => Kind::Duration,
            Self::Timestamp(_) => Kind::Timestamp,
            Self::Type(_) => Kind::Type,
            Self::Optional(_) => Kind::Optional,
            Self::Opaque(opaque) => Kind::Opaque(opaque.type_name()),
        }
    }

    /// The name of its type, as expressions see it.
    pub fn type_name(&self) -> &'static str {
        match self.kind() {
            Kind::Null => "null_type",
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Double => "double",
            Kind::String => "string",
            Kind::Bytes => "bytes",
            Kind::List => "list",
            Kind::Map => "map",
            Kind::Duration => "google.protobuf.Duration",
            Kind::Timestamp => "google.protobuf.Timestamp",
            Kind::Type => "type",
            Kind::Optional => "optional_type",
            Kind::Opaque(name) => name,
        }
    }

    /// How much there is of it: characters, bytes, elements; 1 for what has no size.
    pub fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) if text.is_ascii() => text.len(),
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Opaque(opaque) => return opaque.size(),
            _ => 1,
        };
        size as u64
    }

    /// Whether it is the same, numbers of different types included.
    pub fn same(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(a), Value::Bool(b)) => a == b,
            (Self::String(a), Value::String(b)) => a == b,
            (Self::Bytes(a), Value::Bytes(b)) => a == b,
            (Self::Duration(a), Value::Duration(b)) => a == b,
            (Self::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Self::Type(a), Value::Type(b)) => a == b,
            (Self::Opaque(a), Value::Opaque(b)) => a == b,
            (Self::Optional(a), Value::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.same(b),
                _ => false,
            },
            (Self::List(List::Unordered(a)), Value::List(b)) => a.same(b),
            (Self::List(a), Value::List(b)) => {
                a.len() == b.len() && (0..a.len()).all(|at| a.get(at).zip(b.get(at)).is_some_and(|(a, b)| a.same(&b)))
            }
            (Self::Map(a), Value::Map(b)) => {
                a.len() == b.len()
                    && (0..a.len()).all(|at| {
                        a.entry(at).is_some_and(|(key, value)| b.get(&key).is_some_and(|other| value.same(&other)))
                    })
            }
            _ => numbers(self, other) == Some(Ordering::Equal),
        }
    }

    /// Its order, if it has one.
    pub fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Self::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
            _ => numbers(self, other),
        }
    }

    /// As JSON, for what leaves the expression. `None` for what JSON has no form for.
    pub fn to_json(&self) -> Option<Json> {
        Some(match self {
            Self::Null | Self::Optional(None) => Json::Null,
            Self::Bool(truth) => Json::Bool(*truth),
            Self::Int(number) => Json::from(*number),
            Self::Uint(number) => Json::from(*number),
            Self::Double(number) => Json::from(*number),
            Self::String(text) => Json::String(text.to_string()),
            Self::Bytes(bytes) => {
                use base64::Engine as _;
                Json::String(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Self::List(list) => Json::Array((0..list.len()).map(|at| list.get(at)?.to_json()).collect::<Option<_>>()?),
            Self::Map(map) => {
                let entry = |at: usize| {
                    let (key, value) = map.entry(at)?;
                    Some((key.as_str()?.to_owned(), value.to_json()?))
                };
                Json::Object((0..map.len()).map(entry).collect::<Option<_>>()?)
            }
            Self::Optional(Some(value)) => value.to_json()?,
            Self::Timestamp(at) => Json::String(machinery::time::format(*at)),
            Self::Duration(span) => Json::String(crate::functions::time::format_duration(*span)),
            Self::Type(_) | Self::Opaque(_) => return None,
        })
    }
}

/// Numbers compare by what they are, whatever their type.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    use Value::{Double, Int, Uint};
    match (a, b) {
        (Int(a), Int(b)) => Some(a.cmp(b)),
        (Uint(a), Uint(b)) => Some(a.cmp(b)),
        (Double(a), Double(b)) => a.partial_cmp(b),
        (Int(a), Uint(b)) => Some(u64::try_from(*a).map_or(Ordering::Less, |a| a.cmp(b))),
        (Uint(a), Int(b)) => Some(u64::try_from(*b).map_or(Ordering::Greater, |b| a.cmp(&b))),
        (Int(a), Double(b)) => (*a as f64).partial_cmp(b),
        (Double(a), Int(b)) => a.partial_cmp(&(*b as f64)),
        (Uint(a), Double(b)) => (*a as f64).partial_cmp(b),
        (Double(a), Uint(b)) => a.partial_cmp(&(*b as f64)),
        _ => None,
    }
}

impl<'a> List<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(list) => list.len(),
            Self::Built(list) => list.len(),
            Self::Unordered(list) => list.items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, at: usize) -> Option<Value<'a>> {
        match self {
            Self::Json(list) => list.get(at).map(Value::from),
            Self::Built(list) => list.get(at).cloned(),
            Self::Unordered(list) => list.items.get(at).cloned(),
        }
    }

    /// Both lists one after the other; what is in both is there once if the order means nothing.
    pub fn join(&self, other: &Self) -> Value<'a> {
        match self {
            Self::Unordered(list) => list.join(other),
            Self::Json(_) | Self::Built(_) => Value::list(self.items().chain(other.items()).collect()),
        }
    }

    pub fn items(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

impl<'a> Map<'a> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(map) => map.len(),
            Self::Built(map) => map.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is at a key.
    pub fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match self {
            Self::Json(map) => map.get(key.as_str()?).map(Value::from),
            Self::Built(map) => map.iter().find(|(known, _)| known.same(key)).map(|(_, value)| value.clone()),
        }
    }

    /// What is at a field.
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Self::Json(map) => map.get(name).map(Value::from),
            Self::Built(map) => {
                map.iter().find(|(known, _)| known.as_str() == Some(name)).map(|(_, value)| value.clone())
            }
        }
    }

    fn entry(&self, at: usize) -> Option<(Value<'a>, Value<'a>)> {
        match self {
            Self::Json(map) => {
                map.iter().nth(at).map(|(key, value)| (Value::String(Cow::Borrowed(key)), Value::from(value)))
            }
            Self::Built(map) => map.get(at).cloned(),
        }
    }

    pub fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Self::Json(map) => {
                map.iter().map(|(key, value)| (Value::String(Cow::Borrowed(key)), Value::from(value))).collect()
            }
            Self::Built(map) => map.to_vec(),
        }
    }
}
