//! Merges an applied configuration into an object.

use serde_json::Value;

use super::kind::{Kind, item_element};
use super::path::Element;
use crate::value::Object;

/// The live object with the configuration laid over it.
pub(super) fn merge(live: &Value, config: &Value, kind: Kind<'_>) -> Result<Value, String> {
    match kind {
        Kind::Struct(_) | Kind::Map(_) => Ok(match (live, config) {
            (Value::Object(olds), Value::Object(news)) if !(olds.is_empty() && news.is_empty()) => {
                objects(olds, news, kind)?
            }
            // A null configuration of a container leaves it alone, an empty one too.
            (Value::Object(olds), Value::Null) if !olds.is_empty() => live.clone(),
            _ => config.clone(),
        }),
        Kind::Deduced => match (live, config) {
            (Value::Object(olds), Value::Object(news)) if !(olds.is_empty() && news.is_empty()) => {
                objects(olds, news, kind)
            }
            _ => Ok(config.clone()),
        },
        Kind::Set(_) | Kind::Keyed(_) => Ok(match (live, config) {
            (Value::Array(olds), Value::Array(news)) if !(olds.is_empty() && news.is_empty()) => {
                lists(olds, news, kind)?
            }
            (Value::Array(olds), Value::Null) if !olds.is_empty() => live.clone(),
            _ => config.clone(),
        }),
        _ => Ok(config.clone()),
    }
}

fn objects(olds: &Object, news: &Object, kind: Kind<'_>) -> Result<Value, String> {
    let mut merged = Object::new();
    for (key, old) in olds {
        let value = match news.get(key) {
            Some(new) => {
                let (below, _) = kind.child(key).unwrap_or((Kind::Opaque, None));
                merge(old, new, below).map_err(|error| format!(".{key}{error}"))?
            }
            None => old.clone(),
        };
        merged.insert(key.clone(), value);
    }
    for (key, new) in news.iter().filter(|(key, _)| !olds.contains_key(*key)) {
        merged.insert(key.clone(), new.clone());
    }
    Ok(Value::Object(merged))
}

/// The step of every item, and the positions sorted by step, for look-ups.
struct Index {
    elements: Vec<Element>,
    sorted: Vec<usize>,
}

impl Index {
    fn new(items: &[Value], kind: Kind<'_>) -> Result<Self, String> {
        let mut elements = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            elements.push(item_element(kind, item).map_err(|error| format!(": element {at}: {error}"))?);
        }
        let mut sorted: Vec<usize> = (0..elements.len()).collect();
        sorted.sort_by(|&a, &b| elements[a].cmp(&elements[b]));
        Ok(Self { elements, sorted })
    }

    /// The first position of a step, and whether it is the only one.
    fn find(&self, element: &Element) -> Option<(usize, bool)> {
        let start = self.sorted.partition_point(|&at| self.elements[at] < *element);
        let count = self.sorted[start..].iter().take_while(|&&at| self.elements[at] == *element).count();
        (count > 0).then(|| (self.sorted[start], count == 1))
    }
}

/// Items of both lists, in an order that keeps the configuration's own, and the live list's where that is silent.
fn lists(olds: &[Value], news: &[Value], kind: Kind<'_>) -> Result<Value, String> {
    let (left, right) = (Index::new(olds, kind)?, Index::new(news, kind)?);
    if let Some(element) = right.sorted.windows(2).find_map(|pair| {
        let (a, b) = (&right.elements[pair[0]], &right.elements[pair[1]]);
        (a == b).then_some(a)
    }) {
        return Err(format!(": duplicate entries for key {element}"));
    }
    let mut shared = (0..news.len()).filter(|&at| left.find(&right.elements[at]).is_some());
    let mut next_shared = shared.next();
    let mut taken = vec![false; news.len()];
    let mut merged = Vec::with_capacity(olds.len().max(news.len()));
    let item = |at: usize| -> Result<Value, String> {
        match left.find(&right.elements[at]) {
            Some((old, true)) => {
                merge(&olds[old], &news[at], kind.item()).map_err(|error| format!("{}{error}", right.elements[at]))
            }
            _ => Ok(news[at].clone()),
        }
    };
    let (mut l, mut r) = (0, 0);
    while l < olds.len() || r < news.len() {
        let in_config = (l < olds.len()).then(|| right.find(&left.elements[l]).map(|(at, _)| at)).flatten();
        if l < olds.len() && r < news.len() {
            if in_config == Some(r) {
                merged.push(item(r)?);
                taken[r] = true;
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            // An item of both that the configuration wants later waits for its turn.
            if in_config.is_some() && next_shared.is_some() && in_config != next_shared {
                l += 1;
                continue;
            }
        }
        if l < olds.len() {
            match in_config {
                None => {
                    merged.push(olds[l].clone());
                    l += 1;
                    continue;
                }
                Some(at) if taken[at] => l += 1,
                Some(_) => {}
            }
        }
        if r < news.len() {
            merged.push(item(r)?);
            taken[r] = true;
            if next_shared == Some(r) {
                next_shared = shared.next();
            }
            r += 1;
        }
    }
    Ok(Value::Array(merged))
}
