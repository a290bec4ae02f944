//! A document under many operations, opened only where they lead.

use std::collections::BTreeMap;

use serde_json::Value;

use super::pieces::Pieces;

/// A value, opened or not.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    /// Not opened, or with nothing to open.
    Whole(Value),
    Object(BTreeMap<String, Tree>),
    List(Pieces<Tree>),
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        Self::Whole(value)
    }
}

impl Tree {
    /// Opens an object or a list; the values in it stay as they are.
    pub(super) fn open(&mut self) -> &mut Self {
        match self {
            Self::Whole(Value::Object(fields)) => {
                let fields = std::mem::take(fields);
                *self = Self::Object(fields.into_iter().map(|(key, value)| (key, value.into())).collect());
            }
            Self::Whole(Value::Array(items)) => {
                *self = Self::List(std::mem::take(items).into_iter().map(Self::from).collect());
            }
            _ => {}
        }
        self
    }

    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Whole(value) => value,
            Self::Object(fields) => fields.into_iter().map(|(key, value)| (key, value.into_value())).collect(),
            Self::List(items) => items.into_iter().map(Self::into_value).collect(),
        }
    }

    /// How deeply it nests, counted no further than one beyond the limit in what is not open.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Whole(value) => super::depth(value),
            Self::Object(fields) => 1 + fields.values().map(Self::depth).max().unwrap_or(0),
            Self::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
        }
    }

    /// Whether it is this value.
    pub(super) fn is(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Whole(own), value) => own == value,
            (Self::Object(own), Value::Object(fields)) => {
                own.len() == fields.len()
                    && own.iter().all(|(key, own)| fields.get(key).is_some_and(|value| own.is(value)))
            }
            (Self::List(own), Value::Array(items)) => {
                own.len() == items.len() && own.iter().zip(items).all(|(own, item)| own.is(item))
            }
            _ => false,
        }
    }
}
