//! The Prometheus text format.

use std::fmt::Write as _;

use jiff::Timestamp;

/// A text that grows by families of samples.
#[derive(Debug, Default)]
pub struct Text {
    out: String,
    name: &'static str,
}

impl Text {
    /// Begins a family.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        self.name = name;
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// Adds a sample to the family begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64, time: Option<Timestamp>) {
        self.out.push_str(self.name);
        for (position, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{label}=\"{}\"", if position == 0 { '{' } else { ',' }, Escaped(value));
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = write!(self.out, " {}", figures::number(value));
        if let Some(time) = time {
            let _ = write!(self.out, " {}", time.as_millisecond());
        }
        self.out.push('\n');
    }

    /// Where others append what is in the format already.
    pub fn raw(&mut self) -> &mut String {
        &mut self.out
    }

    /// The text.
    pub fn finish(self) -> String {
        self.out
    }
}

struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_written_as_the_format_wants() {
        let mut text = Text::default();
        text.family("a_total", "counter", "Things.").sample(&[("x", "1"), ("y", "q\"\\\n")], 2.5, None);
        text.sample(&[], 3.0, Timestamp::from_millisecond(1500).ok());
        let expect =
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\",y=\"q\\\"\\\\\\n\"} 2.5\na_total 3 1500\n";
        assert_eq!(text.finish(), expect);
    }
}
