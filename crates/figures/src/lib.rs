//! What a process counts, and the text or the messages in which scrapers read it.
//!
//! A family is a `static`: a [`Counter`], a [`Gauge`] or a [`Histogram`] with a name, a help text and the names of its labels. Whoever has something to
//! tell adds to it; whoever serves `/metrics` writes the families of a list ([`write()`]). Names, help texts and buckets are upstream's,
//! numbers are written as Go writes them, so dashboards and recording rules find what they know.
//!
//! Deliberately absent: a registry (lists of families are plain slices), a clock, and anything that runs.

mod histogram;
mod native;
mod page;
mod protobuf;
mod text;

use std::collections::BTreeMap;

use parking_lot::Mutex;

pub use histogram::{Buckets, Distribution, Histogram};
pub use page::{finished, page};
pub use text::{Samples, number, samples};

/// Something that can be written for scrapers.
pub trait Family: Sync {
    /// Appends the head and every series; nothing at all as long as a family with labels has none.
    fn write(&self, text: &mut String);
}

/// Appends all of these families.
pub fn write(families: &[&dyn Family], text: &mut String) {
    families.iter().for_each(|family| family.write(text));
}

/// Declares families and the list of them: `families! { pub(crate) const ALL; NAME: Counter = (name, help, labels); … }`.
#[macro_export]
macro_rules! families {
    ($visible:vis const $all:ident; $($name:ident: $kind:ident = $args:tt;)*) => {
        $($visible static $name: $kind = $kind::new $args;)*
        const $all: &[&dyn $crate::Family] = &[$(&$name),*];
    };
}

/// What a family is called.
#[derive(Debug)]
struct Head {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
}

/// The series of a family by the values of its labels.
#[derive(Debug)]
struct Series<T>(Mutex<BTreeMap<Vec<String>, T>>);

impl<T> Series<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Changes the series of these values, which begins as `new` makes it.
    fn change(&self, head: &Head, values: &[&str], new: impl FnOnce() -> T, change: impl FnOnce(&mut T)) {
        debug_assert_eq!(head.labels.len(), values.len(), "{} has other labels", head.name);
        let key: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        change(self.0.lock().entry(key).or_insert_with(new));
    }

    fn write(&self, head: &Head, kind: &str, text: &mut String, line: impl Fn(&mut String, &str, &T)) {
        let all = self.0.lock();
        if all.is_empty() {
            return;
        }
        text::head(text, head.name, kind, head.help);
        for (values, series) in all.iter() {
            line(text, &text::labels(head.labels.iter().copied().zip(values.iter().map(String::as_str))), series);
        }
    }
}

/// Counts that only grow.
#[derive(Debug)]
pub struct Counter {
    head: Head,
    series: Series<f64>,
}

impl Counter {
    /// A family. One without labels is written as 0 from the beginning.
    pub const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { head: Head { name, help, labels }, series: Series::new() }
    }

    /// Adds one to the series of these values.
    pub fn increment(&self, values: &[&str]) {
        self.add(values, 1);
    }

    /// Adds to the series of these values. Adding nothing makes the series appear.
    pub fn add(&self, values: &[&str], count: usize) {
        self.series.change(&self.head, values, || 0.0, |total| *total += count as f64);
    }

    /// How much was counted with these values.
    pub fn value(&self, values: &[&str]) -> f64 {
        let all = self.series.0.lock();
        all.iter().find(|(known, _)| known.iter().eq(values)).map_or(0.0, |(_, total)| *total)
    }
}

impl Family for Counter {
    fn write(&self, text: &mut String) {
        if self.head.labels.is_empty() {
            self.add(&[], 0);
        }
        let line = |text: &mut String, labels: &str, total: &f64| text::series(text, self.head.name, labels, *total);
        self.series.write(&self.head, "counter", text, line);
    }
}

/// Figures that go up and down.
#[derive(Debug)]
pub struct Gauge {
    head: Head,
    series: Series<f64>,
}

impl Gauge {
    /// A family. One without labels is written as 0 from the beginning.
    pub const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { head: Head { name, help, labels }, series: Series::new() }
    }

    /// The figure of these values is now this.
    pub fn set(&self, values: &[&str], figure: f64) {
        self.series.change(&self.head, values, || 0.0, |present| *present = figure);
    }

    /// What these values are about is gone.
    pub fn remove(&self, values: &[&str]) {
        self.series.0.lock().retain(|known, _| !known.iter().eq(values));
    }

    /// These are all the series there are.
    pub fn replace<'a>(&self, all: impl IntoIterator<Item = (Vec<&'a str>, f64)>) {
        let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
        let all = all.into_iter().map(|(values, figure)| (owned(values), figure)).collect();
        *self.series.0.lock() = all;
    }

    /// The figure of these values, if there is one.
    pub fn value(&self, values: &[&str]) -> Option<f64> {
        let all = self.series.0.lock();
        all.iter().find(|(known, _)| known.iter().eq(values)).map(|(_, figure)| *figure)
    }
}

impl Family for Gauge {
    fn write(&self, text: &mut String) {
        if self.head.labels.is_empty() {
            self.series.change(&self.head, &[], || 0.0, |_| {});
        }
        let line = |text: &mut String, labels: &str, figure: &f64| text::series(text, self.head.name, labels, *figure);
        self.series.write(&self.head, "gauge", text, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_with_their_heads_and_labels() {
        static REQUESTS: Counter = Counter::new("requests_total", "[ALPHA] Requests.", &["code", "host"]);
        static SIZE: Gauge = Gauge::new("size", "[BETA] A size.", &[]);
        let all: &[&dyn Family] = &[&REQUESTS, &SIZE];
        let mut text = String::new();
        write(all, &mut text);
        assert_eq!(text, "# HELP size [BETA] A size.\n# TYPE size gauge\nsize 0\n");

        REQUESTS.increment(&["200", "a"]);
        REQUESTS.add(&["200", "a"], 2);
        REQUESTS.increment(&["404", "quoted \" and \\ and\nbroken"]);
        SIZE.set(&[], 1.5e-7);
        text.clear();
        write(all, &mut text);
        let expected = "# HELP requests_total [ALPHA] Requests.\n# TYPE requests_total counter\n\
            requests_total{code=\"200\",host=\"a\"} 3\n\
            requests_total{code=\"404\",host=\"quoted \\\" and \\\\ and\\nbroken\"} 1\n\
            # HELP size [BETA] A size.\n# TYPE size gauge\nsize 1.5e-07\n";
        assert_eq!(text, expected);
        assert_eq!(REQUESTS.value(&["200", "a"]).to_string(), "3");
    }

    #[test]
    fn a_gauge_forgets_what_is_gone() {
        static PODS: Gauge = Gauge::new("pods", "[ALPHA] Pods.", &["zone"]);
        PODS.set(&["a"], 1.0);
        PODS.set(&["b"], 2.0);
        PODS.remove(&["a"]);
        assert_eq!(PODS.value(&["a"]), None);
        PODS.replace([(vec!["c"], 3.0)]);
        assert_eq!((PODS.value(&["b"]), PODS.value(&["c"])), (None, Some(3.0)));
    }
}
