//! Writes YAML that every reader of either version takes for the same tree: whatever YAML 1.1 would mistake for something
//! else is quoted.

use std::cmp::Ordering;

use serde_json::Value;

use super::scalar::plain;
use crate::value::Object;

/// How long a line may grow before it ends at the next blank.
const WIDTH: usize = 80;

/// Writes one document, in blocks, indented by two, lists flush with their keys.
pub fn encode(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => put_fields(&mut out, fields, 0),
        Value::Array(items) if !items.is_empty() => put_items(&mut out, items, 0),
        // What stands alone has its lines indented all the same, as Go's encoder has it.
        scalar => {
            put_scalar(&mut out, scalar, 1);
            out.push('\n');
        }
    }
    out
}

fn indent(out: &mut String, level: usize) {
    out.extend(std::iter::repeat_n("  ", level));
}

/// The fields of an object, the first one where the pen is, the others on lines of their own.
fn put_fields(out: &mut String, fields: &Object, level: usize) {
    let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| natural(a, b));
    for (at, (key, value)) in sorted.into_iter().enumerate() {
        if at > 0 {
            indent(out, level);
        }
        put_text(out, key, None);
        out.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                out.push('\n');
                indent(out, level + 1);
                put_fields(out, fields, level + 1);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                indent(out, level);
                put_items(out, items, level);
            }
            scalar => {
                out.push(' ');
                put_scalar(out, scalar, level + 1);
                out.push('\n');
            }
        }
    }
}

/// The order in which Go's encoder writes keys: letters after all else, and numbers within them by what they count.
fn natural(a: &str, b: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = left.iter().zip(&right).position(|(a, b)| a != b) else { return left.len().cmp(&right.len()) };
    let (one, other) = (left[at], right[at]);
    match (one.is_alphabetic(), other.is_alphabetic()) {
        (true, true) => return one.cmp(&other),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero within a number is a digit of it; one at its beginning is not.
    let before = left[..at].iter().rev().take_while(|digit| digit.is_ascii_digit());
    let within = (one == '0' || other == '0') && before.into_iter().any(|digit| *digit != '0');
    let count = |digits: &[char]| {
        let digits = digits.iter().map_while(|digit| digit.to_digit(10));
        digits.fold((i64::from(within), 0_usize), |(number, length), digit| {
            (number.wrapping_mul(10).wrapping_add(i64::from(digit)), length + 1)
        })
    };
    count(&left[at..]).cmp(&count(&right[at..])).then(one.cmp(&other))
}

fn put_items(out: &mut String, items: &[Value], level: usize) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            indent(out, level);
        }
        out.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => put_fields(out, fields, level + 1),
            Value::Array(items) if !items.is_empty() => put_items(out, items, level + 1),
            scalar => {
                put_scalar(out, scalar, level + 1);
                out.push('\n');
            }
        }
    }
}

fn put_scalar(out: &mut String, value: &Value, level: usize) {
    match value {
        Value::String(text) => put_text(out, text, Some(level)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        other => out.push_str(&other.to_string()),
    }
}

/// Text in the plainest style that keeps its meaning. Where a level is given, lines may be kept as a block.
fn put_text(out: &mut String, text: &str, level: Option<usize>) {
    if let Some(level) = level.filter(|_| is_block(text)) {
        let body = text.trim_end_matches('\n');
        out.push('|');
        // Where the first line does not show how deep the block is, a number says so.
        if text.starts_with([' ', '\n']) {
            out.push('2');
        }
        out.push_str(match text.len() - body.len() {
            0 => "-",
            1 if !body.is_empty() => "",
            _ => "+",
        });
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            out.push('\n');
            if !line.is_empty() {
                indent(out, level);
                out.push_str(line);
            }
        }
    } else if !is_text(text) || !text.chars().all(is_plain_letter) || (level.is_none() && text == "<<") {
        put_folded(out, &quoted(text), level, Style::Double);
    } else if is_plain(text) {
        put_folded(out, text, level, Style::Plain);
    } else {
        let quoted = format!("'{}'", text.replace('\'', "''"));
        put_folded(out, &quoted, level, Style::Single);
    }
}

/// Text in double quotes. What is not printable is escaped as upstream's library does it.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            '\x1b' => quoted.push_str("\\e"),
            '\u{85}' => quoted.push_str("\\N"),
            '\u{a0}' => quoted.push_str("\\_"),
            '\u{2028}' => quoted.push_str("\\L"),
            '\u{2029}' => quoted.push_str("\\P"),
            plain if is_plain_letter(plain) => quoted.push(plain),
            other => {
                let code = u32::from(other);
                quoted.push_str(&match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                });
            }
        }
    }
    quoted.push('"');
    quoted
}

/// How a scalar is written: that decides at which blanks a line may end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
}

/// Writes a scalar that is ready. A line that has become too long ends at its next single blank, as upstream's do; keys, which
/// have no level, stay on theirs.
fn put_folded(out: &mut String, scalar: &str, level: Option<usize>, style: Style) {
    let before = out.len() - out.rfind('\n').map_or(0, |newline| newline + 1);
    let Some(level) = level.filter(|_| before + scalar.len() > WIDTH && scalar.contains(' ')) else {
        return out.push_str(scalar);
    };
    let mut column = out[out.len() - before..].chars().count();
    // Inside the quotes, where there are some: a blank at either end stays where it is.
    let inner = if style == Style::Plain { 0..scalar.len() } else { 2..scalar.len().saturating_sub(2) };
    let mut blank = false;
    let mut letters = scalar.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let next_blank = letters.peek().is_some_and(|(_, next)| *next == ' ');
        let folds = letter == ' ' && !blank && column > WIDTH && inner.contains(&at);
        blank = letter == ' ';
        if folds && (style == Style::Double || !next_blank) {
            out.push('\n');
            indent(out, level);
            column = 2 * level;
            if next_blank {
                out.push('\\');
                column += 1;
            }
        } else {
            out.push(letter);
            column += 1;
        }
    }
}

/// Whether an unquoted reader would take it for text.
fn is_text(text: &str) -> bool {
    !text.is_empty()
        && matches!(plain(text), Ok(Value::String(_)))
        && !looks_like_a_number(text)
        && !looks_like_a_time(text)
}

/// A date, or a date with a time of day, to readers of YAML 1.1.
fn looks_like_a_time(text: &str) -> bool {
    let digits =
        |part: &str, most: usize| (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    if year.len() != 4 || !digits(year, 4) || !digits(month, 2) || !digits(day, 2) {
        return false;
    }
    let Some(time) = time else { return true };
    let (time, zoned) = match time.strip_suffix('Z') {
        Some(time) => (time, true),
        None => match time.find(['+', '-']) {
            Some(at) => (&time[..at], true),
            None => (time, false),
        },
    };
    let mut parts = time.splitn(3, ':');
    let (hour, minute, second) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    // With a `T` there must be a zone, with a blank there must be none.
    zoned != text.contains(' ') && digits(hour, 2) && digits(minute, 2) && digits(second, 2) && digits(fraction, 9)
}

/// Numbers to some reader: with a bare exponent (`1e3`), or to the base of 60 (`1:30`).
fn looks_like_a_number(text: &str) -> bool {
    text.parse::<f64>().is_ok() || is_sexagesimal(text.strip_prefix(['-', '+']).unwrap_or(text))
}

/// Digits, then groups of up to 59 after colons, then perhaps a fraction.
fn is_sexagesimal(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let (text, fraction) = text.split_once('.').unwrap_or((text, ""));
    let Some((first, groups)) = text.split_once(':') else { return false };
    let starts = first.starts_with(|letter: char| letter.is_ascii_digit()) && digits(first);
    let below_60 = |group: &str| match group.as_bytes() {
        [one] => one.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    };
    starts && digits(fraction) && groups.split(':').all(below_60)
}

fn is_plain_letter(letter: char) -> bool {
    letter == ' '
        || !(letter.is_control()
            || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
            || letter > '\u{ffff}')
}

/// Whether text can stand without quotes.
fn is_plain(text: &str) -> bool {
    let mut letters = text.chars();
    let (first, second) = (letters.next().unwrap_or(' '), letters.next());
    let starts = match first {
        '-' | '?' | ':' => second.is_some_and(|letter| letter != ' '),
        ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' | ' ' => false,
        _ => true,
    };
    starts
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
}

/// Whether text has lines that a block can keep as they are.
fn is_block(text: &str) -> bool {
    let safe = |line: &str| !line.ends_with(' ') && line.chars().all(is_plain_letter);
    text.contains('\n') && text.split('\n').all(safe)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::codec::{Limits, yaml};

    #[test]
    fn trees_are_written_in_blocks() {
        let tree = json!({
            "apiVersion": "v1",
            "data": {"a": "x\ny\n", "b": "x\ny", "c": " x\ny", "on": "yes", "s": "a: b", "t": "it's #1", "u": "#1"},
            "empty": {"l": [], "m": {}, "n": null, "s": ""},
            "list": [{"a": 1, "b": [true, "5", 1.5]}, [[1], []], "1e3", "12:30"],
        });
        assert_eq!(
            encode(&tree),
            "apiVersion: v1\ndata:\n  a: |\n    x\n    y\n  b: |-\n    x\n    y\n  c: |2-\n     x\n    y\n  \"on\": \"yes\"\n  s: 'a: b'\n  t: 'it''s #1'\n  u: '#1'\nempty:\n  l: []\n  m: {}\n  \"n\": null\n  s: \"\"\nlist:\n- a: 1\n  b:\n  - true\n  - \"5\"\n  - 1.5\n- - - 1\n  - []\n- \"1e3\"\n- \"12:30\"\n"
        );
        assert_eq!(encode(&json!("x")), "x\n");
        assert_eq!(encode(&json!("a\nb")), "|-\n  a\n  b\n");
        assert_eq!(encode(&json!("\n{")), "|2-\n\n  {\n");
        assert_eq!(
            encode(&json!(["127.0.0.1:6443", "1:30", "1:70", "-1:2:3.5"])),
            "- 127.0.0.1:6443\n- \"1:30\"\n- 1:70\n- \"-1:2:3.5\"\n"
        );
        let times = json!([
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.000006Z",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01"
        ]);
        assert_eq!(
            encode(&times),
            "- \"2026-01-02T03:04:05Z\"\n- \"2026-01-02T03:04:05.000006Z\"\n- \"2026-01-02\"\n- 2026-01-02T03:04:05\n- 2026-01\n"
        );
        assert_eq!(encode(&json!({})), "{}\n");
    }

    #[test]
    fn keys_are_in_the_order_of_gos_encoder() {
        let keys = ["a", "A", "a10", "a2", "a-b", "a.b", "aB", "a_b", "_u", "1", "a01", "x10y", "x9y", "<<", "="];
        let tree: Value = keys.iter().map(|key| ((*key).to_owned(), json!(0))).collect::<Object>().into();
        let written = encode(&tree);
        let order: Vec<&str> = written.lines().map(|line| line.trim_end_matches(": 0")).collect();
        let expected =
            ["\"<<\"", "=", "_u", "\"1\"", "A", "a", "a-b", "a.b", "a_b", "a01", "a2", "a10", "aB", "x9y", "x10y"];
        assert_eq!(order, expected);
    }

    #[test]
    fn what_is_not_printable_is_escaped() {
        let written = encode(&json!(["a\u{1}\u{1b}\"\\", "a\u{a0}b", "\u{1f600}", "\u{2028}x", "tab\t"]));
        assert_eq!(written, "- \"a\\x01\\e\\\"\\\\\"\n- a\u{a0}b\n- \"\\U0001F600\"\n- \"\\Lx\"\n- \"tab\\t\"\n");
    }

    #[test]
    fn long_lines_end_at_a_blank() {
        let words = |count: usize| vec!["word"; count].join(" ");
        assert_eq!(encode(&json!({"a": words(20)})), format!("a: {}\n  {}\n", words(16), words(4)));
        let marked = format!("#{}", words(20));
        assert_eq!(encode(&json!([{"a": marked}])), format!("- a: '#{}\n    {}'\n", words(15), words(5)));
        let wide = "w".repeat(90);
        assert_eq!(encode(&json!({"a": format!("{wide}\t  x y")})), format!("a: \"{wide}\\t\n  \\ x y\"\n"));
        assert_eq!(encode(&json!({words(20): 1})), format!("{}: 1\n", words(20)));
    }

    fn tree() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[-a-c:#'\"|>&*!%@`{}\\[\\],?~<=.0-9 \n]{0,10}".boxed(),
            ".{0,8}".boxed(),
            "[a-c'\"#\t:]{70,85}( {1,2}[a-c'\t#]{0,9}){0,12}".boxed(),
            prop::sample::select(vec![
                "yes", "null", "0777", "1e3", "~", "-", "---", "a\n\n", "\n", "x \ny", "\u{85}", "1_0"
            ])
            .prop_map(str::to_owned)
            .boxed(),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..4).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_reads_back(value in tree()) {
            let written = encode(&value);
            let read = yaml::decode(written.as_bytes(), Limits::default()).map(|decoded| decoded.value);
            prop_assert_eq!(read, Ok(value), "{}", written);
        }
    }
}
