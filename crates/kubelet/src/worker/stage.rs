//! Where a pod is in its life on this node.
//!
//! ```text
//!          RoomMade           RanToItsEnd              Stopped              DeletionAsked            Forgotten
//! Queued ───────────► Syncing ───────────► Terminating ───────► Terminated ──────────────► Removing ──────────► Gone
//!    │                   │ TerminationOrdered   ▲
//!    └───────────────────┴──────────────────────┘
//! ```
//! `Queued` waits for pods that have to make room. `Syncing` plans, acts and reports, and waits for news. `Terminating` stops what
//! runs. `Terminated` gives back what the pod had and keeps its containers for whoever asks for their logs. `Removing` removes those
//! and lets the API forget the pod. No stage is ever left backwards: a pod that began to end does end.
//!
//! The stage is not written down. A worker that starts anew begins at `Queued`, and the pod and the runtime lead it to where its
//! predecessor was: every stage does nothing where its work is done already. So a panic costs a stage only time.

/// What a worker is doing with its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    Syncing,
    Terminating,
    Terminated,
    Removing,
    Gone,
}

/// What ends a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Nobody is in the way any more.
    RoomMade,
    /// Somebody deletes the pod, the node ends it, or the API does not have it any more.
    TerminationOrdered,
    /// All of its containers have ended and none is to be started again, or its deadline has passed.
    RanToItsEnd,
    /// Nothing of it runs.
    Stopped,
    /// Nobody wants to see it any more.
    DeletionAsked,
    /// The API does not have it any more.
    Forgotten,
}

const TRANSITIONS: [(Stage, Event, Stage); 7] = [
    (Stage::Queued, Event::RoomMade, Stage::Syncing),
    (Stage::Queued, Event::TerminationOrdered, Stage::Terminating),
    (Stage::Syncing, Event::TerminationOrdered, Stage::Terminating),
    (Stage::Syncing, Event::RanToItsEnd, Stage::Terminating),
    (Stage::Terminating, Event::Stopped, Stage::Terminated),
    (Stage::Terminated, Event::DeletionAsked, Stage::Removing),
    (Stage::Removing, Event::Forgotten, Stage::Gone),
];

impl Stage {
    /// The stage after an event; the same one where the event does not end it.
    pub(super) fn after(self, event: Event) -> Self {
        let found = TRANSITIONS.iter().find(|(from, cause, _)| (*from, *cause) == (self, event));
        found.map_or(self, |(.., next)| *next)
    }

    /// The stage after its work: what the work came to, if it came to something and did not panic.
    pub(super) fn after_work(self, worked: Option<Option<Event>>) -> Self {
        worked.flatten().map_or(self, |event| self.after(event))
    }
}

#[cfg(test)]
mod tests {
    use informer::guard;

    use super::*;

    const STAGES: [Stage; 6] =
        [Stage::Queued, Stage::Syncing, Stage::Terminating, Stage::Terminated, Stage::Removing, Stage::Gone];
    const EVENTS: [Event; 6] = [
        Event::RoomMade,
        Event::TerminationOrdered,
        Event::RanToItsEnd,
        Event::Stopped,
        Event::DeletionAsked,
        Event::Forgotten,
    ];

    fn after(events: &[Event]) -> Stage {
        events.iter().fold(Stage::Queued, |stage, event| stage.after(*event))
    }

    #[test]
    fn a_pod_that_runs_to_its_end_is_kept_until_its_deletion_is_asked_for() {
        let ended = [Event::RoomMade, Event::RanToItsEnd, Event::Stopped];
        assert_eq!(after(&ended), Stage::Terminated);
        assert_eq!(after(&[&ended[..], &[Event::DeletionAsked, Event::Forgotten]].concat()), Stage::Gone);
    }

    #[test]
    fn a_pod_that_is_deleted_before_there_is_room_for_it_never_starts() {
        assert_eq!(after(&[Event::TerminationOrdered]), Stage::Terminating);
        assert_eq!(after(&[Event::TerminationOrdered, Event::RoomMade]), Stage::Terminating);
    }

    #[test]
    fn a_pod_that_began_to_end_never_runs_again() {
        for stage in &STAGES[2..] {
            for event in EVENTS {
                assert!(![Stage::Queued, Stage::Syncing].contains(&stage.after(event)), "{stage:?} after {event:?}");
            }
        }
    }

    #[test]
    fn no_stage_is_left_backwards_and_every_one_is_reached() {
        let place = |stage: Stage| STAGES.iter().position(|one| *one == stage);
        for (from, event, to) in TRANSITIONS {
            assert!(place(from) < place(to), "{from:?} after {event:?}");
        }
        for stage in &STAGES[1..] {
            assert!(TRANSITIONS.iter().any(|(_, _, to)| to == stage), "{stage:?}");
        }
    }

    #[tokio::test]
    async fn a_stage_whose_work_panics_is_worked_at_again() {
        let mistake = guard::caught("pod worker", &"uid", async { panic!("on purpose") }).await;
        assert_eq!(Stage::Terminating.after_work(mistake), Stage::Terminating);
        let done = guard::caught("pod worker", &"uid", async { Some(Event::Stopped) }).await;
        assert_eq!(Stage::Terminating.after_work(done), Stage::Terminated);
        assert_eq!(Stage::Syncing.after_work(Some(None)), Stage::Syncing);
    }

    #[test]
    fn what_does_not_concern_a_stage_leaves_it() {
        assert_eq!(Stage::Syncing.after(Event::Forgotten), Stage::Syncing);
        for event in EVENTS {
            assert_eq!(Stage::Gone.after(event), Stage::Gone);
        }
    }
}
