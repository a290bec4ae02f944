//! What happened, in order: the spans of everybody, given to the objects that they are about. Pure.
//!
//! Gates work before an object has a uid: their spans belong to whatever their request wrote. A ring remembers long; what is told is the
//! last stretch without a long silence, which is the last apply, unless all is asked for.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::gather::{Amounts, Gathered, Member, Span};
use super::way::{Claim, Way};

/// A silence that ends a stretch.
const SILENCE: Duration = Duration::from_secs(30);
/// The hops of a request.
const REQUEST: std::ops::RangeInclusive<u8> = 2..=8;
const COMMIT: u8 = 7;

/// How many decisions of one row are told.
const MOST_SAID: usize = 8;

/// What a span has to say besides its time. That one write was a group of its own is no news.
fn said(span: &Span) -> String {
    let Amounts { bytes, writes, nodes } = span.amounts;
    let amount = match (bytes, writes, nodes) {
        (1.., ..) => format!("{bytes} bytes"),
        (_, 2.., _) => format!("in a group of {writes} writes"),
        (.., 1) => "looked at 1 node".to_owned(),
        (.., 2..) => format!("looked at {nodes} nodes"),
        _ => String::new(),
    };
    match (span.decided.as_str(), amount.as_str()) {
        (decided, "") => decided.to_owned(),
        ("", amount) => amount.to_owned(),
        (decided, amount) => format!("{decided}, {amount}"),
    }
}

/// From when to when, after the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    pub from: Duration,
    pub to: Duration,
}

/// Spans of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub hop: u8,
    /// What it is called: the hop's own name, or the stage's.
    pub name: String,
    pub stage: String,
    pub by: String,
    pub verb: String,
    /// In order of their beginnings.
    pub times: Vec<Interval>,
    /// What was decided, each once, in order.
    pub said: Vec<String>,
}

/// What happened to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chapter {
    pub member: Member,
    /// How many owners are above it.
    pub depth: usize,
    pub rows: Vec<Row>,
    /// Of a pod that became ready.
    pub way: Option<Way>,
}

#[derive(Debug, Default)]
pub struct Story {
    pub begun: Option<Timestamp>,
    pub length: Duration,
    /// Owners come before what they own.
    pub chapters: Vec<Chapter>,
    /// How much of the length is in some span.
    pub accounted: Duration,
    /// The rest of it.
    pub gaps: Vec<Interval>,
    /// How many spans are remembered from before.
    pub earlier: usize,
    pub silent: Vec<(String, String)>,
    spans: Vec<(usize, Span)>,
}

impl Row {
    fn add(&mut self, span: &Span, time: Interval) {
        self.times.push(time);
        let said = said(span);
        if !said.is_empty() && self.said.len() < MOST_SAID && !self.said.contains(&said) {
            self.said.push(said);
        }
    }

    pub fn total(&self) -> Duration {
        covered(self.times.iter().copied())
    }
}

impl Story {
    pub fn of(gathered: &Gathered, all: bool) -> Self {
        let mut spans = assigned(gathered);
        bound_before_run(&mut spans);
        spans.sort_by_key(|(_, span)| (span.start, span.hop));
        let earlier = if all { 0 } else { last_stretch(&spans) };
        let spans = spans.split_off(earlier);
        let silent = gathered.silent.clone();
        let Some(begun) = spans.first().map(|(_, span)| span.start) else { return Self { silent, ..Self::default() } };
        let interval = |span: &Span| {
            let from = Duration::try_from(span.start.duration_since(begun)).unwrap_or_default();
            Interval { from, to: from + span.took }
        };
        let length = spans.iter().map(|(_, span)| interval(span).to).max().unwrap_or_default();
        let accounted = covered(spans.iter().map(|(_, span)| interval(span)));
        let gaps = uncovered(spans.iter().map(|(_, span)| interval(span)));
        let mut chapters = Vec::new();
        for (at, depth) in order(&gathered.members) {
            let own: Vec<&Span> = spans.iter().filter(|(of, _)| *of == at).map(|(_, span)| span).collect();
            let rows = rows(&own, &interval);
            let owners = owners(&gathered.members, at);
            let family = spans.iter().filter(|(of, _)| *of == at || owners.contains(of));
            let claims: Vec<Claim<'_>> =
                family.map(|(of, span)| Claim { span, time: interval(span), own: *of == at }).collect();
            chapters.push(Chapter { member: gathered.members[at].clone(), depth, rows, way: Way::of(&claims) });
        }
        Self { begun: Some(begun), length, chapters, accounted, gaps, earlier, silent, spans }
    }

    /// The row that took longest, with its object. What holds others is not asked: they say more.
    pub fn longest(&self) -> Option<(&Chapter, &Row)> {
        let parts = self.chapters.iter().flat_map(|chapter| {
            let has_parts = |row: &Row| {
                row.stage == "pod"
                    || (row.stage.is_empty()
                        && chapter.rows.iter().any(|part| part.hop == row.hop && !part.stage.is_empty()))
            };
            chapter.rows.iter().filter(move |row| !has_parts(row)).map(move |row| (chapter, row))
        });
        parts.max_by_key(|(_, row)| row.total())
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let seconds = |duration: Duration| json!(duration.as_secs_f64());
        let objects: Vec<Value> = self
            .chapters
            .iter()
            .map(|chapter| {
                let Member { uid, name, owner, node } = &chapter.member;
                let way = chapter.way.as_ref().map_or(Value::Null, Way::json);
                json!({"uid": uid, "name": name, "owner": owner, "node": node, "depth": chapter.depth, "way": way})
            })
            .collect();
        let spans: Vec<Value> = self
            .spans
            .iter()
            .map(|(at, span)| {
                let Amounts { bytes, writes, nodes } = span.amounts;
                json!({
                    "decided": span.decided, "bytes": bytes, "writes": writes, "nodes": nodes,
                    "hop": span.hop, "name": span.name, "stage": span.stage, "verb": span.verb, "by": span.by, "object": at,
                    "revision": span.revision, "process": span.process, "request": span.request,
                    "start": span.start.to_string(), "seconds": span.took.as_secs_f64(),
                })
            })
            .collect();
        json!({
            "begun": self.begun.map(|begun| begun.to_string()),
            "seconds": seconds(self.length),
            "accounted": seconds(self.accounted),
            "earlier": self.earlier,
            "objects": objects,
            "spans": spans,
            "silent": self.silent.iter().map(|(node, why)| json!({"node": node, "why": why})).collect::<Vec<_>>(),
        })
    }
}

/// Spans with the place of the object that they are about; others are left out.
fn assigned(gathered: &Gathered) -> Vec<(usize, Span)> {
    let places: HashMap<&str, usize> =
        gathered.members.iter().enumerate().map(|(at, member)| (member.uid.as_str(), at)).collect();
    let requests: HashMap<(&str, u64), usize> = gathered
        .spans
        .iter()
        .filter(|span| span.request != 0)
        .filter_map(|span| Some(((span.process.as_str(), span.request), *places.get(span.uid.as_str())?)))
        .collect();
    let place = |span: &Span| {
        let by_request = || requests.get(&(span.process.as_str(), span.request)).copied();
        places.get(span.uid.as_str()).copied().or_else(by_request)
    };
    gathered.spans.iter().filter_map(|span| Some((place(span)?, span.clone()))).collect()
}

/// Where the last stretch without a silence begins.
fn last_stretch(spans: &[(usize, Span)]) -> usize {
    let (mut begins, mut until) = (0, None::<Timestamp>);
    for (at, (_, span)) in spans.iter().enumerate() {
        if until
            .is_some_and(|until| Duration::try_from(span.start.duration_since(until)).is_ok_and(|gap| gap > SILENCE))
        {
            begins = at;
        }
        let end = span.start.checked_add(span.took).unwrap_or(Timestamp::MAX);
        until = Some(until.map_or(end, |until| until.max(end)));
    }
    begins
}

/// The places of members, owners before what they own, and how deep each is.
fn order(members: &[Member]) -> Vec<(usize, usize)> {
    fn below(members: &[Member], at: usize, depth: usize, found: &mut Vec<(usize, usize)>) {
        if found.iter().any(|(known, _)| *known == at) {
            return;
        }
        found.push((at, depth));
        for (child, member) in members.iter().enumerate() {
            if member.owner == members[at].uid {
                below(members, child, depth + 1, found);
            }
        }
    }
    let mut found = Vec::new();
    for at in 0..members.len() {
        let is_top = members.iter().all(|other| other.uid != members[at].owner);
        if at == 0 || is_top {
            below(members, at, 0, &mut found);
        }
    }
    found
}

/// The places of those that own this one, and of their owners.
fn owners(members: &[Member], at: usize) -> Vec<usize> {
    let mut found = vec![at];
    while let Some(above) = found.last().and_then(|last| members.iter().position(|one| one.uid == members[*last].owner))
        && !found.contains(&above)
    {
        found.push(above);
    }
    found.split_off(1)
}

/// Spans by what they are. Of an object's writes the first is told hop by hop; of the others, which are mostly statuses, the commits.
fn rows(spans: &[&Span], interval: &impl Fn(&Span) -> Interval) -> Vec<Row> {
    let is_gate = |span: &Span| REQUEST.contains(&span.hop) && span.request != 0;
    let first = spans.iter().find(|span| is_gate(span)).map(|span| (&span.process, span.request));
    let commit = spans.iter().position(|span| span.hop == COMMIT);
    let mut rows: Vec<Row> = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        let is_later = span.hop == COMMIT && Some(at) != commit;
        if !is_later && is_gate(span) && first != Some((&span.process, span.request)) {
            continue;
        }
        let stage = if is_later { "later writes" } else { &span.stage };
        let is_same = |row: &&mut Row| row.hop == span.hop && row.stage == stage && row.by == span.by;
        let verb = if is_later { "" } else { &span.verb };
        match rows.iter_mut().find(|row| is_same(row) && row.verb == verb) {
            Some(row) => row.add(span, interval(span)),
            None => {
                let [name, stage, by, verb] = [&span.name, stage, &span.by, verb].map(str::to_owned);
                let mut row = Row { hop: span.hop, name, stage, by, verb, times: Vec::new(), said: Vec::new() };
                row.add(span, interval(span));
                rows.push(row);
            }
        }
    }
    for row in &mut rows {
        row.times.sort();
    }
    rows.sort_by_key(|row| (row.times[0].from, row.hop, !row.stage.is_empty()));
    rows
}

/// Puts right what clocks tell to within the time of a question only: a node does nothing for a pod before the scheduler binds it there.
fn bound_before_run(spans: &mut [(usize, Span)]) {
    let binds: HashMap<usize, (Timestamp, String)> = spans
        .iter()
        .filter(|(_, span)| span.stage == "bind")
        .map(|(at, span)| (*at, (span.start, span.process.clone())))
        .collect();
    for (at, (bind, process)) in binds {
        let of_node = |(of, span): &&mut (usize, Span)| *of == at && span.process != process;
        let Some(first) = spans.iter_mut().filter(of_node).map(|(_, span)| span.start).min() else { continue };
        let early = bind.duration_since(first);
        if early.is_positive() {
            for (_, span) in spans.iter_mut().filter(of_node) {
                span.start = span.start.checked_add(early).unwrap_or(span.start);
            }
        }
    }
}

/// How much time lies in some of these.
fn covered(times: impl Iterator<Item = Interval>) -> Duration {
    let mut times: Vec<Interval> = times.collect();
    times.sort();
    let (mut sum, mut until) = (Duration::ZERO, Duration::ZERO);
    for Interval { from, to } in times {
        sum += to.saturating_sub(from.max(until));
        until = until.max(to);
    }
    sum
}

/// The times between these, after the first.
fn uncovered(times: impl Iterator<Item = Interval>) -> Vec<Interval> {
    let mut times: Vec<Interval> = times.collect();
    times.sort();
    let (mut gaps, mut until) = (Vec::new(), Duration::ZERO);
    for Interval { from, to } in times {
        if from > until {
            gaps.push(Interval { from: until, to: from });
        }
        until = until.max(to);
    }
    gaps
}

#[cfg(test)]
#[path = "story_tests.rs"]
pub mod tests;
