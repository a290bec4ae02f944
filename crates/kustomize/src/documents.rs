//! Reads streams of YAML documents as resources: lists are taken apart, empty documents dropped, and what has no kind or no name
//! refused.

use machinery::codec::{Limits, yaml};
use machinery::{Value, value};

use crate::Error;
use crate::resource::Resource;

/// The resources of a file, in their order.
pub fn resources(content: &[u8]) -> Result<Vec<Resource>, Error> {
    let mut values = Vec::new();
    for document in split(content)? {
        let decoded = yaml::decode_core(document.as_bytes(), Limits::default());
        let read = decoded.map_err(|error| {
            let why = error.message.replace("error converting YAML to JSON: ", "");
            Error::new(format!("MalformedYAMLError: {why}"))
        })?;
        if let Some(problems) = read.duplicates.first() {
            let message =
                problems.replace(": key ", ": mapping key ").replace(" already set in map", " already defined");
            return Err(Error::new(format!("map[string]interface {}(nil): {message}", "{}")));
        }
        values.push(read.value);
    }
    let mut found = Vec::new();
    let mut values = std::collections::VecDeque::from(values);
    while let Some(value) = values.pop_front() {
        if is_empty(&value) {
            continue;
        }
        check(&value)?;
        let is_list = value::text(&value, "kind").ends_with("List");
        match value.get("items").filter(|_| is_list) {
            None => found.push(Resource::new(value)),
            Some(Value::Array(items)) => values.extend(items.iter().cloned()),
            Some(Value::Null) => {}
            Some(other) => {
                let (kind, what) = (value::text(&value, "kind"), machinery::patch::go_type(other));
                return Err(Error::new(format!("expected array in {kind}/items, but found {what}")));
            }
        }
    }
    Ok(found)
}

/// The documents of a stream: lines of three dashes are between them.
fn split(content: &[u8]) -> Result<Vec<String>, Error> {
    let text = std::str::from_utf8(content)
        .map_err(|_| Error::new("MalformedYAMLError: yaml: invalid leading UTF-8 octet"))?;
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.starts_with("---") && line[3..].chars().next().is_none_or(char::is_whitespace) {
            documents.push(String::new());
            continue;
        }
        documents.last_mut().expect("there is always one").push_str(line);
    }
    Ok(documents)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn check(value: &Value) -> Result<(), Error> {
    if !value.is_object() {
        return Err(Error::new("wrong Node Kind for  expected: MappingNode was SequenceNode"));
    }
    let (api_version, kind) = (value::text(value, "apiVersion"), value::text(value, "kind"));
    let (name, namespace) = (value::text(value, "metadata.name"), value::text(value, "metadata.namespace"));
    let map =
        |path: &str| machinery::patch::go_print(value::at(value, path).unwrap_or(&Value::Object(Default::default())));
    let shown = || {
        format!(
            "{{{{{api_version} {kind}}} {{{{{name} {namespace}}} {} {}}}}}",
            map("metadata.labels"),
            map("metadata.annotations")
        )
    };
    if kind.is_empty() {
        return Err(Error::new(format!("missing kind in object {}", shown())));
    }
    if !kind.ends_with("List") && name.is_empty() {
        return Err(Error::new(format!("missing metadata.name in object {}", shown())));
    }
    Ok(())
}
