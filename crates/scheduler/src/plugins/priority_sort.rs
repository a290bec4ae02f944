//! PrioritySort: higher priority first, then first come first served.

use std::sync::Arc;

use crate::framework::{Interest, Plugin, Points, QueueSort};
use crate::queue::QueuedPod;

/// Orders the queue by priority and time.
pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        super::PRIORITY_SORT
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: queue_sort)
    }

    fn interests(&self) -> Vec<Interest> {
        // It rejects no pod.
        Vec::new()
    }
}

impl QueueSort for PrioritySort {
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        (b.info.priority, a.timestamp) < (a.info.priority, b.timestamp)
    }
}
