//! SchedulingGates: a pod with gates is not tried.

use std::sync::Arc;

use crate::framework::{Action, Interest, Plugin, Points, PreEnqueue, Rejection, Resource};
use crate::model::pod::PodInfo;

/// Keeps pods out of the active queue until their last gate is gone.
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        super::SCHEDULING_GATES
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_enqueue)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::new(Resource::TargetPod, Action::POD_GATES_ELIMINATED)]
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection> {
        if pod.gates.is_empty() {
            return Ok(());
        }
        Err(Rejection::unresolvable(format!("waiting for scheduling gates: [{}]", pod.gates.join(" "))))
    }
}
