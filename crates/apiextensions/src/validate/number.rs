//! Limits of numbers. Integers are compared as integers: a limit is read as a float and then cut, as upstream does it.

use machinery::status::FieldError;
use serde_json::{Number, Value};

use super::{Found, limits};
use crate::Schema;

pub(super) fn check(schema: &Schema, number: &Number, path: &str) -> Found {
    let mut found = Found { matches: 1, ..Found::default() };
    let range = Range::of(schema);
    range.check(&mut found, number, "Checked", path);
    let Some(limits) = limits(schema) else { return found };
    if let Some(factor) = limits.multiple_of {
        range.check_limit(&mut found, factor, "MultipleOf", path);
        let text = shown(number, factor);
        // Beside an integer a factor below one is cut to zero.
        if factor <= 0.0 || (number.is_i64() && factor < 1.0) {
            let message = format!("factor MultipleOf declared for {path} must be positive: {text}");
            let shown = if number.is_i64() { Value::from(factor as i64) } else { Value::from(factor) };
            found.add(message.clone(), FieldError::invalid(super::place(path), shown, message));
        } else if !is_multiple(number, factor) {
            found.invalid(path, number.clone(), &format!("should be a multiple of {text}"));
        }
    }
    if let Some(minimum) = limits.minimum {
        range.check_limit(&mut found, minimum, "Minimum boundary", path);
        let (below, equal) = compare(number, minimum);
        if below || (limits.exclusive_minimum && equal) {
            let words = if limits.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            found.invalid(path, number.clone(), &format!("should be {words} {}", shown(number, minimum)));
        }
    }
    if let Some(maximum) = limits.maximum {
        range.check_limit(&mut found, maximum, "Maximum boundary", path);
        let (below, equal) = compare(number, maximum);
        if !(below || equal) || (limits.exclusive_maximum && equal) {
            let words = if limits.exclusive_maximum { "less than" } else { "less than or equal to" };
            found.invalid(path, number.clone(), &format!("should be {words} {}", shown(number, maximum)));
        }
    }
    found
}

/// Whether a number is below a limit, and whether it is the limit.
fn compare(number: &Number, limit: f64) -> (bool, bool) {
    match number.as_i64() {
        Some(number) => (number < limit as i64, number == limit as i64),
        None => {
            let number = number.as_f64().unwrap_or(f64::INFINITY);
            (number < limit, number == limit)
        }
    }
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    match number.as_i64() {
        Some(number) => (factor as i64) > 0 && number % (factor as i64) == 0,
        None => {
            let number = number.as_f64().unwrap_or(f64::INFINITY);
            let times = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
            (times - times.round()).abs() < 1e-9 * times.abs().max(1.0)
        }
    }
}

/// A limit as it is shown beside a number.
fn shown(number: &Number, limit: f64) -> String {
    if number.is_i64() { (limit as i64).to_string() } else { go_float(limit) }
}

/// As Go's `%v` writes a float.
fn go_float(number: f64) -> String {
    let exponent = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    if (-4..21).contains(&exponent) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// What a type and its format can hold.
struct Range<'a> {
    kind: &'static str,
    format: Option<&'a str>,
}

impl<'a> Range<'a> {
    fn of(schema: &'a Schema) -> Self {
        let kind = schema.types.only().filter(|kind| matches!(*kind, "integer" | "number")).unwrap_or_default();
        let format = limits(schema).and_then(|limits| limits.format.as_ref()).map(|format| format.name.as_str());
        Self { kind, format: format.filter(|_| !kind.is_empty()) }
    }

    fn check(&self, found: &mut Found, number: &Number, what: &str, path: &str) {
        let fits = match (self.kind, self.format, number.as_i64()) {
            ("integer", Some("int32"), Some(number)) => i32::try_from(number).is_ok(),
            ("integer", _, Some(_)) => true,
            ("integer", format, None) => whole(number.as_f64().unwrap_or(f64::INFINITY), format == Some("int32")),
            (_, Some("float"), _) => number.as_f64().is_some_and(|number| number.abs() <= f64::from(f32::MAX)),
            _ => true,
        };
        self.report(found, fits, what, path);
    }

    fn check_limit(&self, found: &mut Found, limit: f64, what: &str, path: &str) {
        let fits = match (self.kind, self.format) {
            ("integer", format) => whole(limit, format == Some("int32")),
            (_, Some("float")) => limit.abs() <= f64::from(f32::MAX),
            _ => true,
        };
        self.report(found, fits, what, path);
    }

    fn report(&self, found: &mut Found, fits: bool, what: &str, path: &str) {
        if fits {
            return;
        }
        found.general(match self.format {
            Some(format) => format!("{what} value must be of type {} with format {format} in {path}", self.kind),
            None => format!("{what} value must be of type {} (default format) in {path}", self.kind),
        });
    }
}

/// Whether a float is an integer that fits.
fn whole(number: f64, small: bool) -> bool {
    let most = if small { f64::from(i32::MAX) } else { 9_223_372_036_854_774_784.0 };
    // The least integer of all is a float that is written with other digits, and so it is none that fits.
    let least = if small { f64::from(i32::MIN) } else { -most };
    number == number.trunc() && (least..=most).contains(&number)
}

#[cfg(test)]
mod tests {
    use super::go_float;

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (number, text) in
            [(1.5, "1.5"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (0.00001, "1e-05"), (-2.0, "-2")]
        {
            assert_eq!(go_float(number), text);
        }
    }
}
