//! Prometheus' text form, byte for byte as Go's client writes it.

use std::fmt::{self, Display, Write as _};

/// What comes before the series of a name. `help` begins with the stability that upstream gives it.
pub fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", Escaped { value: help, quotes: false });
}

/// One series: a name, its labels without braces, its value.
pub fn series(text: &mut String, name: &str, labels: &str, value: f64) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let _ = writeln!(text, "{name}{open}{labels}{close} {}", number(value));
}

/// `code="200",host="a"`.
pub(crate) fn labels(names: &[&str], values: &[String]) -> String {
    let mut text = String::new();
    for (name, value) in names.iter().zip(values) {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"{}\"", Escaped { value, quotes: true });
    }
    text
}

/// A number as Go's shortest form has it: an exponent of at least two digits below 1e-4 and from a million on, none between.
pub fn number(value: f64) -> impl Display {
    Number(value)
}

struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_nan() {
            return f.write_str("NaN");
        }
        if self.0.is_infinite() {
            return f.write_str(if self.0 > 0.0 { "+Inf" } else { "-Inf" });
        }
        let scientific = format!("{:e}", self.0);
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        if (-4..6).contains(&exponent) {
            return write!(f, "{}", self.0);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(f, "{digits}e{sign}{:02}", exponent.abs())
    }
}

/// A text with what would end its line or its quotes escaped.
struct Escaped<'a> {
    value: &'a str,
    quotes: bool,
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.value.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.quotes => f.write_str("\\\"")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (3.0, "3"),
            (0.005, "0.005"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value).to_string(), expected);
        }
    }
}
