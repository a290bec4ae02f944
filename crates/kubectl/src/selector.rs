//! A label query of the command line as the selector of an object.

use machinery::selector::LabelSelector;
use machinery::selector::label::Operator;
use machinery::status::go_quote;
use serde_json::{Map, Value, json};

/// The `metav1.LabelSelector` that means the same as a query. Not every query has one.
pub fn of_query(query: &str) -> Result<Value, String> {
    let parsed =
        LabelSelector::parse(query).map_err(|why| format!("couldn't parse the selector string \"{query}\": {why}"))?;
    let mut labels = Map::new();
    let mut expressions: Vec<Value> = Vec::new();
    for requirement in parsed.requirements() {
        let operator = match requirement.operator() {
            Operator::Equals | Operator::DoubleEquals => {
                let value = requirement.values().first().cloned().unwrap_or_default();
                labels.insert(requirement.key().to_owned(), value.into());
                continue;
            }
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::NotEquals => return Err(format!("{} is not a valid label selector operator", go_quote("!="))),
            Operator::GreaterThan => return Err(unsupported("gt")),
            Operator::LessThan => return Err(unsupported("lt")),
        };
        let mut expression = json!({"key": requirement.key(), "operator": operator});
        if !requirement.values().is_empty() {
            expression["values"] = json!(requirement.values());
        }
        expressions.push(expression);
    }
    let mut selector = json!({});
    if !labels.is_empty() {
        selector["matchLabels"] = Value::Object(labels);
    }
    if !expressions.is_empty() {
        selector["matchExpressions"] = Value::Array(expressions);
    }
    Ok(selector)
}

fn unsupported(operator: &str) -> String {
    format!("{} isn't supported in label selectors", go_quote(operator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_become_selectors() {
        for (query, expected) in [
            (
                "a=b,c in (e,d)",
                json!({
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}],
                }),
            ),
            ("!x", json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]})),
            ("a==b", json!({"matchLabels": {"a": "b"}})),
        ] {
            assert_eq!(of_query(query).expect(query), expected, "{query}");
        }
    }

    #[test]
    fn a_query_without_a_selector_is_refused() {
        for (query, expected) in [
            ("a!=b", "\"!=\" is not a valid label selector operator"),
            ("a>1", "\"gt\" isn't supported in label selectors"),
            (
                "a b",
                "couldn't parse the selector string \"a b\": unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
        ] {
            assert_eq!(of_query(query).expect_err(query), expected, "{query}");
        }
    }
}
