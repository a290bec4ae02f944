//! Stories of a Deployment, its ReplicaSet and a pod.

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
    let story = Story::of(&family(), false);
    assert_eq!(story.accounted, Duration::from_millis(495));
    assert_eq!(story.gaps, [interval(13, 14), interval(17, 18), interval(22, 25)]);
}

#[test]
fn the_way_of_a_pod_is_told_with_what_its_owners_did() {
    let mut family = family();
    assert!(Story::of(&family, false).chapters.iter().all(|chapter| chapter.way.is_none()), "it is not ready");
    family.spans.push(span("p", (12, "status", ""), 0, 510, 10));
    let story = Story::of(&family, false);
    let ways: Vec<bool> = story.chapters.iter().map(|chapter| chapter.way.is_some()).collect();
    assert_eq!(ways, [false, false, true]);
    let way = story.chapters[2].way.as_ref().expect("a way");
    assert_eq!((way.length, way.between()), (Duration::from_millis(520), Duration::from_millis(15)));
    assert!(way.parts.iter().any(|part| part.name == "webhook side.car"), "{way:?}");
}

#[test]
fn a_story_without_spans_is_empty() {
    let story = Story::of(&Gathered { members: vec![member("d", "pod/a", "")], ..Gathered::default() }, false);
    assert_eq!((story.begun, story.chapters.len(), story.longest()), (None, 0, None));
}
