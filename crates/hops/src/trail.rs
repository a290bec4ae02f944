//! `/debug/hops?uid=`, as the API server and every node answer it: what happened to an object and to what it owns, hop by hop.
//!
//! Who puts together what several processes say must know that the clocks of machines differ, and that one process may answer at two
//! doors. So the answer says what its clock says now, and which process it is from.

use std::sync::LazyLock;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Span, Stage, Uid, about};

/// The hops that are remembered of an object, oldest first.
pub fn trail(uid: &str) -> Value {
    json!({
        "uid": uid,
        "process": PROCESS.to_string(),
        "now": shown_time(SystemTime::now()),
        "hops": about(uid).iter().map(shown).collect::<Vec<_>>(),
    })
}

/// Another one for each process: a number and when it began.
static PROCESS: LazyLock<Uid> = LazyLock::new(|| {
    let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Uid::from_halves(u64::from(std::process::id()), begun.as_nanos() as u64)
});

fn shown_time(time: SystemTime) -> String {
    Timestamp::try_from(time).map(|at| at.to_string()).unwrap_or_default()
}

fn shown(span: &Span) -> Value {
    let words = span.note.words();
    let mut shown = json!({
        "hop": span.hop.number(),
        "name": span.hop.name(),
        "stage": span.stage.map(Stage::name),
        "verb": span.verb,
        "by": span.by,
        "uid": span.uid.to_string(),
        "owner": span.owner.to_string(),
        "request": span.request,
        "revision": span.revision,
        "start": shown_time(span.start),
        "seconds": span.took.as_secs_f64(),
    });
    // Most have neither.
    if let Some(unit) = span.unit().filter(|_| span.amount != 0) {
        shown[unit] = span.amount.into();
    }
    if !words.is_empty() {
        shown["decided"] = words.into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Hop, Note};

    #[test]
    fn a_span_is_shown_with_its_number_its_name_its_part_and_who_did_it() {
        let uid = "7c1bd1de-02a4-4c5b-9a1c-59dd1d1b8c0e";
        let pull = Span {
            hop: Hop::Kubelet,
            stage: Some(Stage::Pull),
            verb: "ensure",
            by: "web",
            uid: Uid::of(uid),
            owner: Uid::default(),
            request: 3,
            revision: 7,
            amount: 0,
            note: Note::default(),
            start: SystemTime::UNIX_EPOCH,
            took: Duration::from_millis(250),
        };
        let expected = json!({
            "hop": 11, "name": "kubelet observes, calls CRI", "stage": "pull", "verb": "ensure", "by": "web", "uid": uid,
            "owner": "", "request": 3, "revision": 7, "start": "1970-01-01T00:00:00Z", "seconds": 0.25,
        });
        assert_eq!(shown(&pull), expected);
        assert_eq!(shown(&Span { stage: None, ..pull })["stage"], Value::Null);
        let note = Note::of(format_args!("pulled busybox"));
        let told = shown(&Span { amount: 1200, note, ..pull });
        assert_eq!((&told["bytes"], &told["decided"]), (&json!(1200), &json!("pulled busybox")));
    }

    #[test]
    fn an_answer_says_whose_it_is_and_when() {
        let (one, other) = (trail(""), trail(""));
        assert_eq!((&one["process"], &one["hops"]), (&other["process"], &json!([])));
        assert!(one["now"].as_str().is_some_and(|now| now.parse::<Timestamp>().is_ok()), "{one}");
    }
}
