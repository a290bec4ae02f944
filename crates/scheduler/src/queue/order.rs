//! Which of two pods comes first.

use std::sync::Arc;

use super::QueuedPod;
use super::heap::Order;
use crate::framework::QueueSort;

pub(super) struct ByQueueSort(pub(super) Arc<dyn QueueSort>);

impl Order for ByQueueSort {
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        self.0.less(a, b)
    }
}

pub(super) struct ByBackoff(pub(super) Arc<dyn QueueSort>);

impl Order for ByBackoff {
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        if a.backoff_until == b.backoff_until { self.0.less(a, b) } else { a.backoff_until < b.backoff_until }
    }
}
