//! Flags as pflag reads them: long ones with and without `=`, clusters of shorthands, values that may be left out, flags
//! between and after arguments, and `--`. Messages are pflag's.

mod parse;
pub mod sets;

use std::collections::BTreeMap;

pub use parse::{Mistake, find_command, parse};

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bool,
    String,
    Int,
    /// Of 32 bits.
    Int32,
    Duration,
    /// A duration whose mistakes Go's own package of flags tells, without a reason.
    PlainDuration,
    /// `file=level,…`, as `--vmodule` takes.
    Levels,
    /// Values separated by commas, given once or often.
    Slice,
    /// Each value as it is, given once or often.
    Array,
}

/// A flag that a command knows.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub kind: Kind,
    pub default: &'static str,
    /// What it means when no value follows; only then may the value be left out.
    pub bare: Option<&'static str>,
    pub help: &'static str,
    /// Understood, and not spoken of: old names, and what is meant for programs.
    pub hidden: bool,
    /// What to use instead; said to whoever still uses it.
    pub deprecated: &'static str,
}

impl Flag {
    const fn new(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Self {
        Self { name, short: None, kind, default, bare: None, help, hidden: false, deprecated: "" }
    }

    pub const fn bool(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Bool, "false", help).or_bare("true")
    }

    pub const fn string(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::String, default, help)
    }

    pub const fn int(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Int, default, help)
    }

    pub const fn int32(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Int32, default, help)
    }

    pub const fn duration(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Duration, default, help)
    }

    pub const fn plain_duration(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::PlainDuration, default, help)
    }

    pub const fn levels(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Levels, "", help)
    }

    pub const fn slice(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Slice, "", help)
    }

    pub const fn array(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Array, "", help)
    }

    pub const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    pub const fn or_bare(mut self, value: &'static str) -> Self {
        self.bare = Some(value);
        self
    }

    pub const fn deprecated(mut self, instead: &'static str) -> Self {
        self.deprecated = instead;
        self.hidden = true;
        self
    }

    pub const fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    pub const fn default(mut self, value: &'static str) -> Self {
        self.default = value;
        self
    }
}

/// What was given on the command line.
#[derive(Debug, Default, Clone)]
pub struct Given {
    known: BTreeMap<&'static str, &'static Flag>,
    values: BTreeMap<&'static str, Vec<String>>,
    /// What was given, in its order.
    in_order: Vec<(&'static str, String)>,
    /// What is no flag, in order.
    pub arguments: Vec<String>,
    /// How many arguments stood before `--`, if it was there.
    pub dash: Option<usize>,
}

impl Given {
    /// The value of a flag, or its default. A flag that the command does not have is empty, so that commands can share code.
    pub fn text(&self, name: &str) -> &str {
        match self.values.get(name).and_then(|values| values.last()) {
            Some(value) => value,
            None => self.known.get(name).map_or("", |flag| flag.default),
        }
    }

    /// The value, where it is not empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub fn is(&self, name: &str) -> bool {
        parse::boolean(self.text(name)).unwrap_or_default()
    }

    pub fn int(&self, name: &str) -> i64 {
        parse::integer(self.text(name)).unwrap_or_default()
    }

    /// Nanoseconds.
    pub fn nanos(&self, name: &str) -> i64 {
        machinery::duration::parse_nanos(self.text(name)).unwrap_or_default()
    }

    pub fn duration(&self, name: &str) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.nanos(name)).unwrap_or_default())
    }

    pub fn list(&self, name: &str) -> Vec<String> {
        let kind = self.known.get(name).map(|flag| flag.kind);
        let Some(values) = self.values.get(name) else {
            let default = self.known.get(name).map_or("", |flag| flag.default);
            return if default.is_empty() { Vec::new() } else { default.split(',').map(str::to_owned).collect() };
        };
        if kind == Some(Kind::Slice) {
            values.iter().flat_map(|value| parse::comma_separated(value)).collect()
        } else {
            values.clone()
        }
    }

    /// Whether it stood on the command line.
    pub fn changed(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub fn knows(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// What was given, in its order.
    pub fn in_order(&self) -> &[(&'static str, String)] {
        &self.in_order
    }

    /// What is told to whoever uses a flag that is to go.
    pub fn deprecations(&self) -> Vec<String> {
        let old =
            |(name, _): &&(&'static str, String)| self.known.get(name).is_some_and(|flag| !flag.deprecated.is_empty());
        let line = |(name, _): &(&'static str, String)| {
            format!("Flag --{name} has been deprecated, {}", self.known[name].deprecated)
        };
        self.in_order.iter().filter(old).map(line).collect()
    }

    /// Only what was said of flags that every command has: a command may use such a name for something else.
    pub fn global(&self) -> Self {
        let mut kept = self.clone();
        let of_all = |name: &str, flag: &&'static Flag| {
            sets::GLOBAL
                .iter()
                .flat_map(|group| group.iter())
                .any(|known| known.name == name && std::ptr::eq(known, *flag))
        };
        kept.known.retain(|name, flag| of_all(name, flag));
        kept.values.retain(|name, _| kept.known.contains_key(name));
        kept
    }

    /// Takes back what was given of a flag.
    pub fn forget(&mut self, flag: &str) {
        self.values.remove(flag);
    }

    /// Sets a flag that the command knows, if the value is one.
    pub fn set_checked(&mut self, name: &str, value: &str) -> Result<(), String> {
        match self.known.get(name).copied() {
            Some(flag) => parse::put_value(self, flag, value),
            None => Err(format!("unknown flag: --{name}")),
        }
    }

    /// Sets a flag as if it had been given.
    pub fn set(&mut self, flag: &'static str, value: &str) {
        self.values.insert(flag, vec![value.to_owned()]);
    }
}
