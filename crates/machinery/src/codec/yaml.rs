//! YAML as `kubectl` and the API server read it: version 1.1, turned into JSON.
//!
//! `yes` and `off` are booleans, `0777` is octal, `1e1000` is text, keys of any scalar become text, `<<` merges. The grammar is
//! the parser's; what its scalars mean is decided here. Aliases are copied, so their total size is bounded. [`encode()`] writes
//! what both versions of YAML read alike.

mod encode;
mod scalar;

pub use encode::encode;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput};
use rustc_hash::FxHashMap;
use serde_json::map::Entry;
use serde_json::{Map, Value};

use super::{Decoded, Limits, MAX_DUPLICATES};
use crate::status::ApiError;
use scalar::{Words, scalar};

/// The most nodes that anchors and aliases of one document may copy.
const MAX_COPIED: usize = 200_000;

/// How the one problem begins that tells of all keys that a document gives twice; a line for each follows.
pub const DUPLICATES: &str = "yaml: unmarshal errors:\n";

/// Reads the first document of a stream, as upstream does.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<Decoded, ApiError> {
    read(bytes, limits, Words::OfOld)
}

/// As [`decode`], by the rules that kustomize has for objects: `yes` and `off` are texts, a date is a time.
pub fn decode_core(bytes: &[u8], limits: Limits) -> Result<Decoded, ApiError> {
    read(bytes, limits, Words::Core)
}

fn read(bytes: &[u8], limits: Limits, words: Words) -> Result<Decoded, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| fail("yaml: invalid leading UTF-8 octet"))?;
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.block_nesting_limit = limits.depth;
    options.flow_nesting_limit = limits.depth;
    let mut reader = Reader {
        parser: Parser::new_from_str_with_options(text, options),
        anchors: FxHashMap::default(),
        copied: 0,
        duplicates: Vec::new(),
        depth: limits.depth,
        words,
    };
    let value = reader.document().map_err(|error| fail(&error))?;
    let duplicates = match reader.duplicates.as_slice() {
        [] => Vec::new(),
        lines => vec![format!("{DUPLICATES}  {}", lines.join("\n  "))],
    };
    // Floats become text before any type is asked what they mean.
    Ok(Decoded { value, duplicates, rounded: false })
}

fn fail(why: &str) -> ApiError {
    ApiError::bad_request(format!("error converting YAML to JSON: {why}"))
}

struct Anchor {
    value: Value,
    nodes: usize,
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: FxHashMap<usize, Anchor>,
    copied: usize,
    duplicates: Vec<String>,
    depth: usize,
    words: Words,
}

/// A value and how many nodes it has.
type Counted = (Value, usize);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(scan_error(&error)),
            None => Ok((Event::StreamEnd, Span::empty(Default::default()))),
        }
    }

    fn document(&mut self) -> Result<Value, String> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(Value::Null),
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) => {
                    let (event, span) = self.next()?;
                    return self.node(event, span);
                }
                _ => return Err(at_line(span.start.line(), "did not find expected <document start>")),
            }
        }
    }

    /// Reads one node and all that is in it. What is open is kept in a list, not on the stack: how deep a document nests
    /// is its author's choice, how much stack is left is not.
    fn node(&mut self, event: Event<'a>, span: Span) -> Result<Value, String> {
        let mut open: Vec<Open> = Vec::new();
        let mut next = (event, span);
        loop {
            let (event, span) = next;
            let finished = match event {
                Event::SequenceStart(_, anchor, _) => {
                    open.push(Open { anchor, nodes: 1, inside: Inside::Sequence(Vec::new()) });
                    None
                }
                Event::MappingStart(_, anchor, _) => {
                    open.push(Open { anchor, nodes: 1, inside: Inside::Mapping(Mapping::default()) });
                    None
                }
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some(Open { anchor, nodes, inside }) => Some(self.anchored(anchor, (inside.finish()?, nodes))?),
                    None => return Err(unexpected(span)),
                },
                event => Some(self.leaf(event, span)?),
            };
            if open.len() > self.depth {
                return Err("yaml: exceeded max depth of 10000".to_owned());
            }
            if let Some((value, nodes)) = finished {
                match open.last_mut() {
                    None => return Ok(value),
                    Some(parent) => parent.take(value, nodes, &mut self.duplicates)?,
                }
            }
            next = self.next()?;
            if let (Some(Open { inside: Inside::Mapping(mapping), .. }), (event, span)) = (open.last_mut(), &next) {
                mapping.expect(event, *span);
            }
        }
    }

    /// A node that holds no others: a scalar, or the copy of one that was named.
    fn leaf(&mut self, event: Event<'a>, span: Span) -> Result<Counted, String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref(), self.words)
                    .map_err(|error| at_line(span.start.line(), &error.to_string()))?;
                self.anchored(anchor, (value, 1))
            }
            Event::Alias(id) => {
                let nodes = self.anchors.get(&id).ok_or("yaml: anchor value contains itself")?.nodes;
                self.copy(nodes)?;
                Ok((self.anchors[&id].value.clone(), nodes))
            }
            _ => Err(unexpected(span)),
        }
    }

    /// Remembers a node that has a name.
    fn anchored(&mut self, anchor: usize, counted: Counted) -> Result<Counted, String> {
        if anchor != 0 {
            self.copy(counted.1)?;
            self.anchors.insert(anchor, Anchor { value: counted.0.clone(), nodes: counted.1 });
        }
        Ok(counted)
    }

    fn copy(&mut self, nodes: usize) -> Result<(), String> {
        self.copied += nodes;
        if self.copied > MAX_COPIED { Err("yaml: document contains excessive aliasing".to_owned()) } else { Ok(()) }
    }
}

/// A sequence or mapping of which the end has not come yet.
struct Open {
    anchor: usize,
    nodes: usize,
    inside: Inside,
}

enum Inside {
    Sequence(Vec<Value>),
    Mapping(Mapping),
}

#[derive(Default)]
struct Mapping {
    fields: Map<String, Value>,
    merged: Vec<Value>,
    /// The key whose value comes next.
    key: Option<String>,
    /// Whether that key is `<<`, unquoted.
    merges: bool,
    /// Where the key stands.
    line: usize,
}

impl Open {
    fn take(&mut self, value: Value, nodes: usize, duplicates: &mut Vec<String>) -> Result<(), String> {
        self.nodes += nodes;
        match &mut self.inside {
            Inside::Sequence(items) => items.push(value),
            Inside::Mapping(mapping) => mapping.take(value, duplicates)?,
        }
        Ok(())
    }
}

impl Inside {
    fn finish(self) -> Result<Value, String> {
        match self {
            Self::Sequence(items) => Ok(Value::Array(items)),
            Self::Mapping(mapping) => mapping.finish(),
        }
    }
}

impl Mapping {
    /// Looks at what comes next: if it is a key, it matters how it is written.
    fn expect(&mut self, event: &Event<'_>, span: Span) {
        if self.key.is_none() {
            self.merges = matches!(event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            self.line = span.start.line();
        }
    }

    fn take(&mut self, value: Value, duplicates: &mut Vec<String>) -> Result<(), String> {
        let Some(key) = self.key.take() else {
            self.key = Some(key_text(&value)?);
            return Ok(());
        };
        if self.merges {
            match value {
                Value::Array(items) => self.merged.extend(items),
                other => self.merged.push(other),
            }
            return Ok(());
        }
        let line = self.line;
        match self.fields.entry(key) {
            Entry::Vacant(free) => {
                free.insert(value);
            }
            Entry::Occupied(mut taken) => {
                if duplicates.len() < MAX_DUPLICATES {
                    duplicates.push(format!("line {line}: key {:?} already set in map", taken.key()));
                }
                taken.insert(value);
            }
        }
        Ok(())
    }

    /// What the mapping says itself wins, and so do earlier merges over later ones.
    fn finish(mut self) -> Result<Value, String> {
        for source in self.merged {
            let Value::Object(source) = source else {
                return Err("yaml: map merge requires map or sequence of maps as the value".to_owned());
            };
            for (key, value) in source {
                self.fields.entry(key).or_insert(value);
            }
        }
        Ok(Value::Object(self.fields))
    }
}

fn unexpected(span: Span) -> String {
    at_line(span.start.line(), "did not find expected node content")
}

/// Upstream's words for what is wrong with a document, where ours differ from them.
fn scan_error(error: &ScanError) -> String {
    let info = error.info();
    let (what, scanned) = if info.contains("unclosed quote") {
        ("found unexpected end of stream", true)
    } else if info.contains("unexpected character: `\\u{0}'") {
        return "yaml: control characters are not allowed".to_owned();
    } else if info.contains("unexpected character") || info.contains("tabs disallowed") {
        ("found character that cannot start any token", true)
    } else if info.contains("unknown escape character") {
        ("found unknown escape character", true)
    } else if info.contains("mapping values are not allowed") {
        ("mapping values are not allowed in this context", true)
    } else if let Some((_, what)) = info.strip_prefix("while parsing ").and_then(|rest| rest.split_once(", ")) {
        // What the parser misses, it misses behind the line that it names.
        return at_line_before(error.marker().line(), what);
    } else if info.contains("unclosed bracket '{'") {
        ("did not find expected ',' or '}'", false)
    } else if info.contains("unclosed bracket '['") {
        ("did not find expected ',' or ']'", false)
    } else {
        (&*info, true)
    };
    let line = error.marker().line();
    if scanned { at_line(line, what) } else { format!("yaml: line {line}: {what}") }
}

/// Upstream's library does not say so when a mistake is in the first line.
fn at_line(line: usize, what: &str) -> String {
    if line > 1 { format!("yaml: line {line}: {what}") } else { format!("yaml: {what}") }
}

fn at_line_before(line: usize, what: &str) -> String {
    match line.saturating_sub(1) {
        0 => format!("yaml: {what}"),
        line => format!("yaml: line {line}: {what}"),
    }
}

/// A key of a JSON object made from whatever scalar stands there.
fn key_text(key: &Value) -> Result<String, String> {
    match key {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Err("Unsupported map key of type: <nil>".to_owned()),
        Value::Array(_) => Err("yaml: invalid map key: sequence".to_owned()),
        Value::Object(_) => Err("yaml: invalid map key: map".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Decoded, String> {
        decode(text.as_bytes(), Limits::default()).map_err(|error| error.message)
    }

    #[test]
    fn scalars_mean_what_they_meant_in_1_1() {
        for (text, value) in [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("n", json!(false)),
            ("~", json!(null)),
            ("", json!(null)),
            ("'yes'", json!("yes")),
            ("0777", json!(511)),
            ("0o17", json!(15)),
            ("0x1F", json!(31)),
            ("-0b11", json!(-3)),
            ("08", json!(8)),
            ("1_000", json!(1000)),
            ("1e3", json!(1000)),
            ("1.", json!(1)),
            ("1e18", json!(1_000_000_000_000_000_000_i64)),
            ("1e19", json!(10_000_000_000_000_000_000_u64)),
            ("1e1000", json!("1e1000")),
            ("1e+3", json!(1000)),
            ("1.50", json!(1.5)),
            ("8.0", json!(8)),
            (".5", json!(0.5)),
            ("1.2.3", json!("1.2.3")),
            ("2001-01-01", json!("2001-01-01")),
            ("-", json!([null])),
            ("18446744073709551615", json!(18446744073709551615u64)),
            ("!!str 5", json!("5")),
            ("!!int 5", json!(5)),
            ("0755a", json!("0755a")),
            ("+x", json!("+x")),
            ("100m", json!("100m")),
        ] {
            assert_eq!(read(text).map(|decoded| decoded.value), Ok(value), "{text}");
        }
    }

    #[test]
    fn documents_become_json() {
        let decoded = read("---\na: &x {1: yes, true: 2}\nb: *x\nc:\n  <<: *x\n  1: no\nd: |\n  text\n...\n");
        assert_eq!(
            decoded.map(|decoded| decoded.value),
            Ok(
                json!({"a": {"1": true, "true": 2}, "b": {"1": true, "true": 2}, "c": {"1": false, "true": 2}, "d": "text\n"})
            )
        );
        let decoded = read("a: 1\nb: 2\na: 3\n").expect("a document");
        assert_eq!(decoded.value, json!({"a": 3, "b": 2}));
        assert_eq!(decoded.duplicates, ["yaml: unmarshal errors:\n  line 3: key \"a\" already set in map"]);
    }

    #[test]
    fn what_comes_after_the_first_document_is_not_read() {
        assert_eq!(read("a: 1\n---\nb: {\n").map(|decoded| decoded.value), Ok(json!({"a": 1})));
    }

    #[test]
    fn bombs_and_broken_documents_are_refused() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for at in 1..10 {
            let last = format!("*a{}", at - 1);
            bomb.push_str(&format!("a{at}: &a{at} [{}]\n", [last.as_str(); 10].join(",")));
        }
        assert_eq!(
            read(&bomb),
            Err("error converting YAML to JSON: yaml: document contains excessive aliasing".to_owned())
        );
        for (text, why) in [
            ("@foo", "yaml: found character that cannot start any token"),
            ("x: y\nb: @foo", "yaml: line 2: found character that cannot start any token"),
            ("a:\n\tb: c", "yaml: line 2: found character that cannot start any token"),
            ("\"x", "yaml: found unexpected end of stream"),
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("{a: b", "yaml: line 1: did not find expected ',' or '}'"),
            ("a: b\nc: {d: e\nf:\n  g: [\n", "yaml: line 2: did not find expected ',' or '}'"),
            ("\0", "yaml: control characters are not allowed"),
        ] {
            assert_eq!(read(text), Err(format!("error converting YAML to JSON: {why}")), "{text}");
        }
        assert!(read(&"[".repeat(10_000)).is_err());
        assert!(read(&"- ".repeat(10_000)).is_err());
        assert!(read("a: b: c").is_err());
        assert!(read("a: .nan").is_err());
        assert!(read("&a [*a]").is_err());
        assert!(decode(b"\xff\xfe\xff", Limits::default()).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-:#&*!|>'\"%@`{}\\[\\],?a-c0-2 \n\t.~<_e+]{0,40}") {
            let _ = read(&text);
        }
    }
}
