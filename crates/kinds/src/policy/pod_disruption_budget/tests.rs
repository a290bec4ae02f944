//! What an eviction takes from a budget.

use machinery::Value;
use serde_json::json;

use super::subresources::spend;

fn budget(status: Value) -> Value {
    json!({"metadata": {"name": "b", "generation": 1}, "status": status})
}

#[test]
fn a_disruption_is_taken_once_and_remembered() {
    let left =
        budget(json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}));
    let spent = spend(&left, true, "p", "now").expect("one is left").expect("a change");
    assert_eq!(spent["status"]["disruptionsAllowed"], 0);
    assert_eq!(spent["status"]["disruptedPods"], json!({"p": "now"}));
    let refused = spend(&spent, true, "q", "now").expect_err("none is left");
    assert_eq!(refused.code, 429);
    let cause = &refused.details.expect("details").causes[0];
    assert_eq!(cause.message, "The disruption budget b needs 2 healthy pods and has 3 currently");
    let free = spend(&spent, false, "q", "now").expect("enough are healthy without it");
    assert_eq!(free, None, "who is not healthy takes nothing");
    let unseen = spend(&budget(json!({"disruptionsAllowed": 1})), true, "p", "now").expect_err("not counted yet");
    assert_eq!(unseen.details.expect("details").retry_after, 10);
}
