//! What is known of the request under way besides its answer: warnings for the client, annotations for the audit log.
//!
//! Kept with the task, so that a rule deep in admission can speak up without a parameter through every layer between.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::audit::Record;
use crate::metrics::Measure;

/// The most bytes of warnings that one answer carries.
const MAX_WARNINGS: usize = 4 * 1024;
/// The most bytes of one warning.
const MAX_WARNING: usize = 256;

tokio::task_local! {
    static CONTEXT: Context;
}

/// Of one request.
#[derive(Default)]
pub struct Context {
    warnings: RefCell<Warnings>,
    annotations: RefCell<BTreeMap<String, String>>,
    record: RefCell<Option<Arc<Record>>>,
    measure: RefCell<Option<Measure>>,
    flow: RefCell<Option<(HeaderValue, HeaderValue)>>,
}

/// What the client is told besides the answer.
#[derive(Default)]
struct Warnings {
    texts: Vec<String>,
    /// How long they are, each shortened to [`MAX_WARNING`].
    bytes: usize,
}

/// Runs a request in a context of its own.
pub async fn scope<F: Future>(future: F) -> F::Output {
    CONTEXT.scope(Context::default(), future).await
}

/// Tells the client something besides the answer, once.
pub fn warn(text: impl Into<String>) {
    let text = text.into();
    with(|context| {
        let mut warnings = context.warnings.borrow_mut();
        // Once there are more than an answer carries, shortened as they would be, nobody would hear of another.
        if warnings.bytes <= MAX_WARNINGS && !warnings.texts.contains(&text) {
            warnings.bytes += text.len().min(MAX_WARNING);
            warnings.texts.push(text);
        }
    });
}

/// Adds to the audit event of the request; the first word for a key counts.
pub fn annotate(key: impl Into<String>, text: impl Into<String>) {
    with(|context| {
        context.annotations.borrow_mut().entry(key.into()).or_insert(text.into());
    });
}

/// The annotations, taken.
pub fn take_annotations() -> BTreeMap<String, String> {
    let mut taken = BTreeMap::new();
    with(|context| taken = context.annotations.take());
    taken
}

/// Remembers the uids of the flow schema and of the priority level of the request.
pub fn set_flow(uids: (HeaderValue, HeaderValue)) {
    with(|context| *context.flow.borrow_mut() = Some(uids));
}

/// Writes which flow schema and priority level the request belonged to.
pub fn write_flow(headers: &mut HeaderMap) {
    with(|context| {
        if let Some((schema, level)) = context.flow.take() {
            headers.insert(HeaderName::from_static("x-kubernetes-pf-flowschema-uid"), schema);
            headers.insert(HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"), level);
        }
    });
}

/// Keeps the audit record of the request.
pub fn keep_record(record: Arc<Record>) {
    with(|context| *context.record.borrow_mut() = Some(record));
}

/// The audit record of the request, if there is one. Who carries a connection on after the answer holds it until the end.
pub fn record() -> Option<Arc<Record>> {
    let mut record = None;
    with(|context| record.clone_from(&context.record.borrow()));
    record
}

/// Keeps the measure of the request.
pub fn keep_measure(measure: Measure) {
    with(|context| *context.measure.borrow_mut() = Some(measure));
}

/// The measure of the request, taken. None if the request did not come past the gates.
pub fn take_measure() -> Option<Measure> {
    let mut measure = None;
    with(|context| measure = context.measure.take());
    measure
}

/// Writes the warnings as RFC 7234 `Warning: 299 - "..."` headers, shortened where they would be too many.
pub fn write_warnings(headers: &mut HeaderMap) {
    let mut warnings = Vec::new();
    with(|context| warnings = context.warnings.take().texts);
    let whole: usize = warnings.iter().map(String::len).sum();
    let mut left = MAX_WARNINGS;
    for text in warnings {
        let bound = if whole > MAX_WARNINGS { MAX_WARNING.min(left) } else { left };
        let mut end = text.len().min(bound);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        left -= end;
        if end == 0 {
            break;
        }
        let quoted = text[..end].replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = quoted.chars().filter(|character| !character.is_control()).collect();
        if let Ok(header) = HeaderValue::from_bytes(format!("299 - \"{clean}\"").as_bytes()) {
            headers.append(HeaderName::from_static("warning"), header);
        }
    }
}

fn with(act: impl FnOnce(&Context)) {
    // Outside a request (at start-up) there is nobody to tell.
    let _ = CONTEXT.try_with(act);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn warnings_are_said_once_and_quoted() {
        scope(async {
            warn("a \"b\"");
            warn("a \"b\"");
            annotate("k", "first");
            annotate("k", "second");
            let mut headers = HeaderMap::new();
            write_warnings(&mut headers);
            let all: Vec<_> = headers.get_all("warning").iter().collect();
            assert_eq!(all, ["299 - \"a \\\"b\\\"\""]);
            assert_eq!(take_annotations().remove("k").as_deref(), Some("first"));
        })
        .await;
        warn("nobody hears this");
    }
}
