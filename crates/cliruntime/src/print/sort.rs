//! `--sort-by`: by what a path finds, numbers as numbers, amounts as amounts, names with numbers in their natural order.

use std::cmp::Ordering;

use machinery::quantity::Quantity;
use serde_json::Value;

use super::jsonpath::{JsonPath, relaxed};

/// Sorts things by what a path finds in them. The answer names a path that nothing has.
pub fn sort<T>(things: &mut Vec<T>, path: &str, object: impl Fn(&T) -> &Value) -> Result<(), String> {
    let parsed = relaxed(path).and_then(|path| JsonPath::parse(&path))?;
    let mut keyed = Vec::new();
    for thing in things.drain(..) {
        let found = parsed.find(object(&thing))?;
        let key: Option<Value> = found.iter().flatten().next().map(|value| (**value).clone());
        keyed.push((key, thing));
    }
    let nowhere = !keyed.is_empty() && keyed.iter().all(|(key, _)| key.is_none());
    keyed.sort_by(|(left, _), (right, _)| match (left, right) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(left), Some(right)) => compare(left, right),
    });
    things.extend(keyed.into_iter().map(|(_, thing)| thing));
    if nowhere {
        return Err(format!(
            "couldn't find any field with path {} in the list of objects",
            machinery::status::go_quote(&relaxed(path)?)
        ));
    }
    Ok(())
}

fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(one), Value::String(other)) => {
            let amounts = (one.parse::<Quantity>(), other.parse::<Quantity>());
            match amounts {
                (Ok(one), Ok(other)) => one.cmp(&other),
                _ => natural(one, other),
            }
        }
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// Runs of digits are compared as numbers.
pub fn natural(left: &str, right: &str) -> Ordering {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let (mut at, mut other) = (0, 0);
    while at < left.len() && other < right.len() {
        if left[at].is_ascii_digit() && right[other].is_ascii_digit() {
            let run = |text: &[u8], from: usize| {
                let start = (from..text.len()).find(|place| text[*place] != b'0').unwrap_or(text.len());
                let end = (start..text.len()).find(|place| !text[*place].is_ascii_digit()).unwrap_or(text.len());
                (start, end)
            };
            let ((start, end), (other_start, other_end)) = (run(left, at), run(right, other));
            let order = (end - start).cmp(&(other_end - other_start));
            let order = order.then_with(|| left[start..end].cmp(&right[other_start..other_end]));
            // The same number with more zeros before it comes later.
            let order = order.then_with(|| (start - at).cmp(&(other_start - other)));
            if order != Ordering::Equal {
                return order;
            }
            (at, other) = (end, other_end);
        } else {
            match left[at].cmp(&right[other]) {
                Ordering::Equal => (at, other) = (at + 1, other + 1),
                order => return order,
            }
        }
    }
    (left.len() - at).cmp(&(right.len() - other))
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
        assert_eq!(names, ["-", "pod1", "pod9", "pod10"]);
        let mut amounts = vec![json!({"m": "1Gi"}), json!({"m": "500Mi"}), json!({"m": "2Ki"})];
        sort(&mut amounts, "{.m}", |item| item).expect("sorted");
        assert_eq!(amounts[0]["m"], "2Ki");
        let error = sort(&mut amounts, "x", |item| item).expect_err("no such field");
        assert_eq!(error, "couldn't find any field with path \"{.x}\" in the list of objects");
    }
}
