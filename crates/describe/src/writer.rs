//! What describers write to: text at a level, two spaces for each.

use std::fmt::{self, Display};

use crate::tabs::{Tabs, align};

/// Tab stops of descriptions.
const TABS: Tabs = Tabs { min_width: 0, padding: 2 };

#[derive(Default)]
pub struct Writer {
    done: String,
    /// Text whose columns may still grow.
    open: String,
    /// Levels that are added to every piece of text.
    nested: usize,
}

impl Writer {
    /// A piece of text. The indentation is before the piece, wherever in a line it begins.
    pub fn write(&mut self, level: usize, text: fmt::Arguments<'_>) {
        let prefix = "  ".repeat(level + self.nested);
        self.open.push_str(&prefix);
        match text.as_str() {
            Some(text) => escape(&mut self.open, text),
            None => escape(&mut self.open, &text.to_string()),
        }
    }

    /// `name:`, a tab, a value, and the end of the line.
    pub fn field(&mut self, level: usize, name: &str, value: impl Display) {
        self.write(level, format_args!("{name}:\t{value}\n"));
    }

    /// The rest of a line.
    pub fn line(&mut self, text: &str) {
        self.write(0, format_args!("{text}\n"));
    }

    /// All that `write` writes is this many levels further to the right.
    pub fn nested(&mut self, levels: usize, write: impl FnOnce(&mut Self)) {
        self.nested += levels;
        write(self);
        self.nested -= levels;
    }

    /// What follows does not align with what is there.
    pub fn flush(&mut self) {
        self.done.push_str(&align(&self.open, TABS));
        self.open.clear();
    }

    /// The text with its tabs, for whoever brings it into columns, or does not.
    pub fn unaligned(self) -> String {
        self.done + &self.open
    }

    pub fn finish(mut self) -> String {
        self.flush();
        self.done
    }
}

/// Terminals obey what is after an escape character; upstream writes it in another way.
fn escape(out: &mut String, text: &str) {
    if !text.contains(['\x1b', '\r']) {
        return out.push_str(text);
    }
    for character in text.chars() {
        match character {
            '\x1b' => out.push_str("^["),
            '\r' => out.push_str("\\r"),
            other => out.push(other),
        }
    }
}

/// A piece of formatted text at a level.
macro_rules! put {
    ($out:expr, $level:expr, $($text:tt)*) => {
        $out.write($level, format_args!($($text)*))
    };
}
pub(crate) use put;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_indented_and_escaped() {
        let mut out = Writer::default();
        out.field(0, "A", "1");
        out.nested(2, |out| {
            out.field(1, "Longer", "a\x1b[1m\rb");
            put!(out, 0, "L:\t");
            out.line("<none>");
        });
        let expect = ["A:             1", "      Longer:  a^[[1m\\rb", "    L:             <none>", ""];
        assert_eq!(out.finish(), expect.join("\n"));
    }
}
