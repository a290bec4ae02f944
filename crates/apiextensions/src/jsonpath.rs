//! Paths into objects, in the dialect that `kubectl` and printer columns share.
//!
//! A path is read once and asked often: fields, indices, slices, filters, unions, wildcards and descent. What is not there gives no result; a step
//! that does not fit what it meets (an index into a text) is an error, for which a column shows nothing.

use std::borrow::Cow;

use machinery::Value;
use serde_json::json;

/// Longer paths are refused, so that none nests deeply.
const MAX_LENGTH: usize = 4096;
/// How many filters and unions may be in each other.
const MAX_DEPTH: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// From, to and step; a single index is a slice of one.
    Slice(Option<i64>, Option<i64>, Option<i64>),
    Index(i64),
    Filter(Vec<Step>, Option<(Compare, Vec<Step>)>),
    Union(Vec<Vec<Step>>),
    Wildcard,
    Descent,
    /// A value instead of a place.
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Compare {
    Less,
    Greater,
    Equal,
    NotEqual,
    LessEqual,
    GreaterEqual,
}

/// The results of a step, or nothing where it does not fit.
type Found<'a> = Option<Vec<Cow<'a, Value>>>;

impl JsonPath {
    /// Reads a path such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() <= MAX_LENGTH).then_some(())?;
        Some(Self { steps: parse(text, 0)? })
    }

    /// The first value at the path.
    pub fn first<'a>(&self, root: &'a Value) -> Option<Cow<'a, Value>> {
        walk(&self.steps, vec![Cow::Borrowed(root)])?.into_iter().next()
    }
}

/// Whether a character ends the name of a field.
fn ends_field(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn parse(text: &str, depth: usize) -> Option<Vec<Step>> {
    (depth <= MAX_DEPTH).then_some(())?;
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("[?(") {
            let (inside, after) = filter_text(after)?;
            steps.push(filter(inside, depth)?);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("..") {
            (steps.last() != Some(&Step::Descent)).then_some(())?;
            steps.push(Step::Descent);
            rest = after;
            if rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                rest = field(rest, &mut steps);
            }
        } else {
            match first {
                ' ' | '@' | '$' => rest = &rest[1..],
                '.' => rest = field(&rest[1..], &mut steps),
                '[' => {
                    let end = rest.find(']')?;
                    array(&rest[1..end], &mut steps, depth)?;
                    rest = &rest[end + 1..];
                }
                '"' | '\'' => {
                    let (text, after) = quoted(rest, first)?;
                    steps.push(Step::Literal(Value::String(text)));
                    rest = after;
                }
                '+' | '-' | '0'..='9' => {
                    let end = 1 + rest[1..].find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len() - 1);
                    let number = &rest[..end];
                    let whole = number.parse::<i64>().ok().map(|whole| json!(whole));
                    steps.push(Step::Literal(whole.or_else(|| number.parse::<f64>().ok().map(|real| json!(real)))?));
                    rest = &rest[end..];
                }
                _ => {
                    let end = rest.find(ends_field).unwrap_or(rest.len());
                    steps.push(Step::Literal(Value::Bool(rest[..end].parse().ok()?)));
                    rest = &rest[end..];
                }
            }
        }
    }
    Some(steps)
}

/// Reads the name of a field and answers what follows it.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (mut name, mut characters) = (String::new(), text.char_indices());
    let mut end = text.len();
    while let Some((at, c)) = characters.next() {
        if c == '\\' {
            name.extend(characters.next().map(|(_, escaped)| escaped));
        } else if ends_field(c) {
            end = at;
            break;
        } else {
            name.push(c);
        }
    }
    steps.push(if &text[..end] == "*" { Step::Wildcard } else { Step::Field(name) });
    &text[end..]
}

/// A text in quotes, and what follows it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut characters = text[1..].char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\n' => return None,
            '\\' => out.push(match characters.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            }),
            c if c == quote => return Some((out, &text[at + 2..])),
            c => out.push(c),
        }
    }
    None
}

/// What is inside a filter, and what follows it. A bracket within quotes does not end it.
fn filter_text(text: &str) -> Option<(&str, &str)> {
    let (mut pair, mut open, mut before) = (None, false, '\0');
    for (at, c) in text.char_indices() {
        match c {
            '\n' => return None,
            '"' | '\'' if pair.is_none() => (pair, open) = (Some(c), true),
            c if pair == Some(c) && before != '\\' => open = false,
            ')' if !open => return Some((&text[..at], text[at + 1..].strip_prefix(']')?)),
            _ => {}
        }
        before = c;
    }
    None
}

fn filter(text: &str, depth: usize) -> Option<Step> {
    let Some(at) = text.find(['!', '<', '>', '=']).filter(|at| *at > 0) else {
        return Some(Step::Filter(parse(text, depth + 1)?, None));
    };
    let end = at + text[at..].find(|c| !matches!(c, '!' | '<' | '>' | '=')).filter(|length| *length > 0)?;
    let compare = match &text[at..end] {
        "<" => Compare::Less,
        ">" => Compare::Greater,
        "==" => Compare::Equal,
        "!=" => Compare::NotEqual,
        "<=" => Compare::LessEqual,
        ">=" => Compare::GreaterEqual,
        _ => return None,
    };
    Some(Step::Filter(parse(&text[..at], depth + 1)?, Some((compare, parse(&text[end..], depth + 1)?))))
}

fn array(text: &str, steps: &mut Vec<Step>, depth: usize) -> Option<()> {
    if text == "*" {
        steps.push(Step::Slice(None, None, None));
        return Some(());
    }
    if text.contains(',') {
        let each = text.split(',').map(|part| parse(&format!("[{}]", part.trim_matches(' ')), depth + 1));
        steps.push(Step::Union(each.collect::<Option<_>>()?));
        return Some(());
    }
    if let Some(key) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        steps.extend(parse(&format!(".{key}"), depth + 1)?);
        return Some(());
    }
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse::<i64>().ok().map(Some) };
    let mut parts = text.split(':');
    let first = number(parts.next()?)?;
    steps.push(match (parts.next(), parts.next(), parts.next()) {
        (None, None, None) => Step::Index(first?),
        (Some(to), step, None) => Step::Slice(first, number(to)?, number(step.unwrap_or_default())?),
        _ => return None,
    });
    Some(())
}

fn walk<'a>(steps: &[Step], mut current: Vec<Cow<'a, Value>>) -> Found<'a> {
    for step in steps {
        let mut next = Vec::new();
        match step {
            Step::Literal(value) => next = current.iter().map(|_| Cow::Owned(value.clone())).collect(),
            Step::Union(all) => {
                for steps in all {
                    next.extend(walk(steps, current.clone())?);
                }
            }
            Step::Field(name) => next.extend(current.into_iter().filter_map(|value| below(value, |v| v.get(name)))),
            Step::Wildcard => current.into_iter().for_each(|value| next.extend(children(value))),
            Step::Descent => current.into_iter().for_each(|value| descend(value, &mut next)),
            Step::Index(index) => each_list(current, |items| {
                let at = if *index < 0 { index + items.len() as i64 } else { *index };
                next.push(usize::try_from(at).ok().and_then(|at| items.get(at).cloned())?);
                Some(())
            })?,
            Step::Slice(from, to, step) => each_list(current, |items| {
                let length = items.len() as i64;
                let place = |given: i64| if given < 0 { given + length } else { given };
                let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(length)));
                if from == to {
                    return Some(());
                }
                let fits = 0 <= from && from < length && from < to && to <= length;
                let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0 && fits)?;
                next.extend(items[from as usize..to as usize].iter().step_by(step).cloned());
                Some(())
            })?,
            Step::Filter(left, compare) => each_list(current, |items| {
                for item in items {
                    if passes(&item, left, compare.as_ref())? {
                        next.push(item);
                    }
                }
                Some(())
            })?,
        }
        current = next;
    }
    Some(current)
}

fn passes(item: &Value, left: &[Step], compare: Option<&(Compare, Vec<Step>)>) -> Option<bool> {
    let lefts = walk(left, vec![Cow::Borrowed(item)]);
    let Some((compare, right)) = compare else { return Some(lefts.is_some_and(|lefts| !lefts.is_empty())) };
    let (lefts, rights) = (lefts?, walk(right, vec![Cow::Borrowed(item)])?);
    match (lefts.as_slice(), rights.as_slice()) {
        ([], _) | (_, []) => Some(false),
        ([left], [right]) => {
            let order = match (&**left, &**right) {
                (Value::String(left), Value::String(right)) => left.cmp(right),
                (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
                (Value::Bool(left), Value::Bool(right)) if matches!(compare, Compare::Equal | Compare::NotEqual) => {
                    left.cmp(right)
                }
                _ => return None,
            };
            Some(match compare {
                Compare::Less => order.is_lt(),
                Compare::Greater => order.is_gt(),
                Compare::Equal => order.is_eq(),
                Compare::NotEqual => order.is_ne(),
                Compare::LessEqual => order.is_le(),
                Compare::GreaterEqual => order.is_ge(),
            })
        }
        _ => None,
    }
}

fn below<'a>(value: Cow<'a, Value>, get: impl Fn(&Value) -> Option<&Value>) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => get(value).map(Cow::Borrowed),
        Cow::Owned(value) => get(&value).cloned().map(Cow::Owned),
    }
}

fn children(value: Cow<'_, Value>) -> Vec<Cow<'_, Value>> {
    match value {
        Cow::Borrowed(Value::Object(fields)) => fields.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Object(fields)) => fields.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        _ => Vec::new(),
    }
}

/// A container, and all containers in it.
fn descend<'a>(value: Cow<'a, Value>, out: &mut Vec<Cow<'a, Value>>) {
    let below = children(value.clone());
    if !below.is_empty() {
        out.push(value);
        below.into_iter().for_each(|value| descend(value, out));
    }
}

/// Acts on each list. Null is passed over; anything else does not fit.
fn each_list<'a>(values: Vec<Cow<'a, Value>>, mut act: impl FnMut(Vec<Cow<'a, Value>>) -> Option<()>) -> Option<()> {
    for value in values {
        match &*value {
            Value::Null => {}
            Value::Array(_) => act(children(value))?,
            _ => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_finds_first() {
        let object = json!({
            "spec": {"replicas": 3, "list": [{"a": 1}, {"a": 2}, {"a": 3}], "a.b": "dotted", "text": "x"},
            "status": {"conditions": [
                {"type": "Synced", "status": "False", "count": 1},
                {"type": "Ready", "status": "True", "count": 7, "message": "(all) good"},
            ]},
        });
        let check = |path: &str, expect: Value| {
            let found = JsonPath::parse(path).expect("a path").first(&object).map(Cow::into_owned);
            assert_eq!(found.unwrap_or(Value::Null), expect, "{path}");
        };
        check(".spec.replicas", json!(3));
        check(".spec.missing.deeper", Value::Null);
        check("$.spec.replicas", json!(3));
        check(".spec.a\\.b", json!("dotted"));
        check(".spec['replicas']", json!(3));
        check(".spec.list[0].a", json!(1));
        check(".spec.list[-1].a", json!(3));
        check(".spec.list[7].a", Value::Null);
        check(".spec.list[1:].a", json!(2));
        check(".spec.list[*].a", json!(1));
        check(".spec.list[2,0].a", json!(3));
        check(".spec.text[0]", Value::Null);
        check(".status.conditions[?(@.type==\"Ready\")].status", json!("True"));
        check(".status.conditions[?(@.type=='Ready')].message", json!("(all) good"));
        check(".status.conditions[?(@.message==\"(all) good\")].count", json!(7));
        check(".status.conditions[?(@.count>1)].type", json!("Ready"));
        check(".status.conditions[?(@.type!=\"Synced\")].type", json!("Ready"));
        check(".status.conditions[?(@.message)].type", json!("Ready"));
        check("..count", json!(1));
    }

    #[test]
    fn what_is_no_path() {
        for path in [".spec[", ".a[?(@.b==1)", "....a", ".a[x]", "nonsense", ".a[1:2:3:4]"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
        let deep = format!("{}{}", "[?(@.a".repeat(400), ")]".repeat(400));
        assert_eq!(JsonPath::parse(&deep), None);
    }
}
