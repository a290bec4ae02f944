//! The way of a pod, from the first hop until it was ready: every instant of it belongs to one hop, or to none and is a gap. Pure.
//!
//! Spans overlap: a pod's start holds its pull, and its owners go on with their turns meanwhile. An instant belongs to the pod's own span before
//! it belongs to an owner's, and to what began last, which is what the others wait for. So the parts and the gaps add up to the way.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::gather::Span;
use super::story::Interval;

/// One span of the pod or of what owns it.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    pub span: &'a Span,
    pub time: Interval,
    /// Whether it is the pod's own.
    pub own: bool,
}

/// What a hop, or a part of one, took of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub hop: u8,
    pub name: String,
    pub took: Duration,
}

/// A time that no hop claims, and between which hops it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub time: Interval,
    pub after: String,
    pub before: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Way {
    pub length: Duration,
    /// The longest first.
    pub parts: Vec<Part>,
    pub gaps: Vec<Gap>,
}

/// What a span is called: its stage or its hop, and who did it.
fn name(span: &Span) -> String {
    let what = if span.stage.is_empty() { &span.name } else { &span.stage };
    if span.by.is_empty() { what.clone() } else { format!("{what} {}", span.by) }
}

/// When the pod was ready: once the first status after its containers' start and their probes was written.
fn ready(claims: &[Claim<'_>]) -> Option<Duration> {
    let own = || claims.iter().filter(|claim| claim.own);
    let is_start =
        |claim: &&Claim<'_>| matches!((claim.span.hop, claim.span.stage.as_str()), (11, "pod") | (12, "probe"));
    let started = own().filter(is_start).map(|claim| claim.time.to).max()?;
    let written = own().filter(|claim| claim.span.stage == "status" && claim.time.to > started);
    written.map(|claim| claim.time.to).min()
}

impl Way {
    /// Of a pod that has become ready.
    pub fn of(claims: &[Claim<'_>]) -> Option<Self> {
        let length = ready(claims)?;
        let mut edges: Vec<(Duration, bool, usize)> = Vec::new();
        for (at, claim) in claims.iter().enumerate().filter(|(_, claim)| claim.time.from < claim.time.to.min(length)) {
            edges.push((claim.time.from, true, at));
            edges.push((claim.time.to.min(length), false, at));
        }
        edges.push((length, false, usize::MAX));
        edges.sort_unstable();
        let (mut way, mut reached, mut last) = (Self { length, ..Self::default() }, Duration::ZERO, None);
        let mut active: BTreeSet<(bool, Duration, Reverse<Duration>, usize)> = BTreeSet::new();
        for (time, begins, at) in edges {
            if time > reached {
                let until = Interval { from: reached, to: time };
                match active.last() {
                    Some((.., claim)) => way.add(claims[*claim].span, until),
                    None => {
                        let before = if begins { name(claims[at].span) } else { String::new() };
                        let after = last.map(name).unwrap_or_default();
                        way.gaps.push(Gap { time: until, after, before });
                    }
                }
                reached = time;
            }
            let Some(claim) = claims.get(at) else { continue };
            let place = (claim.own, claim.time.from, Reverse(claim.time.to), at);
            if begins {
                active.insert(place);
            } else {
                active.remove(&place);
                last = Some(claim.span);
            }
        }
        way.parts.sort_by_key(|part| Reverse(part.took));
        Some(way)
    }

    fn add(&mut self, span: &Span, time: Interval) {
        let (took, name) = (time.to - time.from, name(span));
        match self.parts.iter_mut().find(|part| part.hop == span.hop && part.name == name) {
            Some(part) => part.took += took,
            None => self.parts.push(Part { hop: span.hop, name, took }),
        }
    }

    /// How much of it no hop claims.
    pub fn between(&self) -> Duration {
        self.gaps.iter().map(|gap| gap.time.to - gap.time.from).sum()
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let parts = self
            .parts
            .iter()
            .map(|Part { hop, name, took }| json!({"hop": hop, "name": name, "seconds": took.as_secs_f64()}));
        let gaps = self.gaps.iter().map(|Gap { time, after, before }| {
            let (from, length) = (time.from.as_secs_f64(), (time.to - time.from).as_secs_f64());
            json!({"from": from, "seconds": length, "after": after, "before": before})
        });
        json!({
            "seconds": self.length.as_secs_f64(),
            "parts": parts.collect::<Vec<_>>(),
            "gaps": gaps.collect::<Vec<_>>(),
            "between": self.between().as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::tests::span;
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Whose, what, from and to.
    type Told<'a> = (bool, (u8, &'a str, &'a str), u64, u64);

    /// The way of a pod with these spans.
    fn way(spans: &[Told<'_>]) -> Option<Way> {
        let made: Vec<Span> = spans.iter().map(|(_, what, ..)| span("p", *what, 0, 0, 0)).collect();
        let claims: Vec<Claim<'_>> = spans
            .iter()
            .zip(&made)
            .map(|((own, _, from, to), span)| Claim {
                span,
                time: Interval { from: ms(*from), to: ms(*to) },
                own: *own,
            })
            .collect();
        Way::of(&claims)
    }

    #[test]
    fn every_instant_belongs_to_one_hop_or_to_a_gap() {
        let spans = [
            (false, (7, "", ""), 0, 10),
            (true, (7, "", ""), 15, 20),
            (true, (10, "queue", ""), 20, 25),
            // An owner has nothing to say of what the pod's own spans claim.
            (false, (9, "", "deployment"), 22, 60),
            (true, (11, "pod", ""), 40, 100),
            (true, (11, "pull", "web"), 50, 90),
            (true, (12, "probe", "web"), 100, 150),
            (true, (12, "status", ""), 101, 103),
            (true, (12, "status", ""), 155, 160),
            // After it was ready.
            (true, (12, "status", ""), 300, 310),
            (false, (9, "", "deployment"), 158, 400),
        ];
        let way = way(&spans).expect("it was ready");
        let parts: Vec<(&str, Duration)> = way.parts.iter().map(|part| (part.name.as_str(), part.took)).collect();
        let expected = [
            ("probe web", ms(48)),
            ("pull web", ms(40)),
            ("pod", ms(20)),
            ("hop 7", ms(15)),
            ("hop 9 deployment", ms(15)),
            ("status", ms(7)),
            ("queue", ms(5)),
        ];
        assert_eq!(parts, expected);
        let gaps: Vec<(Duration, &str, &str)> =
            way.gaps.iter().map(|gap| (gap.time.from, gap.after.as_str(), gap.before.as_str())).collect();
        assert_eq!(gaps, [(ms(10), "hop 7", "hop 7"), (ms(150), "probe web", "status")]);
        let sum: Duration = way.parts.iter().map(|part| part.took).sum();
        assert_eq!((sum + way.between(), way.length), (ms(160), ms(160)));
        assert_eq!((way.json()["seconds"].as_f64(), way.json()["between"].as_f64()), (Some(0.16), Some(0.01)));
    }

    #[test]
    fn a_pod_that_is_not_ready_has_come_no_way() {
        assert_eq!(way(&[]), None);
        assert_eq!(way(&[(true, (11, "pod", ""), 0, 100), (true, (12, "status", ""), 50, 60)]), None);
    }
}
