//! A pod in the queue, and the times that follow from its history.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::QueueConfig;
use crate::framework::{PluginId, PluginSet};
use crate::model::pod::PodInfo;

/// Backoff ends at whole seconds, so that pods which end theirs together are ordered by priority.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// A pod in the queue, with the history that decides when it is tried again.
#[derive(Debug, Clone)]
pub struct QueuedPod {
    pub info: Arc<PodInfo>,
    /// When it came into the queue, or when its last attempt ended.
    pub timestamp: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// When it first became active.
    pub first_active: Option<Timestamp>,
    /// Plugins that rejected it.
    pub rejectors: PluginSet,
    /// Plugins that it waits for.
    pub pending: PluginSet,
    pub(super) unschedulable_count: u32,
    pub(super) consecutive_errors: u32,
    pub(super) backoff_until: Option<Timestamp>,
    pub(super) gated_by: Option<PluginId>,
    pub(super) flushed_at: Option<Timestamp>,
}

impl QueuedPod {
    pub(super) fn new(info: Arc<PodInfo>, now: Timestamp) -> Self {
        Self {
            info,
            timestamp: now,
            attempts: 0,
            first_active: None,
            rejectors: PluginSet::default(),
            pending: PluginSet::default(),
            unschedulable_count: 0,
            consecutive_errors: 0,
            backoff_until: None,
            gated_by: None,
            flushed_at: None,
        }
    }

    /// Whether its latest attempt came because no event had helped it in time.
    pub fn was_flushed(&self) -> bool {
        self.flushed_at.is_some()
    }

    /// Until when the pod backs off after its latest failure.
    pub(super) fn backoff(&self, config: &QueueConfig) -> Option<Timestamp> {
        let count = if self.consecutive_errors > 0 { self.consecutive_errors } else { self.unschedulable_count };
        if config.max_backoff.is_zero() || count == 0 {
            return None;
        }
        let factor = 1u32.checked_shl(count - 1).unwrap_or(u32::MAX);
        let backoff = config.initial_backoff.saturating_mul(factor).min(config.max_backoff);
        Some(window(later(self.timestamp, backoff)))
    }
}

pub(super) fn is_backing_off(pod: &QueuedPod, now: Timestamp) -> bool {
    pod.backoff_until.is_some_and(|until| until >= window(now))
}

pub(super) fn forgotten_at(pod: &QueuedPod, limit: Duration) -> Timestamp {
    later(pod.flushed_at.map_or(pod.timestamp, |t| t.max(pod.timestamp)), limit)
}

fn window(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

pub(super) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}
