//! Types, as far as expressions are checked before they run.

use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Known only when the value is.
    Dyn,
    /// As unknown, but nothing to go through the elements of: an attribute of a device.
    Any,
    Null,
    Bool,
    Int,
    /// A whole number without a sign.
    Uint,
    Double,
    String,
    Bytes,
    /// A span of time.
    Duration,
    /// A point in time.
    Timestamp,
    /// A type of a type.
    Type,
    /// A list of these.
    List(Arc<Type>),
    /// A map from these to those.
    Map(Arc<Type>, Arc<Type>),
    /// A value that may not be there.
    Optional(Arc<Type>),
    /// A type that functions know: a quantity, an address.
    Named(Arc<str>),
    /// An object whose fields are known.
    Object(Arc<ObjectType>),
    /// A parameter of a signature.
    Param(char),
    /// Of what an empty list or no value is: of whatever the others are.
    Free,
}

/// An object whose fields are known.
#[derive(Debug, PartialEq)]
pub struct ObjectType {
    /// Its name, as errors have it.
    pub name: String,
    pub fields: Vec<(String, Type)>,
}

impl ObjectType {
    /// Of a name, with these fields.
    pub fn declare(name: &str, fields: impl IntoIterator<Item = (&'static str, Type)>) -> Type {
        let fields = fields.into_iter().map(|(field, ty)| (field.to_owned(), ty)).collect();
        Type::Object(Arc::new(Self { name: name.to_owned(), fields }))
    }

    /// The type of a field.
    pub fn field(&self, name: &str) -> Option<&Type> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, ty)| ty)
    }
}

impl Type {
    /// A list of these.
    pub fn list(of: Type) -> Self {
        Self::List(Arc::new(of))
    }

    /// A map from these to those.
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// Whether two are the same, as far as they are known.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Free, _) | (_, Self::Free) => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.is_equivalent(b),
            (Self::Map(a, c), Self::Map(b, d)) => a.is_equivalent(b) && c.is_equivalent(d),
            (a, b) => a == b,
        }
    }

    /// The same, where what is still free is known only when the value is.
    pub(crate) fn settled(&self) -> Self {
        match self {
            Self::Free => Self::Dyn,
            Self::List(of) => Self::list(of.settled()),
            Self::Map(key, value) => Self::map(key.settled(), value.settled()),
            Self::Optional(of) => Self::Optional(Arc::new(of.settled())),
            other => other.clone(),
        }
    }

    /// Reads `list<map<string,int>>`; capital letters are parameters. For our own tables only.
    pub(crate) fn parse(text: &str) -> Self {
        let inside = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
        if let Some(inner) = inside("list<") {
            return Self::list(Self::parse(inner));
        }
        if let Some(inner) = inside("optional<") {
            return Self::Optional(Arc::new(Self::parse(inner)));
        }
        if let Some((key, value)) = inside("map<").and_then(|inner| inner.split_once(',')) {
            return Self::map(Self::parse(key), Self::parse(value));
        }
        match text {
            "dyn" => Self::Dyn,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Timestamp,
            "type" => Self::Type,
            "A" => Self::Param('A'),
            "B" => Self::Param('B'),
            name => Self::Named(name.into()),
        }
    }
}

impl fmt::Display for Type {
    /// As upstream's API tells it; `{:#}` is as its checker does, which has shorter names for some.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = f.alternate();
        match self {
            Self::Dyn | Self::Free => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Null => f.write_str(if short { "null" } else { "null_type" }),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str(if short { "duration" } else { "google.protobuf.Duration" }),
            Self::Timestamp => f.write_str(if short { "timestamp" } else { "google.protobuf.Timestamp" }),
            Self::Type => f.write_str("type"),
            Self::List(of) if short => write!(f, "list({of:#})"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) if short => write!(f, "map({key:#}, {value:#})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) if short => write!(f, "optional_type({of:#})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Named(name) => f.write_str(name),
            Self::Object(object) => f.write_str(&object.name),
            Self::Param(letter) => write!(f, "{letter}"),
        }
    }
}
