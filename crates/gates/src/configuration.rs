//! Configuration files of the gates: which kind a file has to be, and that nothing in it is misspelt. A field that nobody
//! knows is refused: what it was meant to forbid would be allowed.

use std::path::Path;

use machinery::status::FieldError;
use machinery::{Value, codec, value};

/// The group of these files, and its versions.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// Reads a file of a kind, whose fields are those of `shape`, and what was read.
pub fn load(path: &Path, kind: &str, shape: &Value) -> Result<(Value, Vec<u8>), String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let tree = read(&bytes, kind, shape)?;
    Ok((tree, bytes))
}

/// Reads the content of a file of a kind.
pub fn read(bytes: &[u8], kind: &str, shape: &Value) -> Result<Value, String> {
    let decoded = codec::yaml::decode(bytes, codec::Limits::default()).map_err(|error| error.message)?;
    let (given, version) = (value::text(&decoded.value, "kind"), value::text(&decoded.value, "apiVersion"));
    if given.is_empty() || version.is_empty() {
        return Err(format!("it has no kind or no apiVersion; expected {kind}"));
    }
    if !VERSIONS.contains(&version) {
        return Err(format!("no kind {given:?} is registered for version {version:?}"));
    }
    if given != kind {
        return Err(format!("expected {kind}, got {given}"));
    }
    let mut problems = decoded.duplicates;
    unknown(&decoded.value, shape, String::new(), &mut problems);
    if !problems.is_empty() {
        return Err(format!("strict decoding error: {}", problems.join(", ")));
    }
    Ok(decoded.value)
}

/// Fields that the shape does not have. A shape is an example: `null` is any value, a list has one example of its elements.
fn unknown(tree: &Value, shape: &Value, path: String, problems: &mut Vec<String>) {
    match (tree, shape) {
        (Value::Object(fields), Value::Object(known)) => {
            for (name, field) in fields {
                let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(shape) => unknown(field, shape, at, problems),
                    None if path.is_empty() && matches!(name.as_str(), "kind" | "apiVersion") => {}
                    None => problems.push(format!("unknown field {at:?}")),
                }
            }
        }
        (Value::Array(items), Value::Array(example)) => {
            for (index, item) in items.iter().enumerate() {
                unknown(item, example.first().unwrap_or(&Value::Null), format!("{path}[{index}]"), problems);
            }
        }
        _ => {}
    }
}

/// All that is wrong, as upstream says it in one line.
pub fn together(errors: &[FieldError]) -> String {
    match errors {
        [one] => one.to_string(),
        several => {
            let all: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("[{}]", all.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_of_other_kinds_and_misspelt_fields_are_refused() {
        let shape = json!({"list": [{"name": null}], "any": null});
        let check = |text: &str, expect: Result<(), &str>| {
            let outcome = read(text.as_bytes(), "K", &shape).map(|_| ());
            assert_eq!(outcome, expect.map_err(str::to_owned), "{text}");
        };
        let head = "{apiVersion: apiserver.config.k8s.io/v1, kind: K, ";
        check(&format!("{head} any: {{x: 1}}, list: [{{name: a}}]}}"), Ok(()));
        check(
            &format!("{head} list: [{{name: a}}, {{nam: b}}], other: 1}}"),
            Err("strict decoding error: unknown field \"list[1].nam\", unknown field \"other\""),
        );
        check("{apiVersion: v1, kind: K}", Err("no kind \"K\" is registered for version \"v1\""));
        check("{apiVersion: apiserver.config.k8s.io/v1, kind: Other}", Err("expected K, got Other"));
        check("{}", Err("it has no kind or no apiVersion; expected K"));
    }
}
