//! `/debug/hops?uid=`: what happened to an object and to what it owns, hop by hop.

use hops::{Span, Stage};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The hops that are remembered of an object, oldest first.
pub fn of(uid: &str) -> Value {
    json!({"uid": uid, "hops": hops::about(uid).iter().map(shown).collect::<Vec<_>>()})
}

fn shown(span: &Span) -> Value {
    let began = Timestamp::try_from(span.start).map(|at| at.to_string()).unwrap_or_default();
    json!({
        "hop": span.hop.number(),
        "name": span.hop.name(),
        "stage": span.stage.map(Stage::name),
        "verb": span.verb,
        "uid": span.uid.to_string(),
        "owner": span.owner.to_string(),
        "revision": span.revision,
        "start": began,
        "seconds": span.took.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hops::Hop;

    #[test]
    fn a_span_is_shown_with_its_number_its_name_and_its_part() {
        let uid = "7c1bd1de-02a4-4c5b-9a1c-59dd1d1b8c0e";
        hops::start(Hop::Commit, "create").end(uid, "", 7);
        hops::stage(Stage::Pull, "ensure").end(uid, "", 0);
        let shown = of(uid);
        let names: Vec<(&Value, &Value, &Value)> =
            [0, 1].map(|at| &shown["hops"][at]).iter().map(|hop| (&hop["hop"], &hop["name"], &hop["stage"])).collect();
        assert_eq!(names[0], (&json!(7), &json!("etcd Txn — MVCC revision bump"), &Value::Null));
        assert_eq!(names[1], (&json!(11), &json!("kubelet observes, calls CRI"), &json!("pull")));
        assert_eq!((&shown["hops"][0]["revision"], &shown["hops"][0]["uid"]), (&json!(7), &json!(uid)));
    }
}
