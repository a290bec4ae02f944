//! One object on its way through a build, with what is remembered about it: the names that it had, prefixes and suffixes, and
//! what its generator wants.

use machinery::{Value, value};

use crate::Error;
use crate::id::{Gvk, Id};
use crate::merge;
use crate::origin::Origin;
use crate::schema::Schemas;

/// What a generator does when its object is there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Behavior {
    #[default]
    Unspecified,
    Create,
    Replace,
    Merge,
}

impl Behavior {
    pub fn named(name: &str) -> Self {
        match name {
            "create" => Self::Create,
            "replace" => Self::Replace,
            "merge" => Self::Merge,
            _ => Self::Unspecified,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Merge => "merge",
        }
    }
}

/// A name of the past, with the namespace and the kind of the time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Previous {
    namespace: String,
    name: String,
    kind: String,
}

#[derive(Debug, Clone, Default)]
pub struct Resource {
    /// The object. Null once it was deleted.
    pub value: Value,
    previous: Vec<Previous>,
    pub prefixes: Vec<String>,
    pub suffixes: Vec<String>,
    pub needs_hash: bool,
    pub behavior: Behavior,
    /// Where it came from, and what changed it, where somebody wants to know.
    pub origin: Option<Origin>,
    pub transformations: Vec<Origin>,
    /// The variables that are read from it.
    pub variables: Vec<String>,
    /// Of patches: whether the name, or the kind, of what is patched may change.
    pub allows: Allowed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    pub name_change: bool,
    pub kind_change: bool,
}

impl Resource {
    pub fn new(value: Value) -> Self {
        Self { value, ..Self::default() }
    }

    pub fn text(&self, path: &str) -> &str {
        value::text(&self.value, path)
    }

    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    pub fn name(&self) -> &str {
        self.text("metadata.name")
    }

    pub fn namespace(&self) -> &str {
        self.text("metadata.namespace")
    }

    pub fn gvk(&self) -> Gvk {
        Gvk::new(self.text("apiVersion"), self.kind())
    }

    pub fn id(&self) -> Id {
        Id { gvk: self.gvk(), name: self.name().to_owned(), namespace: self.namespace().to_owned() }
    }

    /// The ids that it had before, the oldest first.
    pub fn previous_ids(&self) -> Vec<Id> {
        let gvk = self.gvk();
        let id = |old: &Previous| Id {
            gvk: Gvk { kind: old.kind.clone(), ..gvk.clone() },
            name: old.name.clone(),
            namespace: old.namespace.clone(),
        };
        self.previous.iter().map(id).collect()
    }

    pub fn original_id(&self) -> Id {
        self.previous_ids().into_iter().next().unwrap_or_else(|| self.id())
    }

    /// What it is called now, and what it was called.
    pub fn all_ids(&self) -> Vec<Id> {
        let mut ids = vec![self.id()];
        ids.extend(self.previous_ids());
        ids
    }

    pub fn remember_id(&mut self) {
        let id = self.id();
        let namespace = id.effective_namespace().to_owned();
        self.previous.push(Previous { namespace, name: id.name, kind: id.gvk.kind });
    }

    pub fn set_name(&mut self, name: &str) {
        value::set(&mut self.value, "metadata.name", name);
    }

    pub fn set_namespace(&mut self, namespace: &str) {
        if namespace.is_empty() {
            value::remove(&mut self.value, "metadata.namespace");
        } else {
            value::set(&mut self.value, "metadata.namespace", namespace);
        }
    }

    /// Whether it was deleted.
    pub fn is_gone(&self) -> bool {
        self.value.as_object().is_none_or(serde_json::Map::is_empty)
    }

    /// Merges a strategic merge patch. Names stay, unless the patch may change them.
    pub fn patch(&mut self, patch: &Resource, schemas: &Schemas) -> Result<(), Error> {
        let [kind, name, namespace] = [self.kind(), self.name(), self.namespace()].map(str::to_owned);
        if patch.allows.name_change || patch.allows.kind_change {
            self.remember_id();
        }
        self.value =
            merge::merge(std::mem::take(&mut self.value), patch.value.clone(), schemas)?.unwrap_or(Value::Null);
        if self.is_gone() {
            self.value = Value::Null;
            return Ok(());
        }
        if !patch.allows.kind_change {
            value::set(&mut self.value, "kind", kind);
        }
        if !patch.allows.name_change {
            self.set_name(&name);
        }
        self.set_namespace(&namespace);
        Ok(())
    }

    /// Takes over what the object that it replaces has: labels, annotations and all that is remembered. What it says itself wins.
    pub fn inherit(&mut self, old: &Resource) {
        for path in ["metadata.labels", "metadata.annotations"] {
            let inherited = value::at(&old.value, path).and_then(Value::as_object).into_iter().flatten();
            let missing: Vec<(String, Value)> = inherited
                .filter(|(key, _)| value::at(&self.value, path).is_none_or(|own| own.get(key.as_str()).is_none()))
                .map(|(key, text)| (key.clone(), text.clone()))
                .collect();
            for (key, text) in missing {
                let metadata = value::object_mut(&mut self.value, "metadata");
                let own = metadata.entry(path.trim_start_matches("metadata.")).or_insert(Value::Null);
                value::as_object_mut(own).insert(key, text);
            }
        }
        let needs_hash = self.needs_hash && old.needs_hash;
        let (name, namespace) = (old.name().to_owned(), old.namespace().to_owned());
        self.set_name(&name);
        self.set_namespace(&namespace);
        self.previous.clone_from(&old.previous);
        self.prefixes.clone_from(&old.prefixes);
        self.suffixes.clone_from(&old.suffixes);
        self.variables.clone_from(&old.variables);
        self.transformations.clone_from(&old.transformations);
        self.needs_hash = needs_hash;
    }

    /// Adds the entries of another object's map that this one does not have.
    pub fn merge_map(&mut self, field: &str, old: &Resource) {
        let Some(Value::Object(theirs)) = old.value.get(field) else { return };
        if theirs.is_empty() {
            return;
        }
        let own = value::object_mut(&mut self.value, field);
        for (key, text) in theirs {
            own.entry(key.clone()).or_insert_with(|| text.clone());
        }
    }
}
