//! Which APIServices are unavailable, for scrapers.

use figures::{Counter, Family as _, Gauge};

/// What is counted, each server for itself.
pub(crate) struct Availabilities {
    now: Gauge,
    total: Counter,
}

impl Availabilities {
    pub(crate) const fn new() -> Self {
        Self {
            now: Gauge::new(
                "aggregator_unavailable_apiservice",
                "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
                &["name"],
            ),
            total: Counter::new(
                "aggregator_unavailable_apiservice_total",
                "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
                &["name", "reason"],
            ),
        }
    }

    /// An APIService is available or not; `reason` is what it says, if it says something.
    pub(crate) fn tell(&self, name: &str, was: bool, is: bool, reason: Option<&str>) {
        self.now.set(&[name], if is { 0.0 } else { 1.0 });
        if was && !is {
            self.total.increment(&[name, reason.unwrap_or("UnknownReason")]);
        }
    }

    pub(crate) fn forget(&self, name: &str) {
        self.now.remove(&[name]);
    }

    pub(crate) fn write(&self, text: &mut String) {
        self.now.write(text);
        self.total.write(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_and_what_is_gone_is_forgotten() {
        let figures = Availabilities::new();
        figures.tell("v1.a", false, false, Some("ServiceNotFound"));
        figures.tell("v1.a", false, true, Some("Passed"));
        figures.tell("v1.a", true, false, Some("MissingEndpoints"));
        figures.tell("v1.b", false, true, Some("Local"));
        figures.tell("v1.c", true, false, None);
        figures.forget("v1.c");
        let mut text = String::new();
        figures.write(&mut text);
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            series,
            [
                "aggregator_unavailable_apiservice{name=\"v1.a\"} 1",
                "aggregator_unavailable_apiservice{name=\"v1.b\"} 0",
                "aggregator_unavailable_apiservice_total{name=\"v1.a\",reason=\"MissingEndpoints\"} 1",
                "aggregator_unavailable_apiservice_total{name=\"v1.c\",reason=\"UnknownReason\"} 1",
            ]
        );
    }
}
