//! Lists whose order means nothing: sets, and lists whose items are told apart by keys.
//!
//! Users choose how long they are, so items are looked up by what they are and not one by one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::value::{List, Value};

/// `x-kubernetes-list-type: set`, or `map` where there are keys.
#[derive(Debug)]
pub struct Unordered<'a> {
    pub(crate) items: Vec<Value<'a>>,
    keys: Option<Arc<[String]>>,
}

impl<'a> Unordered<'a> {
    /// A set of these.
    pub fn set(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Unordered(Arc::new(Self { items, keys: None })))
    }

    /// Items that these keys tell apart.
    pub fn keyed(items: Vec<Value<'a>>, keys: &[String]) -> Value<'a> {
        Value::List(List::Unordered(Arc::new(Self { items, keys: Some(keys.into()) })))
    }

    /// What tells an item apart from others.
    fn identity(&self, item: &Value<'_>) -> String {
        let shown = |value: &Value<'_>| value.to_json().map(|json| json.to_string()).unwrap_or_default();
        match (&self.keys, item) {
            (Some(keys), Value::Map(fields)) => {
                let parts = keys.iter().map(|key| fields.field(key).as_ref().map(shown).unwrap_or_default());
                parts.collect::<Vec<_>>().join("\n")
            }
            _ => shown(item),
        }
    }

    /// Whether the other has the same items, in whatever order.
    pub(crate) fn same(&self, other: &List<'_>) -> bool {
        if self.items.len() != other.len() {
            return false;
        }
        let own: HashMap<String, &Value<'a>> = self.items.iter().map(|item| (self.identity(item), item)).collect();
        let mut seen = HashSet::new();
        for item in other.items() {
            let identity = self.identity(&item);
            let found = own.get(&identity).is_some_and(|own| self.keys.is_none() || own.same(&item));
            if !found {
                return false;
            }
            seen.insert(identity);
        }
        seen.len() == own.len()
    }

    /// These and the others: an item that is known stays where it is, and is replaced where keys tell it apart.
    pub(crate) fn join(&self, other: &List<'a>) -> Value<'a> {
        let mut items = self.items.clone();
        let mut places: HashMap<String, usize> =
            items.iter().enumerate().map(|(at, item)| (self.identity(item), at)).collect();
        for item in other.items() {
            match places.get(&self.identity(&item)) {
                Some(at) => items[*at] = item,
                None => {
                    places.insert(self.identity(&item), items.len());
                    items.push(item);
                }
            }
        }
        Value::List(List::Unordered(Arc::new(Self { items, keys: self.keys.clone() })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn items(list: &serde_json::Value) -> Vec<Value<'_>> {
        list.as_array().expect("a list").iter().map(Value::from).collect()
    }

    #[test]
    fn the_order_of_sets_means_nothing() {
        let (a, b, twice, other) = (json!(["x", "y"]), json!(["y", "x"]), json!(["x", "x"]), json!(["x", "z"]));
        let set = Unordered::set(items(&a));
        assert!(set.same(&Unordered::set(items(&b))));
        assert!(set.same(&Value::from(&b)));
        assert!(!set.same(&Unordered::set(items(&twice))));
        assert!(!set.same(&Unordered::set(items(&other))));
        // The list on the left says what being the same means.
        assert!(!Value::from(&a).same(&Unordered::set(items(&b))));
    }

    #[test]
    fn keys_tell_items_apart() {
        let a = json!([{"k": 1, "v": 1}, {"k": 2, "v": 2}]);
        let b = json!([{"k": 2, "v": 2}, {"k": 1, "v": 1}]);
        let changed = json!([{"k": 2, "v": 3}, {"k": 1, "v": 1}]);
        let keys = ["k".to_owned()];
        let list = Unordered::keyed(items(&a), &keys);
        assert!(list.same(&Unordered::keyed(items(&b), &keys)));
        assert!(!list.same(&Unordered::keyed(items(&changed), &keys)));
        let (Value::List(list), Value::List(more)) = (list, Value::from(&changed)) else { unreachable!() };
        assert_eq!(list.join(&more).to_json(), Some(json!([{"k": 1, "v": 1}, {"k": 2, "v": 3}])));
    }

    #[test]
    fn long_sets_are_compared_in_linear_time() {
        let up: serde_json::Value = (0..200_000).collect();
        let down: serde_json::Value = (0..200_000).rev().collect();
        assert!(Unordered::set(items(&up)).same(&Unordered::set(items(&down))));
    }
}
