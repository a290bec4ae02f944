//! Objects that are fine but for a few odd values, on the way that one takes from a request to whoever computes something of it: the rules
//! of its kind, the structs of our clients, sums for quotas and nodes, the cells of a table. With a whole cluster the test `poison` of
//! `trireme` does it, field by field.

use std::process::ExitCode;
use std::sync::Arc;

use fuzz::body::{MEDIA, swallow};
use jiff::Timestamp;
use kinds::table::Tables;
use machinery::object::{Draft, FieldPaths};
use machinery::query::Query;
use machinery::{Value, schema, value};
use rules::pod_resources::{self, Side};
use serde_json::json;

/// Choices, made by bytes. Where there are no more, they are all the first.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % end.max(1)
    }

    fn text(&mut self) -> String {
        let length = usize::from(self.byte()).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

/// A value that hardly anybody expects.
fn odd(choices: &mut Choices<'_>) -> Value {
    match choices.byte() % 24 {
        0 => Value::Null,
        1 => json!(""),
        2 => json!([]),
        3 => json!({}),
        4 => json!([null]),
        5 => json!({"": null}),
        6 => json!(i64::MAX),
        7 => json!(i64::MIN),
        8 => json!(u64::MAX),
        9 => json!(-1),
        10 => json!(1.0e308),
        11 => json!(true),
        12 => json!("0001-01-01T00:00:00Z"),
        13 => json!("9999-12-31T23:59:59Z"),
        14 => json!("9223372036854775807Ei"),
        15 => json!("1e1000"),
        16 => json!("-1n"),
        17 => json!("100%"),
        18 => json!("x".repeat(70_000)),
        19 => json!(i32::MIN),
        20 => json!("\u{0}"),
        21 => json!([{}]),
        22 => json!(choices.below(70_000)),
        _ => json!(choices.text()),
    }
}

/// Every place in an object but what says what it is.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    let mut step = |key: &str, value: &Value| {
        let path = format!("{here}/{}", key.replace('~', "~0").replace('/', "~1"));
        if !matches!(path.as_str(), "/apiVersion" | "/kind") {
            found.push(path.clone());
        }
        places(value, &path, found);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| step(key, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, item)| step(&at.to_string(), item)),
        _ => {}
    }
}

/// An object with a status and all other fields that its type has, as far as they are objects.
fn spoiled(sample: &Value, choices: &mut Choices<'_>) -> Option<(&'static facts::Resource, Value)> {
    let (group, version) = value::text(sample, "apiVersion").rsplit_once('/').unwrap_or(("", "v1"));
    let facts = facts::kind(group, version, value::text(sample, "kind"))?;
    let of = facts.ty?.def();
    let mut object = sample.clone();
    for _ in 0..=choices.below(4) {
        // A field that the sample does not have, or one that it has.
        if choices.byte().is_multiple_of(2) {
            let part = ["metadata", "spec", "status"][choices.below(3)];
            let fields = of.field(part).and_then(|field| field.schema.object()).map(facts::Type::fields);
            if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
                let name = fields[choices.below(fields.len())].name.to_string();
                value::set(&mut object, &format!("{part}.{name}"), odd(choices));
            }
        } else {
            let mut found = Vec::new();
            places(&object, "", &mut found);
            let place = found.get(choices.below(found.len())).and_then(|path| object.pointer_mut(path));
            if let Some(place) = place {
                *place = odd(choices);
            }
        }
    }
    Some((facts, object))
}

/// What parts compute of an object as it is stored.
fn compute(facts: &facts::Resource, object: &Value) {
    let now = Timestamp::UNIX_EPOCH;
    let counted = rules::quota::Counted::of(&facts.group, &facts.plural);
    counted.usage(object, now);
    counted.missing(object, &["requests.cpu".to_owned(), "limits.memory".to_owned()]);
    if facts.kind == "Pod" {
        rules::qos::class_in(object);
        rules::quota::charged_until(object);
        for side in [Side::Requests, Side::Limits] {
            pod_resources::of_pod(object, side);
            pod_resources::charged(object, side);
            pod_resources::held(object, side);
        }
    }
    if let Ok(draft) = Draft::new(object, &FieldPaths::new(&[])) {
        let rows = [Arc::new(draft.at_revision(1))];
        Tables::named(&facts.api_version(), &facts.kind).table(&rows, &Query::parse(""), &Value::Null, now);
    }
}

fn main() -> ExitCode {
    let samples = fuzz::samples();
    let inputs = (0..=255_u8).map(|first| (0..32).map(|at| first.wrapping_mul(31).wrapping_add(at * 7)).collect());
    fuzz::run("poison", inputs.collect(), |bytes| {
        let mut choices = Choices(bytes);
        let sample = &samples[choices.below(samples.len())];
        let Some((facts, mut object)) = spoiled(sample, &mut choices) else { return 0 };
        swallow(MEDIA[0], object.to_string().as_bytes());
        let Some(of) = facts.ty.map(|of| of.def()) else { return 0 };
        if schema::conform(&mut object, of).is_err() {
            return 1;
        }
        schema::default(&mut object, of);
        schema::complete(&mut object, of);
        compute(facts, &object);
        2
    })
}
