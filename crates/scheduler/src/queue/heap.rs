//! A binary heap of queued pods that also finds and removes any of them by uid.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::QueuedPod;

/// The order of a heap.
pub(super) trait Order {
    /// Whether `a` comes out before `b`.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool;
}

/// The pods of one queue.
#[derive(Default)]
pub(super) struct Heap {
    pods: Vec<QueuedPod>,
    positions: FxHashMap<Arc<str>, usize>,
}

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.positions.contains_key(uid)
    }

    pub(super) fn peek(&self) -> Option<&QueuedPod> {
        self.pods.first()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuedPod> {
        self.pods.iter()
    }

    pub(super) fn push(&mut self, pod: QueuedPod, order: &impl Order) {
        let position = self.pods.len();
        self.positions.insert(pod.info.uid().clone(), position);
        self.pods.push(pod);
        self.sift_up(position, order);
    }

    pub(super) fn pop(&mut self, order: &impl Order) -> Option<QueuedPod> {
        (!self.pods.is_empty()).then(|| self.remove_at(0, order))
    }

    pub(super) fn remove(&mut self, uid: &str, order: &impl Order) -> Option<QueuedPod> {
        let position = *self.positions.get(uid)?;
        Some(self.remove_at(position, order))
    }

    fn remove_at(&mut self, position: usize, order: &impl Order) -> QueuedPod {
        let removed = self.pods.swap_remove(position);
        self.positions.remove(removed.info.uid());
        if position < self.pods.len() {
            self.moved(position);
            self.sift_down(position, order);
            self.sift_up(position, order);
        }
        removed
    }

    fn moved(&mut self, position: usize) {
        if let Some(held) = self.positions.get_mut(self.pods[position].info.uid()) {
            *held = position;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.pods.swap(a, b);
        self.moved(a);
        self.moved(b);
    }

    fn sift_up(&mut self, mut position: usize, order: &impl Order) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if !order.less(&self.pods[position], &self.pods[parent]) {
                break;
            }
            self.swap(position, parent);
            position = parent;
        }
    }

    fn sift_down(&mut self, mut position: usize, order: &impl Order) {
        loop {
            let mut first = position;
            for child in [2 * position + 1, 2 * position + 2] {
                if child < self.pods.len() && order.less(&self.pods[child], &self.pods[first]) {
                    first = child;
                }
            }
            if first == position {
                break;
            }
            self.swap(position, first);
            position = first;
        }
    }
}
