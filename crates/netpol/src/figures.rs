//! What the agent counts.

use figures::{Buckets, Counter, Family, Histogram};

/// How long it took from the word of a change to the kernel's answer.
pub static TURNS: Histogram = Histogram::new(
    "trireme_netpol_sync_duration_seconds",
    "[ALPHA] From the word of a change to the kernel's answer, in seconds.",
    &[],
    Buckets::Exponential { start: 0.000_25, factor: 2.0, count: 14 },
);

/// How often all rules were written.
pub static REWRITES: Counter =
    Counter::new("trireme_netpol_rewrites_total", "[ALPHA] How often all rules of network policies were written.", &[]);

/// How often the kernel refused all rules.
pub static FAILURES: Counter = Counter::new(
    "trireme_netpol_failures_total",
    "[ALPHA] How often the kernel refused the rules of network policies.",
    &[],
);

/// Connections of isolated pods, and packets that were kept back, by the policies that said so. Of many at once some are counted.
pub static VERDICTS: Counter = Counter::new(
    "trireme_netpol_verdicts_total",
    "[ALPHA] Verdicts by the policies that they follow from: connections allowed, packets denied, a thousand a second at most.",
    &["namespace", "policy", "direction", "verdict"],
);

/// All of them as scrapers read them.
pub fn write(text: &mut String) {
    let families: [&dyn Family; 4] = [&TURNS, &REWRITES, &FAILURES, &VERDICTS];
    figures::write(&families, text);
}
