//! Sets of paths: what a manager owns.
//!
//! A set is a tree of steps, sorted on every level, so that all operations are merges of sorted lists. A step is in the tree
//! because its path is a member, because paths below it are, or both.

use std::cmp::Ordering;

use serde_json::Value;

use super::path::Element;
use crate::value::Object;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    entries: Vec<Entry>,
}

/// A step and what is owned from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) element: Element,
    pub(super) node: Node,
}

/// Whether a path is a member, and the members below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) member: bool,
    pub(super) children: Set,
}

impl Node {
    pub(super) fn leaf() -> Self {
        Self { member: true, children: Set::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    fn combine(self, other: Self) -> Self {
        Self { member: self.member || other.member, children: self.children.union(other.children) }
    }
}

impl Set {
    /// The set of these dotted paths of fields.
    pub fn of_fields<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.split('.').map(|name| Element::field(name.to_owned())).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes a path a member.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.entries.binary_search_by(|entry| entry.element.cmp(first)) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, Entry { element: first.clone(), node: Node::default() });
                at
            }
        };
        let node = &mut self.entries[at].node;
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Whether a path is a member.
    pub fn has(&self, path: &[Element]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        self.get(first).is_some_and(|node| if rest.is_empty() { node.member } else { node.children.has(rest) })
    }

    pub(super) fn get(&self, element: &Element) -> Option<&Node> {
        let at = self.entries.binary_search_by(|entry| entry.element.cmp(element)).ok()?;
        Some(&self.entries[at].node)
    }

    /// Adds a step beyond all there are, or beside them if it is not.
    pub(super) fn push(&mut self, element: Element, node: Node) {
        if node.is_empty() {
            return;
        }
        match self.entries.last() {
            Some(last) if last.element >= element => {
                let single = Set { entries: vec![Entry { element, node }] };
                *self = std::mem::take(self).union(single);
            }
            _ => self.entries.push(Entry { element, node }),
        }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The members of any. Pairs are united, then pairs of pairs: one after the other, the first set would be copied for each.
    pub(super) fn union_of(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            let mut rest = sets.into_iter();
            let mut pairs = Vec::with_capacity(rest.len().div_ceil(2));
            while let Some(set) = rest.next() {
                pairs.push(set.union(rest.next().unwrap_or_default()));
            }
            sets = pairs;
        }
        sets.pop().unwrap_or_default()
    }

    /// The members of either.
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut entries = Vec::with_capacity(self.entries.len().max(other.entries.len()));
        let (mut left, mut right) = (self.entries.into_iter().peekable(), other.entries.into_iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            match a.element.cmp(&b.element) {
                Ordering::Less => entries.extend(left.next()),
                Ordering::Greater => entries.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(a), Some(b)) = (left.next(), right.next()) {
                        entries.push(Entry { element: a.element, node: a.node.combine(b.node) });
                    }
                }
            }
        }
        entries.extend(left);
        entries.extend(right);
        Self { entries }
    }

    /// The members that the other does not have.
    pub fn difference(self, other: &Self) -> Self {
        self.subtract(other, false)
    }

    /// The members that the other has neither itself nor at a path above.
    pub fn recursive_difference(self, other: &Self) -> Self {
        self.subtract(other, true)
    }

    fn subtract(mut self, other: &Self, recursive: bool) -> Self {
        if other.is_empty() {
            return self;
        }
        let mut others = Walk::over(other);
        self.entries.retain_mut(|entry| {
            let Some(found) = others.find(&entry.element) else { return true };
            if found.node.member {
                if recursive {
                    return false;
                }
                entry.node.member = false;
            }
            entry.node.children = std::mem::take(&mut entry.node.children).subtract(&found.node.children, recursive);
            !entry.node.is_empty()
        });
        self
    }

    /// The members of both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut entries = Vec::new();
        let mut others = Walk::over(other);
        for entry in &self.entries {
            let Some(found) = others.find(&entry.element) else { continue };
            let node = Node {
                member: entry.node.member && found.node.member,
                children: entry.node.children.intersection(&found.node.children),
            };
            if !node.is_empty() {
                entries.push(Entry { element: entry.element.clone(), node });
            }
        }
        Self { entries }
    }

    /// Every member, those of a level before those below it.
    pub fn for_each(&self, visit: &mut impl FnMut(&[Element])) {
        fn walk(set: &Set, path: &mut Vec<Element>, visit: &mut impl FnMut(&[Element])) {
            for entry in set.entries.iter().filter(|entry| entry.node.member) {
                path.push(entry.element.clone());
                visit(path);
                path.pop();
            }
            for entry in &set.entries {
                path.push(entry.element.clone());
                walk(&entry.node.children, path, visit);
                path.pop();
            }
        }
        walk(self, &mut Vec::new(), visit);
    }

    /// As `fieldsV1` has it.
    pub fn encode(&self) -> Value {
        fn node(node: &Node) -> Value {
            let mut fields = Object::new();
            if node.member && !node.children.is_empty() {
                fields.insert(".".to_owned(), Value::Object(Object::new()));
            }
            put(&node.children, &mut fields);
            Value::Object(fields)
        }
        // One by one: most have a few entries, and to collect them would make a list of them first.
        fn put(set: &Set, fields: &mut Object) {
            for entry in &set.entries {
                fields.insert(entry.element.encode(), node(&entry.node));
            }
        }
        let mut fields = Object::new();
        put(self, &mut fields);
        Value::Object(fields)
    }

    /// Reads `fieldsV1`.
    pub fn decode(fields: &Value) -> Result<Self, String> {
        match fields {
            Value::Null => Ok(Self::default()),
            Value::Object(fields) => read_set(fields),
            _ => Err("managedFields parsing: expect an object".to_owned()),
        }
    }
}

/// Looks steps up in a set, each beyond the last one. Few steps skip over many entries, so that many small sets can be compared with
/// one large one.
struct Walk<'a> {
    left: &'a [Entry],
}

impl<'a> Walk<'a> {
    fn over(set: &'a Set) -> Self {
        Self { left: &set.entries }
    }

    fn find(&mut self, element: &Element) -> Option<&'a Entry> {
        let mut reach = 1;
        while self.left.get(reach - 1).is_some_and(|entry| entry.element < *element) {
            self.left = &self.left[reach..];
            reach *= 2;
            reach = reach.min(self.left.len().max(1));
        }
        let beyond = self.left[..reach.min(self.left.len())].partition_point(|entry| entry.element < *element);
        self.left = &self.left[beyond..];
        self.left.first().filter(|entry| entry.element == *element)
    }
}

fn read_set(fields: &Object) -> Result<Set, String> {
    let mut entries = Vec::with_capacity(fields.len());
    for (key, value) in fields.iter().filter(|(key, _)| *key != ".") {
        if let Some(element) = Element::decode(key)? {
            entries.push(Entry { element, node: read_node(value)? });
        }
    }
    entries.retain(|entry: &Entry| !entry.node.is_empty());
    // The texts of steps are in another order than the steps: as a text, port 10 comes before port 9.
    entries.sort_by(|a, b| a.element.cmp(&b.element));
    entries.dedup_by(|later, earlier| {
        let same = later.element == earlier.element;
        if same {
            earlier.node = std::mem::take(&mut earlier.node).combine(std::mem::take(&mut later.node));
        }
        same
    });
    Ok(Set { entries })
}

fn read_node(value: &Value) -> Result<Node, String> {
    let Some(fields) = value.as_object() else { return Ok(Node::leaf()) };
    let children = read_set(fields)?;
    Ok(Node { member: children.is_empty() || fields.contains_key("."), children })
}

/// Which fields a write may own at all: strategies reset the others.
#[derive(Debug, Clone, Default)]
pub enum Filter {
    #[default]
    All,
    /// All but these and what is below them.
    Exclude(Set),
}

impl Filter {
    /// All but these dotted paths.
    pub fn exclude<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Exclude(Set::of_fields(paths))
    }

    /// What is left of a set.
    pub fn apply(&self, set: Set) -> Set {
        match self {
            Self::All => set,
            Self::Exclude(excluded) => set.recursive_difference(excluded),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(fields: Value) -> Set {
        Set::decode(&fields).expect("fields")
    }

    #[test]
    fn sets_read_and_write_fields_v1() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}}}},
                "f:finalizers": {"v:\"x\"": {}},
                "f:replicas": {},
            },
        });
        let read = set(fields.clone());
        assert_eq!(read.encode(), fields);
        let mut paths = Vec::new();
        read.for_each(&mut |path| paths.push(path.iter().map(Element::to_string).collect::<String>()));
        assert_eq!(
            paths,
            [
                ".metadata.labels",
                ".metadata.labels.a",
                ".spec.replicas",
                ".spec.containers[name=\"c\"]",
                ".spec.containers[name=\"c\"].image",
                ".spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"]",
                ".spec.finalizers[=\"x\"]",
            ]
        );
        assert!(Set::decode(&json!({"x": {}})).is_err());
        assert!(Set::decode(&json!({"k:{": {}})).is_err());
        assert_eq!(set(json!({"z:future": {}})), Set::default());
    }

    #[test]
    fn filters_keep_what_a_strategy_leaves() {
        let owned = set(json!({"f:spec": {"f:a": {}}, "f:status": {".": {}, "f:b": {}}}));
        assert_eq!(Filter::exclude(["status"]).apply(owned.clone()).encode(), json!({"f:spec": {"f:a": {}}}));
        assert_eq!(Filter::All.apply(owned.clone()), owned);
    }

    #[test]
    fn steps_are_sorted_whatever_order_their_texts_have() {
        let fields = json!({"k:{\"port\":10}": {}, "k:{\"port\":9}": {}, "k:{\"port\":9.0}": {"f:a": {}}});
        let read = set(fields);
        let mut paths = Vec::new();
        read.for_each(&mut |path| paths.push(path.iter().map(Element::to_string).collect::<String>()));
        assert_eq!(paths, ["[port=9.0]", "[port=10]", "[port=9.0].a"], "one number in two ways is one step");
    }

    #[test]
    fn few_are_found_among_many() {
        let of = |numbers: &mut dyn Iterator<Item = i64>| {
            let mut set = Set::default();
            numbers.for_each(|number| set.insert(&[Element::Value(number.into())]));
            set
        };
        let many = of(&mut (0..1_000).filter(|number| number % 3 == 0));
        for few in [vec![0, 1, 2], vec![3, 500, 501, 999], vec![998, 999, 1_000], vec![-1, 2_000], vec![]] {
            let shared = of(&mut few.iter().copied().filter(|number| (0..1_000).contains(number) && number % 3 == 0));
            let few = of(&mut few.into_iter());
            assert_eq!(few.intersection(&many), shared);
            assert_eq!(many.intersection(&few), shared);
            assert_eq!(few.clone().difference(&many).union(shared.clone()), few);
            assert_eq!(many.clone().difference(&few).union(shared), many);
        }
        let each: Vec<Set> = (0..100).map(|number| of(&mut std::iter::once(number))).collect();
        assert_eq!(Set::union_of(each), of(&mut (0..100)));
    }

    fn sets() -> impl Strategy<Value = Set> {
        let path = prop::collection::vec(
            prop_oneof!["[a-c]".prop_map(Element::field), (0..3i64).prop_map(|at| Element::Value(at.into()))],
            1..4,
        );
        prop::collection::vec(path, 0..8).prop_map(|paths| {
            let mut set = Set::default();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn operations_obey_the_laws_of_sets(a in sets(), b in sets()) {
            let union = a.clone().union(b.clone());
            prop_assert_eq!(&union, &b.clone().union(a.clone()));
            let both = a.intersection(&b);
            prop_assert_eq!(&both, &b.intersection(&a));
            let only_a = a.clone().difference(&b);
            prop_assert_eq!(&only_a.clone().union(both), &a);
            prop_assert!(only_a.intersection(&b).is_empty());
            prop_assert_eq!(&union.clone().difference(&b), &only_a);
            prop_assert_eq!(Set::decode(&union.encode()), Ok(union));
        }
    }
}
