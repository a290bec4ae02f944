//! Which objects a reader wants, and which watchers a change could concern.

use std::sync::Arc;

use machinery::object::Object;
use machinery::selector::field::FieldSelector;
use machinery::selector::label::LabelSelector;

use super::Change;

/// The part of a resource's key space a reader looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    All,
    Namespace(Box<str>),
    /// One object, by its key in the cache.
    Key(Box<str>),
}

/// Scope and selectors of one list or watch.
#[derive(Debug, Clone)]
pub struct Filter {
    scope: Scope,
    labels: LabelSelector,
    fields: FieldSelector,
}

/// A question that a change answers with yes for few watchers: the index of the watchers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// Concerned by every change.
    All,
    /// By changes in this namespace.
    Namespace(Box<str>),
    /// By changes of objects with this name.
    Name(Box<str>),
    /// By changes of pods on this node.
    Node(Box<str>),
}

impl Filter {
    pub fn everything() -> Self {
        Self::new(Scope::All, LabelSelector::everything(), FieldSelector::everything())
    }

    /// Everything in a namespace.
    pub fn namespace(namespace: &str) -> Self {
        Self::new(Scope::Namespace(namespace.into()), LabelSelector::everything(), FieldSelector::everything())
    }

    /// What is in scope and passes both selectors.
    pub fn new(scope: Scope, labels: LabelSelector, fields: FieldSelector) -> Self {
        Self { scope, labels, fields }
    }

    /// The part of the key space.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The same with the conditions on those fields only that pass.
    pub fn only(&self, pass: impl Fn(&str) -> bool) -> Self {
        Self { fields: self.fields.only(pass), ..self.clone() }
    }

    /// How many conditions on fields there are.
    pub fn selected_fields(&self) -> usize {
        self.fields.requirements().len()
    }

    /// Whether selectors narrow the scope.
    pub fn selects(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// Whether the reader wants this object.
    pub fn matches(&self, object: &Arc<Object>) -> bool {
        let meta = object.meta();
        let in_scope = match &self.scope {
            Scope::All => true,
            Scope::Namespace(namespace) => meta.namespace == *namespace,
            Scope::Key(key) => match key.split_once('/') {
                Some((namespace, name)) => *meta.namespace == *namespace && *meta.name == *name,
                None => meta.name == *key,
            },
        };
        in_scope && self.labels.matches(|key| meta.label(key)) && self.fields.matches(|path| meta.field(path))
    }

    /// The most selective question whose answer this filter needs.
    pub fn trigger(&self) -> Trigger {
        if let Some(node) = self.fields.requires_exact_match("spec.nodeName") {
            return Trigger::Node(node.into());
        }
        if let Some(name) = self.fields.requires_exact_match("metadata.name") {
            return Trigger::Name(name.into());
        }
        match &self.scope {
            Scope::All => Trigger::All,
            Scope::Namespace(namespace) => Trigger::Namespace(namespace.clone()),
            Scope::Key(key) => Trigger::Name(key.rsplit('/').next().unwrap_or(key).into()),
        }
    }
}

impl Trigger {
    /// The questions this change answers with yes, each once.
    pub fn of(change: &Change) -> impl Iterator<Item = Trigger> {
        let mut triggers = vec![Trigger::All];
        for object in [&change.old, &change.new].into_iter().flatten() {
            let meta = object.meta();
            let mut add = |trigger: Trigger| {
                if !triggers.contains(&trigger) {
                    triggers.push(trigger);
                }
            };
            add(Trigger::Namespace(meta.namespace.clone()));
            add(Trigger::Name(meta.name.clone()));
            add(Trigger::Node(meta.field("spec.nodeName").unwrap_or_default().into()));
        }
        triggers.into_iter()
    }
}
