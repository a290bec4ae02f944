//! Prometheus' text form, byte for byte as Go's client writes it.

use std::fmt::{self, Display, Write as _};

use super::Distribution;

/// What comes before the series of a name. `help` begins with the stability that upstream gives it.
pub(crate) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", Escaped { value: help, quotes: false });
}

/// One series: a name, its labels without braces, its value.
pub(crate) fn series(text: &mut String, name: &str, labels: &str, value: f64) {
    let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
    let _ = writeln!(text, "{name}{open}{labels}{close} {}", number(value));
}

/// `code="200",host="a"`.
pub(crate) fn labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"{}\"", Escaped { value, quotes: true });
    }
    text
}

/// One family under the pen of somebody who keeps its figures elsewhere: the head is written, samples follow.
#[derive(Debug)]
pub struct Samples<'a> {
    text: &'a mut String,
    name: &'a str,
}

pub fn samples<'a>(text: &'a mut String, name: &'a str, kind: &str, help: &str) -> Samples<'a> {
    head(text, name, kind, help);
    Samples { text, name }
}

impl Samples<'_> {
    pub fn add(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.add_at(labels, value, None)
    }

    /// One more, taken at a time of its own, in milliseconds since 1970.
    pub fn add_at(&mut self, labels: &[(&str, &str)], value: f64, time: Option<i64>) -> &mut Self {
        let labels = self::labels(labels.iter().copied());
        series(self.text, self.name, &labels, value);
        if let Some(time) = time {
            // Before the end of the line that was just written.
            self.text.pop();
            let _ = writeln!(self.text, " {time}");
        }
        self
    }

    /// The series of one distribution.
    pub fn distribution(&mut self, labels: &[(&str, &str)], distribution: &Distribution) -> &mut Self {
        distribution.write(self.text, self.name, &self::labels(labels.iter().copied()));
        self
    }
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
    use crate::Buckets;

    #[test]
    fn samples_are_written_as_the_format_wants() {
        let mut text = String::new();
        samples(&mut text, "a_total", "counter", "Things.").add(&[("x", "1"), ("y", "q\"\\\n")], 2.5).add_at(
            &[],
            3.0,
            Some(1500),
        );
        let mut times = Distribution::new(Buckets::At(&[0.5]));
        times.observe(0.25);
        samples(&mut text, "b", "histogram", "Times.").distribution(&[("x", "1")], &times);
        let expect = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\",y=\"q\\\"\\\\\\n\"} 2.5\na_total 3 1500\n\
            # HELP b Times.\n# TYPE b histogram\nb_bucket{x=\"1\",le=\"0.5\"} 1\nb_bucket{x=\"1\",le=\"+Inf\"} 1\nb_sum{x=\"1\"} 0.25\nb_count{x=\"1\"} 1\n";
        assert_eq!(text, expect);
    }

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
