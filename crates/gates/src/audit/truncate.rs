//! Events that are too large for a backend lose what was sent and answered, and say so; one that is too large even then is not written.

use bytes::Bytes;
use serde_json::{Value, json};

const ANNOTATION: &str = "audit.k8s.io/truncated";

/// The line as it may be written, if it may have `limit` bytes at most; nothing if it cannot be made to.
pub(super) fn truncated(line: Bytes, limit: Option<usize>) -> Option<Bytes> {
    let Some(limit) = limit.filter(|limit| line.len() > *limit) else { return Some(line) };
    let mut event: Value = serde_json::from_slice(&line).ok()?;
    let bodies = ["requestObject", "responseObject"];
    if bodies.iter().all(|body| event.get(body).is_none()) {
        return None;
    }
    let map = event.as_object_mut()?;
    for body in bodies {
        map.remove(body);
    }
    map.entry("annotations").or_insert_with(|| json!({}))[ANNOTATION] = "true".into();
    let mut bytes = serde_json::to_vec(&event).ok()?;
    bytes.push(b'\n');
    (bytes.len() <= limit).then(|| bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_events_lose_their_bodies_and_say_so() {
        let line = |bodies: &str| Bytes::from(format!("{{\"level\":\"Request\"{bodies}}}\n"));
        let small = line("");
        assert_eq!(truncated(small.clone(), Some(100)), Some(small.clone()));
        let large = line(&format!(",\"requestObject\":\"{}\",\"responseObject\":1", "x".repeat(200)));
        assert_eq!(truncated(large.clone(), None), Some(large.clone()));
        let cut: Value = serde_json::from_slice(&truncated(large.clone(), Some(100)).expect("a line")).expect("JSON");
        assert_eq!(cut, json!({"level": "Request", "annotations": {ANNOTATION: "true"}}));
        assert_eq!(truncated(large, Some(20)), None, "too large even then");
        assert_eq!(truncated(small, Some(5)), None, "nothing to take away");
    }
}
