//! `--sort-by`: by what a path finds, numbers as numbers, amounts as amounts, everything else as text.

use std::cmp::Ordering;

use machinery::quantity::Quantity;
use serde_json::Value;

use super::jsonpath::{JsonPath, relaxed};
use crate::error::Failure;
use crate::streams;

/// Why things cannot be sorted.
#[derive(Debug, PartialEq, Eq)]
pub enum Unsorted {
    /// The path cannot be read, or leads nowhere.
    Path(String),
    /// What it leads to has no order.
    Kind { field: String, why: String },
}

impl Unsorted {
    /// For a list of objects, which says so and prints nothing.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Path(why) => Failure::Message(why),
            kind @ Self::Kind { .. } => {
                Failure::Plain(streams::log_line('F', "sorter.go:302", &kind.message("*unstructured.Unstructured")))
            }
        }
    }

    /// The words in which an order that cannot be is told.
    pub fn message(&self, of: &str) -> String {
        match self {
            Self::Path(why) => why.clone(),
            Self::Kind { field, why } => format!("Field {field} in {of} is an unsortable type: interface, err: {why}"),
        }
    }
}

/// Sorts things by what a path finds in them. Those that have nothing there come first.
pub fn sort<T>(things: &mut Vec<T>, path: &str, object: impl Fn(&T) -> &Value) -> Result<(), Unsorted> {
    let field = relaxed(path).map_err(Unsorted::Path)?;
    let parsed = JsonPath::parse(&field).map_err(Unsorted::Path)?;
    let mut keys: Vec<Option<Value>> = Vec::new();
    for thing in things.iter() {
        let found = parsed.find(object(thing)).map_err(Unsorted::Path)?;
        keys.push(found.iter().flatten().next().map(|value| (**value).clone()));
    }
    if !keys.is_empty() && keys.iter().all(Option::is_none) {
        let field = machinery::status::go_quote(&field);
        return Err(Unsorted::Path(format!("couldn't find any field with path {field} in the list of objects")));
    }
    let order = Order::of(keys.iter().flatten()).map_err(|why| Unsorted::Kind { field, why })?;
    let mut keyed: Vec<(Option<Value>, T)> = keys.into_iter().zip(things.drain(..)).collect();
    keyed.sort_by(|(left, _), (right, _)| match (left, right) {
        (Some(left), Some(right)) => order.compare(left, right),
        (left, right) => left.is_some().cmp(&right.is_some()),
    });
    things.extend(keyed.into_iter().map(|(_, thing)| thing));
    Ok(())
}

/// How all keys of a list compare; one order for all of them, so that it is one.
enum Order {
    Numbers,
    Amounts,
    Texts,
}

impl Order {
    fn of<'a>(keys: impl Iterator<Item = &'a Value>) -> Result<Self, String> {
        let keys: Vec<&Value> = keys.filter(|key| !key.is_null()).collect();
        if keys.len() > 1
            && let Some(odd) = keys.iter().find_map(|key| match key {
                Value::Bool(_) => Some("bool"),
                Value::Array(_) => Some("[]interface {}"),
                Value::Object(_) => Some("map[string]interface {}"),
                _ => None,
            })
        {
            return Err(format!("unsortable type: {odd}"));
        }
        if keys.iter().all(|key| key.is_number()) {
            return Ok(Self::Numbers);
        }
        if keys.iter().any(|key| key.is_number()) {
            return Err("unsortable interface: interface".to_owned());
        }
        let amount = |key: &&Value| key.as_str().is_some_and(|text| text.parse::<Quantity>().is_ok());
        Ok(if keys.iter().all(amount) { Self::Amounts } else { Self::Texts })
    }

    fn compare(&self, left: &Value, right: &Value) -> Ordering {
        if left.is_null() || right.is_null() {
            return right.is_null().cmp(&left.is_null());
        }
        let texts = (left.as_str().unwrap_or_default(), right.as_str().unwrap_or_default());
        match self {
            Self::Numbers => left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal),
            Self::Amounts => texts.0.parse::<Quantity>().ok().cmp(&texts.1.parse::<Quantity>().ok()),
            Self::Texts => texts.0.cmp(texts.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn things_are_sorted_by_what_a_path_finds() {
        let mut list = vec![json!({"n": "pod10"}), json!({"n": "pod9"}), json!({}), json!({"n": "pod1"})];
        sort(&mut list, ".n", |item| item).expect("sorted");
        let names: Vec<&str> = list.iter().map(|item| item["n"].as_str().unwrap_or("-")).collect();
        assert_eq!(names, ["-", "pod1", "pod10", "pod9"]);
        let mut amounts = vec![json!({"m": "1Gi"}), json!({"m": "500Mi"}), json!({"m": "2Ki"})];
        sort(&mut amounts, "{.m}", |item| item).expect("sorted");
        assert_eq!(amounts[0]["m"], "2Ki");
        let error = sort(&mut amounts, "x", |item| item).expect_err("no such field");
        let nowhere = "couldn't find any field with path \"{.x}\" in the list of objects";
        assert_eq!(error, Unsorted::Path(nowhere.to_owned()));
        // What is an amount for some and a text for others is a text: an order has to be one for all.
        let mut mixed = vec![json!({"m": "9"}), json!({"m": "5x"}), json!({"m": "10"})];
        sort(&mut mixed, ".m", |item| item).expect("sorted");
        assert_eq!(mixed, [json!({"m": "10"}), json!({"m": "5x"}), json!({"m": "9"})]);
        let mut odd = vec![json!({"m": {}}), json!({"m": {}})];
        let error = sort(&mut odd, ".m", |item| item).expect_err("maps have no order");
        assert_eq!(
            error.message("X"),
            "Field {.m} in X is an unsortable type: interface, err: unsortable type: map[string]interface {}"
        );
    }
}
