//! Where a span stands in a trace of many processes: W3C's trace context, and who is traced at all.
//!
//! Whether a trace is exported is decided where it begins, and everybody after that keeps to it: the parent's word counts, and only who has
//! no parent asks the sampler, which looks at the trace's own number. So a trace is exported whole or not at all.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The header, and the key of gRPC's metadata.
pub const TRACEPARENT: &str = "traceparent";

/// A place in a trace: the span that others are children of. The default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Context {
    pub trace: u128,
    pub span: u64,
    /// Whether the trace is exported.
    pub sampled: bool,
}

impl Context {
    pub const NONE: Self = Self { trace: 0, span: 0, sampled: false };

    /// Of a `traceparent`: version, trace, span and flags in small hexadecimal digits. Later versions may say more after that.
    pub fn parse(header: &str) -> Option<Self> {
        let header = header.trim();
        let mut parts = header.splitn(5, '-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let more = parts.next();
        let is_hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
        if !well_formed || version == "ff" || (version == "00" && more.is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, sampled: flags & 1 == 1 })
    }

    /// As others are told of it.
    pub fn header(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }

    pub fn is_none(&self) -> bool {
        self.trace == 0
    }

    /// The first span of a trace that begins here; the sampler says whether it is exported.
    pub(crate) fn root(rate: Rate) -> Self {
        let trace = (u128::from(fresh_id()) << 64) | u128::from(fresh_id());
        Self { trace, span: fresh_id(), sampled: rate.samples(trace) }
    }

    /// A span within this one.
    pub(crate) fn child(self) -> Self {
        Self { span: fresh_id(), ..self }
    }

    /// The one span within this one that several name before it is over.
    pub(crate) fn known_child(self) -> Self {
        Self { span: mixed(self.span).max(1), ..self }
    }
}

/// Which of the traces that begin here are exported: so many of a million, by the trace's number, as OpenTelemetry's ratio sampler decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate(u32);

const MILLION: u32 = 1_000_000;

impl Rate {
    pub const fn per_million(rate: u32) -> Self {
        Self(if rate > MILLION { MILLION } else { rate })
    }

    fn samples(self, trace: u128) -> bool {
        let bound = (f64::from(self.0) / f64::from(MILLION) * (1_u64 << 63) as f64) as u64;
        self.0 == MILLION || (trace as u64) >> 1 < bound
    }
}

/// A number that nobody else has and nobody guesses.
fn fresh_id() -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("spans"));
    static NEXT: AtomicU64 = AtomicU64::new(1);
    mixed(SEED.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15))).max(1)
}

/// splitmix64's mixing.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_and_written() {
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = Context::parse(header).expect("a context");
        assert_eq!((context.span, context.sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.header(), header);
        // A version that is not known yet may say more; unknown flags are not passed on.
        let later = Context::parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe-more").expect("a context");
        assert!(!later.sampled);
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Context::parse(text), None, "{text}");
        }
    }

    #[test]
    fn as_many_traces_are_exported_as_the_rate_says_and_a_trace_always_is_or_never() {
        let of_million = |rate: u32| (0..10_000).filter(|_| Context::root(Rate::per_million(rate)).sampled).count();
        assert_eq!((of_million(0), of_million(1_000_000)), (0, 10_000));
        assert!((4_000..6_000).contains(&of_million(500_000)), "half of them, or so");
        // The numbers of OpenTelemetry's own sampler: the low half of the trace's id, halved, below the part of 2^63.
        let half = Rate::per_million(500_000);
        assert!(half.samples(0x7fff_ffff_ffff_ffff) && !half.samples(0x8000_0000_0000_0000));
    }

    #[test]
    fn spans_have_numbers_of_their_own() {
        let root = Context::root(Rate::per_million(1));
        let ids: std::collections::HashSet<u64> = (0..1000).map(|_| root.child().span).collect();
        assert_eq!(ids.len(), 1000);
        assert_eq!(root.known_child(), root.known_child());
        assert!(root.known_child().span != root.span && root.child().trace == root.trace);
    }
}
