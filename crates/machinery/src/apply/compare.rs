//! What differs between two versions of an object, as sets of paths.

use std::sync::LazyLock;

use serde_json::Value;

use super::kind::{Kind, field_element, item_element};
use super::path::Element;
use super::set::{Node, Set};
use crate::value::Object;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only the new one has it.
    pub added: Set,
    /// Both have it, with different values.
    pub modified: Set,
    /// Only the old one has it.
    pub removed: Set,
}

/// Compares two objects of one kind. The error is upstream's message about a list whose items cannot be told apart.
pub(super) fn compare(old: &Value, new: &Value, kind: Kind<'_>) -> Result<Comparison, String> {
    let nodes = value(Some(old), Some(new), kind)?;
    Ok(Comparison { added: nodes.added.children, modified: nodes.modified.children, removed: nodes.removed.children })
}

/// What differs at and below one path.
#[derive(Default)]
struct Nodes {
    added: Node,
    modified: Node,
    removed: Node,
}

impl Nodes {
    fn push(&mut self, element: Element, below: Nodes) {
        // Nearly always at most one of the three has anything, so the step is seldom copied.
        match (below.added.is_empty(), below.modified.is_empty(), below.removed.is_empty()) {
            (true, true, true) => {}
            (false, true, true) => self.added.children.push(element, below.added),
            (true, false, true) => self.modified.children.push(element, below.modified),
            (true, true, false) => self.removed.children.push(element, below.removed),
            _ => {
                self.added.children.push(element.clone(), below.added);
                self.modified.children.push(element.clone(), below.modified);
                self.removed.children.push(element, below.removed);
            }
        }
    }

    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Self {
        let mut nodes = Nodes::default();
        match (old, new) {
            (None, _) => nodes.added.member = true,
            (_, None) => nodes.removed.member = true,
            (Some(old), Some(new)) => nodes.modified.member = old != new,
        }
        nodes
    }

    /// Marks a container that only one side has.
    fn contained(mut self, old: Option<&Value>, new: Option<&Value>) -> Self {
        if old.is_none() {
            self.added.member = true;
        } else if new.is_none() {
            self.removed.member = true;
        }
        self
    }
}

fn value(old: Option<&Value>, new: Option<&Value>, kind: Kind<'_>) -> Result<Nodes, String> {
    match kind {
        Kind::Struct(_) | Kind::Map(_) => {
            let (olds, news) = (fields_of(old), fields_of(new));
            if olds.is_empty() && news.is_empty() {
                return Ok(Nodes::leaf(old, new));
            }
            Ok(objects(olds, news, kind)?.contained(old, new))
        }
        Kind::Deduced if [old, new].into_iter().flatten().any(Value::is_object) => {
            let (olds, news) = (fields_of(old), fields_of(new));
            if olds.is_empty() && news.is_empty() {
                return Ok(Nodes::leaf(old, new));
            }
            let mut nodes = objects(olds, news, kind)?.contained(old, new);
            // What was an object and is none any more, or the other way round: its fields went or came, and it changed itself.
            let is_whole = |value: &Value| !value.is_object() && !value.is_null();
            nodes.modified.member = [old, new].into_iter().flatten().any(is_whole);
            Ok(nodes)
        }
        Kind::Set(_) | Kind::Keyed(_) => {
            let (olds, news) = (items_of(old), items_of(new));
            if olds.is_empty() && news.is_empty() {
                return Ok(Nodes::leaf(old, new));
            }
            Ok(lists(olds, news, kind)?.contained(old, new))
        }
        _ => Ok(Nodes::leaf(old, new)),
    }
}

static NO_FIELDS: LazyLock<Object> = LazyLock::new(Object::new);

fn fields_of(value: Option<&Value>) -> &Object {
    value.and_then(Value::as_object).unwrap_or(&NO_FIELDS)
}

fn items_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn objects(olds: &Object, news: &Object, kind: Kind<'_>) -> Result<Nodes, String> {
    let mut nodes = Nodes::default();
    let (mut left, mut right) = (olds.iter().peekable(), news.iter().peekable());
    loop {
        let (key, old, new) = match (left.peek(), right.peek()) {
            (None, None) => return Ok(nodes),
            (Some((a, _)), Some((b, _))) if a == b => {
                let ((key, old), (_, new)) = (left.next().expect("peeked"), right.next().expect("peeked"));
                (key, Some(old), Some(new))
            }
            (Some((a, _)), Some((b, _))) if a > b => {
                let (key, new) = right.next().expect("peeked");
                (key, None, Some(new))
            }
            (None, Some(_)) => {
                let (key, new) = right.next().expect("peeked");
                (key, None, Some(new))
            }
            (Some(_), _) => {
                let (key, old) = left.next().expect("peeked");
                (key, Some(old), None)
            }
        };
        // Most of an object stays as it was, and that is seen without a path for every field of it.
        if old == new {
            continue;
        }
        let (below, declared) = kind.child(key).unwrap_or((Kind::Opaque, None));
        let below = value(old, new, below)?;
        nodes.push(field_element(key, declared), below);
    }
}

/// The items of a list with their steps, sorted by them; items with the same step stay in their order.
fn indexed<'a>(items: &'a [Value], kind: Kind<'_>) -> Result<Vec<(Element, &'a Value)>, String> {
    let mut indexed = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        indexed.push((item_element(kind, item).map_err(|error| format!("element {at}: {error}"))?, item));
    }
    indexed.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(indexed)
}

fn lists(olds: &[Value], news: &[Value], kind: Kind<'_>) -> Result<Nodes, String> {
    let mut nodes = Nodes::default();
    let (olds, news) = (indexed(olds, kind)?, indexed(news, kind)?);
    let (mut left, mut right) = (&olds[..], &news[..]);
    loop {
        let element = match (left.first(), right.first()) {
            (None, None) => return Ok(nodes),
            (Some((a, _)), Some((b, _))) => a.min(b),
            (Some((element, _)), None) | (None, Some((element, _))) => element,
        };
        let same = |items: &[(Element, &Value)]| items.iter().take_while(|(other, _)| other == element).count();
        let (old, rest_left) = left.split_at(same(left));
        let (new, rest_right) = right.split_at(same(right));
        let below = match (old, new) {
            ([], [(_, new)]) => value(None, Some(new), kind.item())?,
            ([(_, old)], []) => value(Some(old), None, kind.item())?,
            ([(_, old)], [(_, new)]) if old == new => Nodes::default(),
            ([(_, old)], [(_, new)]) => value(Some(old), Some(new), kind.item())?,
            // Items that cannot be told apart are owned together.
            ([_, _, ..], [_, _, ..]) => {
                let equal = old.len() == new.len() && old.iter().zip(new).all(|((_, a), (_, b))| a == b);
                Nodes { modified: Node { member: !equal, children: Set::default() }, ..Nodes::default() }
            }
            ([_, _, ..], _) => {
                let mut below = match new {
                    [(_, new)] => value(None, Some(new), kind.item())?,
                    _ => Nodes::default(),
                };
                below.removed.member = true;
                below
            }
            (_, [_, _, ..]) => {
                let mut below = match old {
                    [(_, old)] => value(Some(old), None, kind.item())?,
                    _ => Nodes::default(),
                };
                below.added.member = true;
                below
            }
            ([], []) => unreachable!("one side has the element"),
        };
        nodes.push(element.clone(), below);
        (left, right) = (rest_left, rest_right);
    }
}
