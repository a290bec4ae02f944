//! Native histograms: buckets that grow by a constant factor and exist only where something fell.
//!
//! Every [`Distribution`](super::Distribution) counts into them beside its classic buckets, as upstream's do (`NativeHistograms`): eight buckets
//! for each doubling, and half as many as soon as there are more than 160 of them. The text format has no words for them, so they travel as
//! comments on a page that was begun for them ([`page`](super::page())) and end in the messages that [`protobuf`](super::protobuf) makes of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Eight buckets for each doubling: the coarsest that grow by at most a tenth, which is upstream's factor.
const SCHEMA: i32 = 3;
/// No schema is coarser.
const COARSEST: i32 = -4;
/// As many buckets as upstream lets one series have.
const MOST: usize = 160;
/// What is nearer to zero is zero: 2⁻¹²⁸.
pub(crate) const ZERO_THRESHOLD: f64 = 2.938735877055719e-39;
/// Where the buckets of `SCHEMA` end between ½ and 1.
const BOUNDS: [f64; 8] = [
    0.5,
    0.5452538663326288,
    0.5946035575013605,
    0.6484197773255048,
    0.7071067811865475,
    0.7711054127039704,
    0.8408964152537144,
    0.9170040432046711,
];

/// The first line of a page that has native buckets.
pub(crate) const PAGE: &str = "# with native buckets\n";
/// Before the native buckets of the series above.
const LINE: &str = "# NATIVE ";

/// Whether this page has native buckets.
pub(crate) fn is_wanted(page: &str) -> bool {
    page.starts_with(PAGE)
}

pub(crate) type Counts = BTreeMap<i32, u64>;

/// The native buckets of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Native {
    pub(crate) schema: i32,
    pub(crate) zero: u64,
    pub(crate) positive: Counts,
    pub(crate) negative: Counts,
}

impl Default for Native {
    fn default() -> Self {
        Self { schema: SCHEMA, zero: 0, positive: Counts::new(), negative: Counts::new() }
    }
}

impl Native {
    pub(crate) fn observe(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let side = if value.abs() <= ZERO_THRESHOLD {
            self.zero += 1;
            return;
        } else if value > 0.0 {
            &mut self.positive
        } else {
            &mut self.negative
        };
        *side.entry(index(value, self.schema)).or_default() += 1;
        self.limit();
    }

    /// Counts all that another one counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        let schema = self.schema.min(other.schema);
        self.coarsen_to(schema);
        other.coarsen_to(schema);
        self.zero += other.zero;
        for (side, more) in [(&mut self.positive, other.positive), (&mut self.negative, other.negative)] {
            more.into_iter().for_each(|(bucket, count)| *side.entry(bucket).or_default() += count);
        }
        self.limit();
    }

    fn limit(&mut self) {
        while self.positive.len() + self.negative.len() > MOST && self.schema > COARSEST {
            self.coarsen_to(self.schema - 1);
        }
    }

    fn coarsen_to(&mut self, schema: i32) {
        let steps = self.schema - schema;
        if steps == 0 {
            return;
        }
        self.schema = schema;
        for side in [&mut self.positive, &mut self.negative] {
            for (bucket, count) in std::mem::take(side) {
                *side.entry(coarser(bucket, steps)).or_default() += count;
            }
        }
    }

    /// Appends the comment that a page for native buckets has below a series.
    pub(crate) fn write(&self, page: &mut String) {
        // Writing to a string cannot fail.
        let _ = write!(page, "{LINE}{} {}", self.schema, self.zero);
        for side in [&self.positive, &self.negative] {
            page.push_str(" ;");
            for (bucket, count) in side {
                let _ = write!(page, "{bucket}:{count};");
            }
        }
        page.push('\n');
    }

    /// What [`Native::write`] wrote into a line.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix(LINE)?.split(' ');
        let schema = words.next()?.parse().ok()?;
        let zero = words.next()?.parse().ok()?;
        let mut side = || -> Option<Counts> {
            let pairs = words.next()?.split(';').filter(|pair| !pair.is_empty());
            pairs
                .map(|pair| pair.split_once(':').and_then(|(at, n)| Some((at.parse().ok()?, n.parse().ok()?))))
                .collect()
        };
        let (positive, negative) = (side()?, side()?);
        Some(Self { schema, zero, positive, negative })
    }
}

/// The bucket of a value's size.
fn index(value: f64, schema: i32) -> i32 {
    let (value, beyond) = if value.is_infinite() { (f64::MAX, 1) } else { (value.abs(), 0) };
    let (fraction, exponent) = split(value);
    let finest = BOUNDS.partition_point(|bound| *bound < fraction) as i32 + (exponent - 1) * BOUNDS.len() as i32;
    coarser(finest, SCHEMA - schema) + beyond
}

/// The bucket that holds this one, so many halvings of the schema further: each ends where every second one ended.
fn coarser(bucket: i32, steps: i32) -> i32 {
    (bucket + (1 << steps) - 1) >> steps
}

/// A number above [`ZERO_THRESHOLD`] as a fraction from ½ up to 1 and a power of two. Such numbers are normal ones.
fn split(value: f64) -> (f64, i32) {
    const EXPONENT: u64 = 0x7ff << 52;
    const HALF: u64 = 1022 << 52;
    let bits = value.to_bits();
    let exponent = ((bits & EXPONENT) >> 52) as i32 - 1022;
    (f64::from_bits(bits & !EXPONENT | HALF), exponent)
}

/// Runs of buckets as the message has them: how far after the one before, how many; and the difference of each count to the one before. A
/// gap of one or two is cheaper as empty buckets than as a run of its own.
pub(crate) fn runs(counts: &Counts) -> (Vec<(i32, u32)>, Vec<i64>) {
    let (mut runs, mut deltas): (Vec<(i32, u32)>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (&bucket, &count) in counts {
        let gap = bucket - next;
        let counted = [0, 0, count as i64];
        let (run, added) = match runs.last_mut() {
            Some(run) if gap <= 2 => (run, &counted[2 - gap as usize..]),
            _ => {
                runs.push((gap, 0));
                let Some(run) = runs.last_mut() else { break };
                (run, &counted[2..])
            }
        };
        for &count in added {
            run.1 += 1;
            deltas.push(count - before);
            before = count;
        }
        next = bucket + 1;
    }
    (runs, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(values: &[f64]) -> Native {
        let mut native = Native::default();
        values.iter().for_each(|value| native.observe(*value));
        native
    }

    /// The bounds of schema 3 are powers of the eighth root of two, and belong to the bucket that they end.
    #[test]
    fn a_value_is_in_the_bucket_of_its_power() {
        for (value, bucket) in [
            (1.0, 0),
            (1.0000001, 1),
            (2.0, 8),
            (2.1, 9),
            (0.5, -8),
            (0.75, -3),
            (0.005, -61),
            (60.0, 48),
            (f64::MAX, 8192),
            (f64::INFINITY, 8193),
        ] {
            assert_eq!(seen(&[value]).positive, Counts::from([(bucket, 1)]), "{value}");
            assert_eq!(seen(&[-value]).negative, Counts::from([(bucket, 1)]), "-{value}");
        }
        let near = seen(&[0.0, -0.0, 1e-40, f64::NAN]);
        assert_eq!((near.zero, near.positive.len(), near.negative.len()), (3, 0, 0));
    }

    #[test]
    fn too_many_buckets_are_joined_two_by_two() {
        // In the middle of a bucket each: at its end, rounding would decide.
        let values: Vec<f64> = (0..=MOST).map(|bucket| ((bucket as f64 - 80.5) / 8.0).exp2()).collect();
        let native = seen(&values);
        assert_eq!((native.schema, native.positive.values().sum::<u64>()), (2, values.len() as u64));
        assert!(native.positive.len() <= MOST / 2 + 1, "{native:?}");
        // A bucket and the one below it become the one that ends where the upper one ends.
        assert_eq!([-3, -2, -1, 0, 1, 2, 3].map(|bucket| coarser(bucket, 1)), [-1, -1, 0, 0, 1, 1, 2]);
        let mut sum = seen(&[1.0, 3.0]);
        sum.merge(&native);
        assert_eq!((sum.schema, sum.positive.values().sum::<u64>()), (2, values.len() as u64 + 2));
    }

    #[test]
    fn runs_bridge_small_gaps() {
        let counts = Counts::from([(-2, 1), (-1, 3), (2, 2), (6, 4)]);
        assert_eq!(runs(&counts), (vec![(-2, 5), (3, 1)], vec![1, 2, -3, 0, 2, 2]));
        assert_eq!(runs(&Counts::new()), (vec![], vec![]));
    }

    #[test]
    fn a_page_carries_what_it_was_given() {
        for native in [Native::default(), seen(&[0.0, 0.25, 0.3, 7.0, -1.0])] {
            let mut line = String::new();
            native.write(&mut line);
            assert_eq!(Native::read(line.trim_end()), Some(native));
        }
        assert_eq!(Native::read("# HELP a b"), None);
    }
}
