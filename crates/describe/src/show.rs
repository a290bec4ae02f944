//! Pieces that descriptions of many kinds have in common: labels, times, quantities, and values as Go prints them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use machinery::quantity::Quantity;
use machinery::selector::label::LabelSelector;
use machinery::{Value, duration, time, value};
use rules::owners;

use crate::read::{self, Answers};
use crate::writer::{Writer, put};
use crate::{Error, Read, events};

/// What the user chose, and what the text depends on besides objects.
#[derive(Debug, Clone)]
pub struct Settings {
    pub show_events: bool,
    /// Ages are counted up to here.
    pub now: Timestamp,
    /// Times of day are shown in this zone.
    pub zone: TimeZone,
}

/// What one description is made from.
pub struct Scene<'a> {
    pub object: &'a Value,
    pub answers: &'a Answers,
    pub settings: &'a Settings,
}

impl<'a> Scene<'a> {
    pub fn text(&self, path: &str) -> &'a str {
        value::text(self.object, path)
    }

    /// The number at a path; absent is 0, as in Go.
    pub fn int(&self, path: &str) -> i64 {
        int(self.object, path)
    }

    pub fn list(&self, path: &str) -> &'a [Value] {
        value::list(self.object, path)
    }

    /// What is at a path, unless it is null.
    pub fn at(&self, path: &str) -> Option<&'a Value> {
        at(self.object, path)
    }

    pub fn name(&self, out: &mut Writer) {
        out.field(0, "Name", self.text("metadata.name"));
    }

    pub fn namespace(&self, out: &mut Writer) {
        out.field(0, "Namespace", self.text("metadata.namespace"));
    }

    pub fn labels(&self, out: &mut Writer) {
        labels(out, "", "Labels", self.at("metadata.labels"));
    }

    pub fn annotations(&self, out: &mut Writer) {
        annotations(out, "Annotations", self.at("metadata.annotations"));
    }

    pub fn controlled_by(&self, out: &mut Writer) {
        if let Some(owner) = owners::controller_in(self.object) {
            let (kind, name) = (value::text(owner, "kind"), value::text(owner, "name"));
            out.field(0, "Controlled By", format_args!("{kind}/{name}"));
        }
    }

    pub fn created(&self, out: &mut Writer) {
        out.field(0, "CreationTimestamp", self.date(self.object, "metadata.creationTimestamp"));
    }

    /// The events that a read brought, unless the user does not want any.
    pub fn events_of(&self, out: &mut Writer, reads: &[Read]) {
        if !self.settings.show_events {
            return;
        }
        let all = reads.iter().filter_map(|read| self.answers.items(read)).flatten().collect();
        events::write(out, all, self.settings.now);
    }

    /// The events about the object.
    pub fn events(&self, out: &mut Writer) {
        self.events_of(out, &[read::events(self.object)]);
    }

    /// A time of day in the form of mail headers; absent is the first day of Go's calendar.
    pub fn date(&self, of: &Value, path: &str) -> String {
        let Some(at) = time::parse_clamped(value::text(of, path)) else {
            return "Mon, 01 Jan 0001 00:00:00 +0000".to_owned();
        };
        at.to_zoned(self.settings.zone.clone()).strftime("%a, %d %b %Y %H:%M:%S %z").to_string()
    }

    /// How long ago a time was.
    pub fn since(&self, of: &Value, path: &str) -> String {
        since(of, path, self.settings.now)
    }
}

pub fn since(of: &Value, path: &str, now: Timestamp) -> String {
    let Some(then) = time::parse_clamped(value::text(of, path)) else { return "<unknown>".to_owned() };
    duration::human(now.duration_since(then).as_secs())
}

pub fn at<'a>(of: &'a Value, path: &str) -> Option<&'a Value> {
    value::at(of, path).filter(|found| !found.is_null())
}

pub fn int(of: &Value, path: &str) -> i64 {
    value::int(of, path).unwrap_or(0)
}

/// A number, a truth or a text as Go's `%v` prints it; absent is what the caller says.
pub fn or(of: &Value, path: &str, absent: &str) -> String {
    at(of, path).map_or_else(|| absent.to_owned(), plain)
}

/// A text, or a word where there is none.
pub fn text_or<'a>(text: &'a str, absent: &'a str) -> &'a str {
    if text.is_empty() { absent } else { text }
}

/// A scalar as Go's `%v` prints it.
pub fn plain(of: &Value) -> String {
    match of {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => float(number.as_f64().unwrap_or_default()),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut pairs: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            pairs.sort_unstable();
            format!("map[{}]", pairs.join(" "))
        }
        other => other.to_string(),
    }
}

/// A floating-point number as Go's `%v` prints it: with an exponent where it is very large or very small.
fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(0);
    if (-4..21).contains(&exponent) {
        return format!("{number}");
    }
    let mantissa = scientific.split_once('e').map_or("0", |(mantissa, _)| mantissa);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// A list of texts as Go's `%v` prints it.
pub fn bracketed(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" "))
}

/// A map of texts as Go's `%v` prints it.
pub fn mapped(map: Option<&Value>) -> String {
    format!("map[{}]", pairs(map).iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<_>>().join(" "))
}

/// The texts of a list, joined.
pub fn joined(items: &[Value], between: &str) -> String {
    items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(between)
}

/// A quantity in its canonical form; absent is nothing.
pub fn quantity(of: Option<&Value>) -> Quantity {
    of.and_then(Quantity::from_value).and_then(Result::ok).unwrap_or(Quantity::ZERO)
}

/// A truth as a word of its own.
pub fn truth(of: Option<&Value>) -> &'static str {
    match of.and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}

/// The entries of a map of texts, sorted by key.
pub fn pairs(map: Option<&Value>) -> Vec<(&str, &str)> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    let mut pairs: Vec<(&str, &str)> =
        entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
    pairs.sort_unstable();
    pairs
}

/// Labels on one line.
pub fn format_labels(map: Option<&Value>) -> String {
    let all: Vec<String> = pairs(map).iter().map(|(key, value)| format!("{key}={value}")).collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(",") }
}

/// A label selector, as upstream's checks understand it.
pub fn selector(of: &Value, path: &str) -> Result<LabelSelector, Error> {
    LabelSelector::from_value(value::at(of, path).unwrap_or(&Value::Null)).map_err(Error::Selector)
}

/// A label selector in the form that command lines take.
pub fn format_selector(of: &Value) -> String {
    match LabelSelector::from_value(of) {
        Err(_) => "<error>".to_owned(),
        Ok(selector) => text_or(&selector.to_string(), "<none>").to_owned(),
    }
}

/// A title, and items below each other in the column beside it.
pub fn multiline(out: &mut Writer, indent: &str, title: &str, items: &[String]) {
    put!(out, 0, "{indent}{title}:\t");
    if items.is_empty() {
        return out.line("<none>");
    }
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            put!(out, 0, "{indent}");
            put!(out, 0, "\t");
        }
        put!(out, 0, "{item}\n");
    }
}

pub fn labels(out: &mut Writer, indent: &str, title: &str, map: Option<&Value>) {
    let items: Vec<String> = pairs(map).iter().map(|(key, value)| format!("{key}={value}")).collect();
    multiline(out, indent, title, &items);
}

/// Annotations longer than this have lines of their own, and those are cut.
pub const LONGEST: usize = 140;

/// What kubectl itself writes, and nobody wants to read.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub fn annotations(out: &mut Writer, title: &str, map: Option<&Value>) {
    put!(out, 0, "{title}:\t");
    let shown: Vec<(&str, &str)> = pairs(map).into_iter().filter(|(key, _)| *key != LAST_APPLIED).collect();
    if shown.is_empty() {
        return out.line("<none>");
    }
    for (at, (key, value)) in shown.into_iter().enumerate() {
        if at > 0 {
            put!(out, 0, "\t");
        }
        let value = value.strip_suffix('\n').unwrap_or(value);
        if value.len() + key.len() + 2 <= LONGEST && !value.contains('\n') {
            put!(out, 0, "{key}: {value}\n");
            continue;
        }
        put!(out, 0, "{key}:\n");
        for line in value.split('\n') {
            put!(out, 0, "\t  {}\n", shorten(line, LONGEST - 2));
        }
    }
}

/// At most so many bytes of a text, and dots where there are more.
pub fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}

/// The columns of conditions that say since when they are so.
pub const CONDITIONS: [(&str, &str); 5] = [
    ("Type", "type"),
    ("Status", "status"),
    ("LastTransitionTime", "lastTransitionTime"),
    ("Reason", "reason"),
    ("Message", "message"),
];

/// The conditions of an object as a table: a field of each condition per column, dates where the column is a time.
pub fn conditions(scene: &Scene<'_>, out: &mut Writer, columns: &[(&str, &str)], between: &str) {
    let conditions = scene.list("status.conditions");
    if conditions.is_empty() {
        return;
    }
    put!(out, 0, "Conditions:\n");
    let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    put!(out, 1, "{}\n", titles.join("\t"));
    // Below this title upstream has the dashes of another.
    let dashes = |title: &&str| "-".repeat(if *title == "LastProbeTime" { 17 } else { title.len() });
    put!(out, 1, "{}\n", titles.iter().map(dashes).collect::<Vec<_>>().join("\t"));
    for condition in conditions {
        let cells: Vec<String> = columns
            .iter()
            .map(|(_, field)| match field.ends_with("Time") {
                true => scene.date(condition, field),
                false => value::text(condition, field).to_owned(),
            })
            .collect();
        put!(out, 1, "{}\n", cells.join(between));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_are_printed_as_go_prints_them() {
        for (value, expect) in [
            (json!(null), "<nil>"),
            (json!(true), "true"),
            (json!(3), "3"),
            (json!(1.5), "1.5"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(0.00001), "1e-05"),
            (json!(["a", 1]), "[a 1]"),
            (json!({"b": 1, "a": {"c": null}}), "map[a:map[c:<nil>] b:1]"),
        ] {
            assert_eq!(plain(&value), expect, "{value}");
        }
    }

    #[test]
    fn long_and_multi_line_annotations_have_lines_of_their_own() {
        let map = json!({"a": "b\n", "long": "x".repeat(150), LAST_APPLIED: "{}", "lines": "c\nd"});
        let mut out = Writer::default();
        annotations(&mut out, "Annotations", Some(&map));
        let cut = "x".repeat(138);
        let expect = format!(
            "Annotations:  a: b\n              lines:\n                c\n                d\n              long:\n                {cut}...\n"
        );
        assert_eq!(out.finish(), expect);
        assert_eq!(shorten("ää", 3), "ä...");
    }
}
