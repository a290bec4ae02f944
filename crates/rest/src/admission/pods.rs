//! The containers of a pod, wherever it keeps them: one walk for every plug-in, so that none forgets a list.

use machinery::{Value, value};

/// A list of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Run first, or beside the others.
    Init,
    Plain,
    /// Added later, to look at the others.
    Ephemeral,
}

impl List {
    /// All of them, in the order in which upstream visits them.
    pub const ALL: [Self; 3] = [Self::Init, Self::Plain, Self::Ephemeral];

    /// The field of the spec.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Plain => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// As messages name one.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Init => "init container",
            Self::Plain => "container",
            Self::Ephemeral => "ephemeral container",
        }
    }
}

/// Every container of a spec.
pub fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    List::ALL.into_iter().flat_map(move |list| value::list(spec, list.field()))
}

/// Every container of these lists, with its list and its place there.
pub fn placed<'a>(spec: &'a Value, lists: &'a [List]) -> impl Iterator<Item = (List, usize, &'a Value)> {
    lists.iter().flat_map(move |list| {
        value::list(spec, list.field()).iter().enumerate().map(move |(at, container)| (*list, at, container))
    })
}

/// The spec of a pod.
pub fn spec(pod: &Value) -> &Value {
    pod.get("spec").unwrap_or(&Value::Null)
}

/// Adds to the list at a path, which is made where there is none.
pub fn push(tree: &mut Value, path: &str, item: Value) {
    match value::at_mut(tree, path).and_then(Value::as_array_mut) {
        Some(list) => list.push(item),
        None => value::set(tree, path, vec![item]),
    }
}
