//! Laying a configuration over an object without a record of owners: how mutating policies apply theirs.

use facts::Type;
use serde_json::Value;

use super::kind::Kind;
use super::{merge, typed};

/// The object with the configuration laid over it. What merges as a whole must not be named: whoever changes a part of it
/// would drop what others put there.
pub fn overlay(live: &Value, config: &Value, of: &Type) -> Result<Value, String> {
    let kind = Kind::Struct(of);
    typed::validate(config, kind).map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomics = Vec::new();
    find_atomics(config, kind, &mut String::new(), &mut atomics);
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    merge::merge(live, config, kind).map_err(|why| format!("failed to merge patch: {why}"))
}

fn find_atomics(value: &Value, kind: Kind<'_>, path: &mut String, found: &mut Vec<String>) {
    match (value, kind) {
        (Value::Object(_), Kind::AtomicStruct(_) | Kind::AtomicMap(_)) | (Value::Array(_), Kind::AtomicList(_)) => {
            found.push(path.clone());
        }
        _ => {}
    }
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                let Some((kind, _)) = kind.child(key) else { continue };
                path.push('.');
                path.push_str(key);
                find_atomics(below, kind, path, found);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                find_atomics(item, kind.item(), path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_merges_is_laid_over_and_what_is_whole_is_refused() {
        let pod = facts::type_of("", "v1", "Pod").expect("pods").def();
        let live = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let config = json!({"metadata": {"labels": {"b": "2"}}, "spec": {"containers": [{"name": "d", "image": "j"}, {"name": "c", "tty": true}]}});
        assert_eq!(
            overlay(&live, &config, pod),
            Ok(json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"containers": [
                {"name": "d", "image": "j"}, {"name": "c", "image": "i", "tty": true}]}})),
            "what is configured comes in the order of the configuration"
        );
        let whole = json!({"spec": {"containers": [{"name": "c", "command": ["sh"]}], "nodeSelector": {"a": "b"}}});
        let why = overlay(&live, &whole, pod).expect_err("atomic");
        assert!(why.contains(".spec.containers[0].command") && why.contains(".spec.nodeSelector"), "{why}");
    }
}
