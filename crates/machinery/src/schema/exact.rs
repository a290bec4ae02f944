//! What a type makes of numbers that are more in their text than in a tree: [`exact`].

use facts::{Schema, Type};
use serde_json::Value;

use super::conform::Walk;
use crate::codec::Path;
use crate::codec::numbers::{self, Token, is_out_of_range};

/// Gives the numbers of a text to the tree that was read from it, where the type has a use for them: a quantity is what its text says,
/// whatever fits into a float. Answers with Go's message for the first number that its type cannot hold.
pub fn exact(value: &mut Value, of: &Type, text: &[u8]) -> Result<(), String> {
    let mut frames: Vec<Frame<'_>> = Vec::new();
    let mut expects_key = false;
    for (_, token) in numbers::tokens(text) {
        match token {
            Token::Open { object } => {
                let inside = match frames.last() {
                    None => Inside::Type(of),
                    Some(frame) => frame.child().enter(object),
                };
                let step = if object { Step::Key(String::new()) } else { Step::Index(0) };
                frames.push(Frame { inside, step });
                expects_key = object;
            }
            Token::Close => {
                frames.pop();
                expects_key = false;
            }
            Token::Comma => match frames.last_mut().map(|frame| &mut frame.step) {
                Some(Step::Index(index)) => *index += 1,
                Some(Step::Key(_)) => expects_key = true,
                None => {}
            },
            Token::Text(quoted) if expects_key => {
                if let Some(frame) = frames.last_mut() {
                    frame.step = Step::Key(serde_json::from_slice(quoted).unwrap_or_default());
                }
                expects_key = false;
            }
            Token::Number(number) => settle(value, of, &frames, number)?,
            Token::Text(_) | Token::Other => {}
        }
    }
    Ok(())
}

/// One list or object that is open, and where in it the text has come to.
struct Frame<'t> {
    inside: Inside<'t>,
    step: Step,
}

enum Step {
    Key(String),
    Index(usize),
}

/// What an open list or object is.
#[derive(Clone, Copy)]
enum Inside<'t> {
    Type(&'t Type),
    /// Entries of a map, or items of a list.
    Each(&'t Schema),
    /// Whatever somebody wants to keep.
    Opaque,
    /// Nothing that anybody reads.
    Unknown,
}

/// What a value is.
enum Place<'t> {
    Known(&'t Schema),
    Opaque,
    Unknown,
}

impl<'t> Frame<'t> {
    fn child(&self) -> Place<'t> {
        match (self.inside, &self.step) {
            (Inside::Type(of), Step::Key(key)) => match of.field(key) {
                Some(field) => Place::Known(&field.schema),
                None if of.preserve_unknown => Place::Opaque,
                None => Place::Unknown,
            },
            (Inside::Each(schema), _) => Place::Known(schema),
            (Inside::Opaque, _) => Place::Opaque,
            (Inside::Type(_) | Inside::Unknown, _) => Place::Unknown,
        }
    }
}

impl<'t> Place<'t> {
    fn enter(self, object: bool) -> Inside<'t> {
        match (self, object) {
            (Self::Opaque | Self::Known(Schema::Any(_)), _) => Inside::Opaque,
            (Self::Known(Schema::Map(map)), true) => Inside::Each(&map.values),
            (Self::Known(Schema::Array(list)), false) => Inside::Each(&list.items),
            (Self::Known(schema), true) => schema.object().map_or(Inside::Unknown, Inside::Type),
            _ => Inside::Unknown,
        }
    }
}

fn settle(value: &mut Value, of: &Type, frames: &[Frame<'_>], number: &str) -> Result<(), String> {
    let mismatch = || {
        let walk = Walk { unknown: Vec::new(), root: of, converts: false };
        at(frames, Path::Root, &|path| walk.mismatch(&format!("number {number}"), path))
    };
    match frames.last().map(Frame::child) {
        Some(Place::Known(Schema::Quantity)) => {
            let float = number.parse::<f64>().map(|float| float.clamp(f64::MIN, f64::MAX)).ok();
            // Of a key given twice the tree has the last value.
            if let Some(target) = find(value, frames).filter(|target| target.is_number() && target.as_f64() == float) {
                *target = Value::from(number);
            }
            Ok(())
        }
        Some(Place::Known(Schema::Int32 | Schema::Int64 | Schema::IntOrString)) if number.parse::<i64>().is_err() => {
            Err(mismatch())
        }
        Some(Place::Known(Schema::Double)) if is_out_of_range(number) => Err(mismatch()),
        Some(Place::Opaque | Place::Known(Schema::Any(_))) if is_out_of_range(number) => {
            Err(format!("json: cannot unmarshal number {number} into Go value of type float64"))
        }
        _ => Ok(()),
    }
}

fn find<'v>(value: &'v mut Value, frames: &[Frame<'_>]) -> Option<&'v mut Value> {
    frames.iter().try_fold(value, |value, frame| match &frame.step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    })
}

/// Calls a function with the path that the frames are.
fn at(frames: &[Frame<'_>], path: Path<'_>, then: &dyn Fn(Path<'_>) -> String) -> String {
    let Some((frame, rest)) = frames.split_first() else { return then(path) };
    let next = match (&frame.step, frame.inside) {
        (Step::Index(index), _) => Path::Index(&path, *index),
        (Step::Key(key), Inside::Type(_)) => Path::Key(&path, key),
        (Step::Key(key), _) => Path::Entry(&path, key),
    };
    at(rest, next, then)
}

#[cfg(test)]
mod tests {
    use crate::codec::{decode, decode_typed};
    use crate::schema::conform;
    use crate::value;

    use super::*;

    /// What becomes of a number at a place of a kind, in a text of a media type. Answers of v1.37.
    fn read(media: &str, (version, kind): (&str, &str), text: &str, path: &str) -> Result<String, String> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let of = facts::type_of(group, version, kind).expect("a kind").def();
        let mut decoded = decode_typed(media, text.as_bytes()).map_err(|error| error.message)?;
        if decoded.rounded {
            exact(&mut decoded.value, of, text.as_bytes())?;
        }
        conform(&mut decoded.value, of)?;
        Ok(value::at(&decoded.value, path).map_or_else(String::new, |value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }))
    }

    #[test]
    fn a_quantity_is_what_its_text_says() {
        let read = |media: &str, number: &str| {
            let text = format!(r#"{{"spec": {{"capacity": {{"storage": {number}}}}}}}"#);
            read(media, ("v1", "PersistentVolume"), &text, "spec.capacity.storage").expect(number)
        };
        for (number, of_json, of_yaml) in [
            ("1e1000", "10e999", "10e999"),
            ("-1e1000", "-10e999", "-10e999"),
            ("1e3", "1e3", "1k"),
            ("1.5e3", "1500", "1500"),
            ("0.1e1", "1", "1"),
            ("12345678901234567890", "12345678901234567890", "12345678901234567890"),
            ("123456789012345678901234567890", "123456789012345678901234567890", "123456789012345680e12"),
            ("18446744073709551616", "18446744073709551616", "18446744073709552k"),
            ("1e-1000", "1e-9", "0"),
            ("1e19", "10e18", "10E"),
            ("1e20", "100e18", "100E"),
            ("1.0", "1", "1"),
            ("0.00000000001", "1n", "1e-9"),
            ("1.23456789012345678901234567890", "1234567891n", "1234567891n"),
            ("100000000000000000000", "100E", "100E"),
        ] {
            assert_eq!(read("application/json", number), of_json, "{number} in JSON");
            assert_eq!(read("application/yaml", number), of_yaml, "{number} in YAML");
        }
    }

    #[test]
    fn a_number_that_its_type_cannot_hold_is_shown_as_it_was_sent() {
        let read = |media: &str, number: &str| {
            let text = format!(r#"{{"spec": {{"replicas": {number}}}}}"#);
            read(media, ("apps/v1", "Deployment"), &text, "spec.replicas")
        };
        let refused = |found: &str| {
            let of = "into Go struct field DeploymentSpec.spec.replicas of type int32";
            Err(format!("json: cannot unmarshal {found} {of}"))
        };
        for (number, of_yaml) in [
            ("1e1000", refused("string")),
            ("1e3", Ok("1000".to_owned())),
            ("1.0", Ok("1".to_owned())),
            ("12345678901234567890", refused("number 12345678901234567890")),
            ("123456789012345678901234567890", refused("number 1.2345678901234568e+29")),
            ("18446744073709551616", refused("number 18446744073709552000")),
            ("1e18", refused("number 1000000000000000000")),
            ("1e20", refused("number 100000000000000000000")),
            ("1e21", refused("number 1e+21")),
            ("0.00000000001", refused("number 1e-11")),
        ] {
            assert_eq!(read("application/json", number), refused(&format!("number {number}")), "{number} in JSON");
            assert_eq!(read("application/yaml", number), of_yaml, "{number} in YAML");
        }
        assert_eq!(read("application/json", "2147483647"), Ok("2147483647".to_owned()));
        assert_eq!(read("application/json", "-0"), Ok("0".to_owned()));
        assert_eq!(read("application/json", "-0.0"), refused("number -0.0"));
    }

    #[test]
    fn a_float_that_is_whole_is_written_without_a_fraction() {
        let of = crate::schema::json_schema().expect("the schema of schemas").def();
        let mut schema = serde_json::json!({"minimum": 10.0, "maximum": 0.5, "multipleOf": 1e300});
        conform(&mut schema, of).expect("a schema");
        assert_eq!(schema, serde_json::json!({"minimum": 10, "maximum": 0.5, "multipleOf": 1e300}));
    }

    #[test]
    fn what_nobody_reads_is_whatever_it_is_and_what_is_kept_must_fit() {
        let unknown = r#"{"bogus": {"a": [1e1000]}, "metadata": {"generation": 9223372036854775807}}"#;
        assert_eq!(
            read("application/json", ("v1", "Pod"), unknown, "metadata.generation"),
            Ok("9223372036854775807".to_owned())
        );
        let kept = r#"{"data": {"a": 1e1000}}"#;
        let refused = "json: cannot unmarshal number 1e1000 into Go value of type float64";
        assert_eq!(read("", ("apps/v1", "ControllerRevision"), kept, "data"), Err(refused.to_owned()));
        assert_eq!(decode("", kept.as_bytes()).map_err(|error| error.message), Err(refused.to_owned()));
        // Of a key given twice, the last one counts.
        let twice = r#"{"spec": {"capacity": {"storage": 1e1000, "storage": 5}}}"#;
        assert_eq!(read("", ("v1", "PersistentVolume"), twice, "spec.capacity.storage"), Ok("5".to_owned()));
    }
}
