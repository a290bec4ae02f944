//! What a failed attempt writes into its pod: the `PodScheduled` condition and the nomination. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::model::pod::PodInfo;
use crate::queue::Nomination;

/// The longest note an event may have.
const MAX_NOTE: usize = 1024;

/// A condition to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition<'a> {
    pub kind: &'a str,
    /// `True` or `False`.
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}

/// The strategic merge patch that brings a pod's status up to date; `None` when it is.
pub fn patch(
    pod: &PodInfo,
    condition: Option<Condition<'_>>,
    nomination: &Nomination,
    now: Timestamp,
) -> Option<Value> {
    let mut status = Map::new();
    if let Some(condition) = condition.and_then(|c| condition_patch(pod, &c, now)) {
        status.insert("conditions".into(), json!([condition]));
    }
    let nominated = pod.nominated_node().unwrap_or_default();
    if let Nomination::Set(node) = nomination
        && node != nominated
    {
        let value = if node.is_empty() { Value::Null } else { json!(node) };
        status.insert("nominatedNodeName".into(), value);
    }
    (!status.is_empty()).then(|| json!({ "status": status }))
}

fn condition_patch(pod: &PodInfo, condition: &Condition<'_>, now: Timestamp) -> Option<Value> {
    let held = pod.condition(condition.kind);
    let generation = pod.generation().filter(|g| *g > 0);
    let mut transition = now;
    if let Some(held) = held.filter(|held| held.status == condition.status) {
        if held.reason.as_deref() == Some(condition.reason)
            && held.message.as_deref() == Some(condition.message)
            && held.observed_generation == generation
        {
            return None;
        }
        transition = held.last_transition_time.as_ref().map_or(now, |t| t.0);
    }
    // Whole seconds, as the API keeps them.
    let transition = Timestamp::from_second(transition.as_second()).unwrap_or(transition);
    let mut value = json!({
        "type": condition.kind,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastProbeTime": null,
        "lastTransitionTime": transition.to_string(),
    });
    if let Some(generation) = generation {
        value["observedGeneration"] = json!(generation);
    }
    Some(value)
}

/// A message cut to what an event can hold.
pub fn note(message: &str) -> String {
    if message.len() <= MAX_NOTE {
        return message.to_owned();
    }
    const SUFFIX: &str = " ...";
    let end = (0..=MAX_NOTE - SUFFIX.len()).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
    format!("{}{SUFFIX}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    const UNSCHEDULABLE: Condition<'_> = Condition {
        kind: "PodScheduled",
        status: "False",
        reason: "Unschedulable",
        message: "0/1 nodes are available",
    };

    #[test]
    fn a_condition_is_written_once() {
        let now = Timestamp::from_second(100).unwrap();
        let patch_of = |pod: &PodInfo| patch(pod, Some(UNSCHEDULABLE), &Nomination::Keep, now);
        let value = patch_of(&pod("p").info()).unwrap();
        assert_eq!(value["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:01:40Z");

        let mut held = pod("p").condition("PodScheduled", "False", "Unschedulable").build();
        if let Some(conditions) = held.status.as_mut().and_then(|s| s.conditions.as_mut()) {
            conditions[0].message = Some(UNSCHEDULABLE.message.into());
        }
        assert_eq!(patch_of(&PodInfo::new(held.into())), None, "nothing changed, so nothing is written");
    }

    #[test]
    fn a_nomination_is_set_and_cleared() {
        let now = Timestamp::UNIX_EPOCH;
        let set = Nomination::Set("n1".into());
        assert_eq!(patch(&pod("p").info(), None, &set, now).unwrap()["status"]["nominatedNodeName"], "n1");
        assert_eq!(patch(&pod("p").nominated("n1").info(), None, &set, now), None);
        let clear = Nomination::Set(String::new());
        assert!(
            patch(&pod("p").nominated("n1").info(), None, &clear, now).unwrap()["status"]["nominatedNodeName"]
                .is_null()
        );
        assert_eq!(patch(&pod("p").info(), None, &clear, now), None);
    }

    #[test]
    fn notes_are_cut_at_a_character() {
        let cut = note(&"ä".repeat(600));
        assert!(cut.len() <= MAX_NOTE && cut.ends_with("ä ..."));
    }
}
