//! Steps of paths into an object, as field ownership names them.

use std::cmp::Ordering;
use std::fmt;

use facts::Str;
use serde_json::Value;

use crate::codec::json::html_safe;

/// One step of a path.
#[derive(Debug, Clone)]
pub enum Element {
    /// A field of an object, or an entry of a map.
    Field(Str),
    /// The item of a list that has these values for its keys, sorted by the names of the keys.
    Key(Box<[(Str, Value)]>),
    /// The item of a set.
    Value(Value),
    /// The item of an atomic list. Nobody owns one; old records may name it.
    Index(i64),
}

impl Element {
    pub fn field(name: impl Into<Str>) -> Self {
        Self::Field(name.into())
    }

    /// As `fieldsV1` writes it: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:0`. Go writes values so that no browser takes them for HTML.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => {
                let mut text = String::with_capacity(name.len() + 2);
                text.push_str("f:");
                text.push_str(name);
                text
            }
            Self::Key(fields) => {
                let mut text = "k:{".to_owned();
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    text.push_str(&format!("{comma}{}:{value}", Value::from(&**name)));
                }
                text.push('}');
                html_safe(&text)
            }
            Self::Value(value) => html_safe(&format!("v:{value}")),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    /// Reads what [`Element::encode`] writes. `Ok(None)` for a step of a kind that is not known, which is passed over.
    pub fn decode(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = text.split_at_checked(2) else {
            return Err("key must be 2 characters long:".to_owned());
        };
        match kind {
            "f:" => Ok(Some(Self::Field(rest.to_owned().into()))),
            "v:" => serde_json::from_str(rest).map(|value| Some(Self::Value(value))).map_err(|error| error.to_string()),
            "k:" => {
                let fields: crate::value::Object = serde_json::from_str(rest).map_err(|error| error.to_string())?;
                Ok(Some(Self::Key(fields.into_iter().map(|(name, value)| (Str::from(name), value)).collect())))
            }
            "i:" => rest.parse().map(|at| Some(Self::Index(at))).map_err(|_| format!("no index: {rest}")),
            _ if kind.ends_with(':') => Ok(None),
            _ => Err(format!("missing colon: {text}")),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl fmt::Display for Element {
    /// As conflicts print it: `.spec`, `[name="x"]`, `[="x"]`, `[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", shown(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// How upstream prints a value; one that is no scalar is there by mistake, and the message is about it.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect::<Vec<_>>().join(",")
        }
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
                    let order = name_a.cmp(name_b).then_with(|| compare_values(value_a, value_b));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

/// A total order over JSON values: numbers, texts, booleans, lists, objects, null.
pub(super) fn compare_values(a: &Value, b: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default()),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let items = a.iter().zip(b).map(|(a, b)| compare_values(a, b));
            items.into_iter().find(|order| *order != Ordering::Equal).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let fields =
                a.iter().zip(b).map(|((name_a, a), (name_b, b))| name_a.cmp(name_b).then(compare_values(a, b)));
            fields.into_iter().find(|order| *order != Ordering::Equal).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}
