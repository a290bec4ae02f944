//! Configuration files of upstream's, taken apart by a table of their fields.

use serde_json::{Map, Value};

use super::{Doing, Setting, gates};

/// What is wrong with a file, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {field}: {why}")]
pub struct Mistake {
    /// Counted from one.
    pub line: usize,
    pub field: String,
    pub why: String,
}

/// What a file sets that is honoured. A field that is not there, or whose value cannot be taken, is a mistake on its line of `text`. What is empty is not
/// set, as upstream has it.
pub fn honoured(table: &[Setting], text: &str, tree: Value) -> Result<Value, Mistake> {
    walk(table, "", tree).map_err(|(field, why)| Mistake { line: line_of(text, &field), field, why })
}

fn walk(table: &[Setting], above: &str, tree: Value) -> Result<Value, (String, String)> {
    let Value::Object(fields) = tree else { return Err((above.to_owned(), "it is not a map of fields".to_owned())) };
    let mut kept = Map::new();
    for (name, value) in fields {
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        let below = format!("{path}.");
        if let Some(row) = table.iter().find(|row| row.name == path) {
            match row.doing {
                Doing::Honoured(_) => drop(kept.insert(name, value)),
                _ if is_empty(&value) => {}
                Doing::Gates => {
                    for (gate, wanted) in value.as_object().into_iter().flatten() {
                        gates::check_one(gate, &plain(wanted)).map_err(|why| (path.clone(), why))?;
                    }
                }
                _ => row.check(&plain(&value)).map_err(|why| (path, why))?,
            }
        } else if table.iter().any(|row| row.name.starts_with(&below)) {
            if is_empty(&value) {
                continue;
            }
            let value = walk(table, &path, value)?;
            if !is_empty(&value) {
                kept.insert(name, value);
            }
        } else {
            return Err((path, "unknown field".to_owned()));
        }
    }
    Ok(Value::Object(kept))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The line that a field is on, counted from one; `a.b` is b below a. That of what is above it, where it cannot be found.
pub fn line_of(text: &str, field: &str) -> usize {
    let mut found = 0;
    for key in field.split('.') {
        let has = |line: &str| {
            let line = line.trim_start_matches([' ', '\t', '{', ',', '-']).trim_start_matches(['"', '\'']);
            let rest = line.strip_prefix(key).map(|rest| rest.trim_start_matches(['"', '\'']).trim_start());
            rest.is_some_and(|rest| rest.starts_with(':'))
        };
        let Some(further) = text.lines().skip(found).position(has) else { break };
        found += further + 1;
    }
    found.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = "k a =\nk b.c = \nk b.d? only=true it is so\nk e refused nobody has it\nk f nothing who cares\nk featureGates gates";

    fn check(text: &str, tree: Value) -> Result<Value, String> {
        honoured(&super::super::table(TABLE), text, tree).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn what_is_honoured_is_kept_and_what_is_empty_is_not_set() {
        let tree = json!({"a": 1, "b": {"c": "x", "d": true}, "e": {}, "f": [1], "featureGates": {"AllAlpha": false}});
        assert_eq!(check("", tree), Ok(json!({"a": 1, "b": {"c": "x"}})));
        assert_eq!(check("", json!({"a": "", "b": {"d": null}})), Ok(json!({"a": ""})));
    }

    #[test]
    fn mistakes_name_their_line() {
        let text = "a: 1\nb:\n  c: x\n  d: false\n";
        let tree = json!({"a": 1, "b": {"c": "x", "d": false}});
        assert_eq!(check(text, tree), Err("line 4: b.d: \"false\" is not possible, only true: it is so".to_owned()));
        assert_eq!(check("a: 1\n\"e\": x\n", json!({"a": 1, "e": "x"})), Err("line 2: e: nobody has it".to_owned()));
        assert_eq!(
            check("a: 1\nnonsense: 2", json!({"nonsense": 2})),
            Err("line 2: nonsense: unknown field".to_owned())
        );
        assert_eq!(check("b: 3", json!({"b": 3})), Err("line 1: b: it is not a map of fields".to_owned()));
        let gates = check("featureGates:\n  AllAlpha: true", json!({"featureGates": {"AllAlpha": true}}));
        assert!(gates.expect_err("a gate").starts_with("line 1: featureGates: AllAlpha=true"));
    }
}
