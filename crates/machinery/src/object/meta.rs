//! What selectors and indexes need of an object: found in one pass, without decoding the rest.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Error;
use crate::Value;

/// A field of a kind that field selectors can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// What selectors call it.
    pub label: Cow<'static, str>,
    /// What an object has that does not set it.
    pub unset: &'static str,
    /// Where it is, as dotted paths, of which the first that is set counts. Empty: where its label says.
    from: &'static [&'static str],
}

impl Field {
    /// One that is a text.
    pub const fn text(label: &'static str) -> Self {
        Self { label: Cow::Borrowed(label), unset: "", from: &[] }
    }

    /// One that a definition names at run time.
    pub fn named(label: String) -> Self {
        Self { label: Cow::Owned(label), unset: "", from: &[] }
    }

    /// One that is true or false.
    pub const fn flag(label: &'static str) -> Self {
        Self { label: Cow::Borrowed(label), unset: "false", from: &[] }
    }

    /// One that is a number.
    pub const fn count(label: &'static str) -> Self {
        Self { label: Cow::Borrowed(label), unset: "0", from: &[] }
    }

    /// As [`Field::text`], found elsewhere than its label says.
    pub const fn text_found_at(label: &'static str, from: &'static [&'static str]) -> Self {
        Self { label: Cow::Borrowed(label), unset: "", from }
    }

    /// As [`Field::count`], found elsewhere than its label says.
    pub const fn count_found_at(label: &'static str, from: &'static [&'static str]) -> Self {
        Self { label: Cow::Borrowed(label), unset: "0", from }
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        let own = self.from.is_empty().then_some(&*self.label);
        own.into_iter().chain(self.from.iter().copied())
    }
}

/// The fields of a kind that field selectors can name, besides `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone, Default)]
pub struct FieldPaths {
    fields: Vec<Field>,
    /// What selectors call them, shared by all objects.
    labels: Vec<Arc<str>>,
    /// The keys on the way to each place where one of the fields may be, in their order.
    split: Vec<Vec<Box<str>>>,
    settle: Option<Settle>,
}

/// Brings an object that somebody else stored into the version in which objects of its kind are stored here.
#[derive(Clone)]
struct Settle(Arc<dyn Fn(Value) -> Value + Send + Sync>);

impl std::fmt::Debug for Settle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Settle")
    }
}

impl FieldPaths {
    pub fn new(fields: &[Field]) -> Self {
        let split =
            fields.iter().flat_map(Field::paths).map(|path| path.split('.').map(Into::into).collect()).collect();
        let labels = fields.iter().map(|field| Arc::from(&*field.label)).collect();
        Self { fields: fields.to_vec(), labels, split, settle: None }
    }

    /// The same of a kind whose objects may have been stored by others, in another version: what brings them into ours.
    pub fn settling(self, settle: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        Self { settle: Some(Settle(Arc::new(settle))), ..self }
    }

    pub(super) fn settle(&self, foreign: Value) -> Value {
        match &self.settle {
            Some(Settle(settle)) => settle(foreign),
            None => foreign,
        }
    }

    /// The field that selectors call so.
    pub fn get(&self, label: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.label == label)
    }
}

/// What selectors and indexes read without decoding the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Unique in its namespace.
    pub name: Box<str>,
    /// Unique over all time.
    pub uid: Box<str>,
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The selectable fields that are set, in the order of the kind's [`FieldPaths`].
    pub fields: Box<[(Arc<str>, Box<str>)]>,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
}

impl Meta {
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(candidate, _)| (**candidate).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// The value of a selectable field, if it is set.
    pub fn field(&self, label: &str) -> Option<&str> {
        match label {
            "metadata.name" => Some(&self.name),
            "metadata.namespace" => Some(&self.namespace),
            _ => self.fields.iter().find(|(candidate, _)| **candidate == *label).map(|(_, value)| &**value),
        }
    }
}

/// One pass over an encoding or a tree that keeps what [`Meta`] needs and skips the rest.
pub(super) fn extract<'de, D>(from: D, fields: &FieldPaths) -> Result<Meta, Error>
where
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let mut found = Found { meta: Meta::default(), values: vec![None; fields.split.len()], path: Vec::new() };
    Level { found: &mut found, fields }.deserialize(from)?;
    let mut meta = found.meta;
    let mut values = found.values.into_iter();
    let mut value = |field: &Field| {
        let places = values.by_ref().take(field.paths().count());
        places.fold(None, |first, value| first.or(value.filter(|value| !value.is_empty())))
    };
    let labelled = fields.fields.iter().zip(&fields.labels);
    meta.fields = labelled.filter_map(|(field, label)| Some((label.clone(), value(field)?.into_boxed_str()))).collect();
    Ok(meta)
}

struct Found<'f> {
    meta: Meta,
    values: Vec<Option<String>>,
    /// The keys on the way to where the reader is.
    path: Vec<&'f str>,
}

/// An object on the way to one of the wanted fields.
struct Level<'a, 'f> {
    found: &'a mut Found<'f>,
    fields: &'f FieldPaths,
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let at_metadata = self.found.path == ["metadata"];
        let depth = self.found.path.len();
        while let Some(key) = map.next_key_seed(Key)? {
            if at_metadata && self.metadata(&key, &mut map)? {
                continue;
            }
            let next = self.fields.split.iter().find_map(|path| {
                let leads = path.len() > depth && *path[depth] == *key && is_beginning(&self.found.path, path);
                leads.then(|| &*path[depth])
            });
            match next.or((depth == 0 && key == "metadata").then_some("metadata")) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(step) => {
                    self.found.path.push(step);
                    map.next_value_seed(Level { found: self.found, fields: self.fields })?;
                    self.found.path.pop();
                }
            }
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.value(|| text.to_owned());
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.value(|| value.to_string());
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.value(|| value.to_string());
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.value(|| value.to_string());
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.value(|| value.to_string());
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.found.path.is_empty() {
            return Err(A::Error::custom("an object was expected, not a list"));
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

fn is_beginning(way: &[&str], path: &[Box<str>]) -> bool {
    way.len() <= path.len() && way.iter().zip(path).all(|(step, key)| **step == **key)
}

/// A key, borrowed from the encoding unless it has escapes: most keys are only looked at and skipped.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

impl Level<'_, '_> {
    fn value(self, text: impl FnOnce() -> String) {
        // More than one field may be found at a place.
        let split = &self.fields.split;
        let here = |path: &Vec<Box<str>>| path.len() == self.found.path.len() && is_beginning(&self.found.path, path);
        let places: Vec<usize> = (0..split.len()).filter(|at| here(&split[*at])).collect();
        let Some((first, others)) = places.split_first() else { return };
        let text = text();
        others.iter().for_each(|at| self.found.values[*at] = Some(text.clone()));
        self.found.values[*first] = Some(text);
    }

    /// Takes one field of `metadata`; false if it is not one that [`Meta`] keeps.
    fn metadata<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        let meta = &mut self.found.meta;
        match key {
            "name" => meta.name = map.next_value::<Option<Box<str>>>()?.unwrap_or_default(),
            "namespace" => meta.namespace = map.next_value::<Option<Box<str>>>()?.unwrap_or_default(),
            "uid" => meta.uid = map.next_value::<Option<Box<str>>>()?.unwrap_or_default(),
            "deletionTimestamp" => meta.deleting = map.next_value::<Option<IgnoredAny>>()?.is_some(),
            "labels" => {
                type Labels = std::collections::BTreeMap<Box<str>, Option<Box<str>>>;
                let labels = map.next_value::<Option<Labels>>()?.unwrap_or_default();
                meta.labels = labels.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect();
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
