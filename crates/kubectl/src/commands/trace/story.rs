//! What happened, in order: the spans of everybody, given to the objects that they are about. Pure.
//!
//! Gates work before an object has a uid: their spans belong to whatever their request wrote. A ring remembers long; what is told is the
//! last stretch without a long silence, which is the last apply, unless all is asked for.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::gather::{Amounts, Gathered, Member, Span};

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
}

#[derive(Debug, Default)]
pub struct Story {
    pub begun: Option<Timestamp>,
    pub length: Duration,
    /// Owners come before what they own.
    pub chapters: Vec<Chapter>,
    /// How much of the length is in some span.
    pub accounted: Duration,
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
        let mut chapters = Vec::new();
        for (at, depth) in order(&gathered.members) {
            let own: Vec<&Span> = spans.iter().filter(|(of, _)| *of == at).map(|(_, span)| span).collect();
            let rows = rows(&own, &interval);
            chapters.push(Chapter { member: gathered.members[at].clone(), depth, rows });
        }
        Self { begun: Some(begun), length, chapters, accounted, earlier, silent, spans }
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
                json!({"uid": uid, "name": name, "owner": owner, "node": node, "depth": chapter.depth})
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

#[cfg(test)]
pub mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_900_000_000_000 + milliseconds).expect("a time")
    }

    /// A span in process `p` about an object: hop, stage, who, request, from, how long.
    pub fn span(uid: &str, (hop, stage, by): (u8, &str, &str), request: u64, from: i64, took: u64) -> Span {
        let verb = if request > 1 { "patch" } else { "create" };
        Span {
            hop,
            name: format!("hop {hop}"),
            stage: stage.to_owned(),
            verb: verb.to_owned(),
            by: by.to_owned(),
            uid: uid.to_owned(),
            request,
            process: "p".to_owned(),
            revision: 0,
            decided: String::new(),
            amounts: Amounts::default(),
            start: at(from),
            took: Duration::from_millis(took),
        }
    }

    pub fn member(uid: &str, name: &str, owner: &str) -> Member {
        let node = if name.starts_with("pod/") { "n1" } else { "" };
        Member { uid: uid.to_owned(), name: name.to_owned(), owner: owner.to_owned(), node: node.to_owned() }
    }

    /// A Deployment, its ReplicaSet and a pod.
    pub fn family() -> Gathered {
        Gathered {
            members: vec![
                member("d", "deployment/web", ""),
                member("p", "pod/web-1-a", "r"),
                member("r", "replicaset/web-1", "d"),
            ],
            spans: vec![
                span("", (2, "", ""), 1, 0, 1),
                span("", (4, "webhook", "side.car"), 1, 2, 8),
                span("d", (4, "", ""), 1, 1, 10),
                span("d", (7, "", ""), 1, 11, 2),
                span("d", (9, "", "deployment"), 0, 14, 3),
                span("d", (9, "", "deployment"), 0, 30, 3),
                span("d", (7, "", ""), 2, 33, 1),
                span("r", (9, "", "replicaset"), 0, 18, 4),
                span("p", (10, "bind", ""), 0, 25, 5),
                span("p", (11, "pod", ""), 0, 30, 470),
                span("p", (11, "pull", "web"), 0, 40, 300),
                span("p", (11, "sandbox", ""), 0, 340, 100),
                span("x", (7, "", ""), 9, 0, 5000),
            ],
            silent: Vec::new(),
        }
    }

    #[test]
    fn owners_come_before_what_they_own_and_others_are_left_out() {
        let story = Story::of(&family(), false);
        let shown: Vec<(&str, usize, usize)> = story
            .chapters
            .iter()
            .map(|chapter| (chapter.member.name.as_str(), chapter.depth, chapter.rows.len()))
            .collect();
        assert_eq!(shown, [("deployment/web", 0, 6), ("replicaset/web-1", 1, 1), ("pod/web-1-a", 2, 4)]);
        assert_eq!(story.length, Duration::from_millis(500));
        assert_eq!(story.earlier, 0);
    }

    #[test]
    fn gates_belong_to_what_their_request_wrote_and_later_writes_are_counted() {
        let story = Story::of(&family(), false);
        let rows: Vec<(u8, &str, &str, usize)> = story.chapters[0]
            .rows
            .iter()
            .map(|row| (row.hop, row.stage.as_str(), row.by.as_str(), row.times.len()))
            .collect();
        let expected = [
            (2, "", "", 1),
            (4, "", "", 1),
            (4, "webhook", "side.car", 1),
            (7, "", "", 1),
            (9, "", "deployment", 2),
            (7, "later writes", "", 1),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_row_says_each_decision_once_with_what_was_counted() {
        let mut family = family();
        for (hop, decided, amounts) in [
            (9, "scaled ReplicaSet web-1 from 1 to 2", Amounts::default()),
            (9, "nothing to do", Amounts::default()),
            (9, "nothing to do", Amounts::default()),
            (7, "", Amounts { writes: 3, ..Amounts::default() }),
        ] {
            let by = if hop == 9 { "deployment" } else { "" };
            let request = u64::from(hop == 7);
            let span = Span { decided: decided.to_owned(), amounts, ..span("d", (hop, "", by), request, 5, 1) };
            family.spans.push(span);
        }
        let story = Story::of(&family, false);
        let said = |hop: u8| &story.chapters[0].rows.iter().find(|row| row.hop == hop).expect("a row").said;
        assert_eq!(said(9)[..], ["scaled ReplicaSet web-1 from 1 to 2", "nothing to do"]);
        assert_eq!(said(7)[..], ["in a group of 3 writes"]);
        let pull = Span {
            decided: "pulled".to_owned(),
            amounts: Amounts { bytes: 12, ..Amounts::default() },
            ..family.spans[10].clone()
        };
        assert_eq!(super::said(&pull), "pulled, 12 bytes");
    }

    #[test]
    fn a_node_does_nothing_before_the_pod_is_bound_to_it() {
        let mut family = family();
        for (stage, from) in [("volumes", 3), ("start-container", 60)] {
            family.spans.push(Span { process: "node".to_owned(), ..span("p", (11, stage, ""), 0, from, 7) });
        }
        let story = Story::of(&family, false);
        let from = |stage: &str| {
            let row = story.chapters[2].rows.iter().find(|row| row.stage == stage).expect("a row");
            row.times[0].from.as_millis()
        };
        // Bound at 25; what the node's process says was 22 early, all of it.
        assert_eq!((from("bind"), from("volumes"), from("start-container")), (25, 25, 82));
        assert_eq!(from("pull"), 40, "what the server's own process says stays");
    }

    #[test]
    fn what_was_before_a_long_silence_is_told_only_if_all_is_asked_for() {
        let mut family = family();
        for span in &mut family.spans {
            span.start = span.start.checked_add(Duration::from_secs(60)).expect("a time");
        }
        family.spans.push(span("d", (7, "", ""), 77, 0, 1));
        assert_eq!(Story::of(&family, false).earlier, 1);
        let all = Story::of(&family, true);
        assert_eq!((all.earlier, all.length), (0, Duration::from_millis(60_500)));
    }

    #[test]
    fn the_longest_is_a_part_and_not_what_holds_it() {
        let story = Story::of(&family(), false);
        let (chapter, row) = story.longest().expect("one");
        assert_eq!((chapter.member.name.as_str(), row.stage.as_str()), ("pod/web-1-a", "pull"));
    }

    #[test]
    fn time_in_several_spans_counts_once() {
        let interval = |from, to| Interval { from: Duration::from_millis(from), to: Duration::from_millis(to) };
        let times = [interval(5, 9), interval(0, 4), interval(3, 6), interval(20, 21)];
        assert_eq!(covered(times.into_iter()), Duration::from_millis(10));
        // Nothing happened in 13..14, 17..18 and 22..25.
        assert_eq!(Story::of(&family(), false).accounted, Duration::from_millis(495));
    }

    #[test]
    fn a_story_without_spans_is_empty() {
        let story = Story::of(&Gathered { members: vec![member("d", "pod/a", "")], ..Gathered::default() }, false);
        assert_eq!((story.begun, story.chapters.len(), story.longest()), (None, 0, None));
    }
}
