//! What is said of a request besides its answer: warnings for the client, annotations for the audit log.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use parking_lot::Mutex;

/// The most bytes of warnings that one answer carries.
const MAX_WARNINGS: usize = 4 * 1024;
/// The most bytes of one warning.
const MAX_WARNING: usize = 256;

/// Of one request. Whoever judges a part of it may add something, so this is shared; nobody waits for anybody here.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Mutex<Warnings>,
    annotations: Mutex<BTreeMap<String, String>>,
}

/// Warnings and annotations that go with the answer.
#[derive(Debug, Default)]
struct Warnings {
    texts: Vec<String>,
    /// How long they are, each shortened to [`MAX_WARNING`].
    bytes: usize,
}

impl Notes {
    /// Tells the client something besides the answer, once.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        // Once there are more than an answer carries, shortened as they would be, another would reach nobody.
        if warnings.bytes <= MAX_WARNINGS && !warnings.texts.contains(&text) {
            warnings.bytes += text.len().min(MAX_WARNING);
            warnings.texts.push(text);
        }
    }

    /// Adds to the audit event of the request; the first word for a key counts.
    pub fn annotate(&self, key: impl Into<String>, text: impl Into<String>) {
        self.annotations.lock().entry(key.into()).or_insert(text.into());
    }

    pub fn take_annotations(&mut self) -> BTreeMap<String, String> {
        std::mem::take(self.annotations.get_mut())
    }

    /// Writes the warnings as RFC 7234 `Warning: 299 - "..."` headers, shortened where they would be too many.
    pub fn write_warnings(&mut self, headers: &mut HeaderMap) {
        let warnings = std::mem::take(self.warnings.get_mut()).texts;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_said_once_and_quoted() {
        let mut notes = Notes::default();
        notes.warn("a \"b\"");
        notes.warn("a \"b\"");
        notes.annotate("k", "first");
        notes.annotate("k", "second");
        let mut headers = HeaderMap::new();
        notes.write_warnings(&mut headers);
        let all: Vec<_> = headers.get_all("warning").iter().collect();
        assert_eq!(all, ["299 - \"a \\\"b\\\"\""]);
        assert_eq!(notes.take_annotations().remove("k").as_deref(), Some("first"));
    }
}
