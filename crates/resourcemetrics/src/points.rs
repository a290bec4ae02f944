//! The last two points of everything that is measured, and the use between them.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::{Batch, Containers, PodKey, Point};

/// How long a container must have run before its start counts as a point: in a shorter time it has mostly started.
const FRESH: SignedDuration = SignedDuration::from_secs(10);

/// What was used between two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// When it was measured last.
    pub time: Timestamp,
    pub window: Duration,
    /// Billionths of a core.
    pub cpu: u64,
    pub memory: u64,
}

impl Usage {
    /// `None` where a counter went back: something began anew between the two.
    fn between(last: &Point, previous: &Point) -> Option<Self> {
        if last.start < previous.start {
            return None;
        }
        let window =
            Duration::try_from(last.time.duration_since(previous.time)).ok().filter(|window| !window.is_zero())?;
        let cpu = last.cpu.checked_sub(previous.cpu)? as f64 / window.as_secs_f64();
        Some(Self { time: last.time, window, cpu: cpu as u64, memory: last.memory })
    }
}

/// What a pod used, container by container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUsage {
    /// That of the container that was measured first.
    pub time: Timestamp,
    pub window: Duration,
    pub containers: Vec<(String, Usage)>,
}

/// What was measured last, and before that.
#[derive(Debug)]
pub struct Points {
    /// How often kubelets are asked.
    resolution: SignedDuration,
    last: Batch,
    previous: Batch,
}

impl Points {
    pub fn new(resolution: Duration) -> Self {
        let resolution = SignedDuration::try_from(resolution).unwrap_or(SignedDuration::MAX);
        Self { resolution, last: Batch::default(), previous: Batch::default() }
    }

    /// What a round brought. What it did not bring is forgotten: a node that does not answer says nothing about now.
    pub fn store(&mut self, batch: Batch) {
        let mut previous = Batch::default();
        for (name, new) in &batch.nodes {
            let Some(last) = self.last.nodes.get(name) else { continue };
            let kept = before(new, last, self.previous.nodes.get(name));
            previous.nodes.extend(kept.map(|point| (name.clone(), point)));
        }
        for (key, containers) in &batch.pods {
            let of =
                |batch: &HashMap<PodKey, Containers>, name: &str| batch.get(key).and_then(|pod| pod.get(name)).copied();
            let point = |(name, new): (&String, &Point)| {
                let kept = match self.fresh(new) {
                    Some(start) => start,
                    None => {
                        let last = of(&self.last.pods, name)?;
                        // One that began after that is another container of the same name.
                        new.start.filter(|start| *start < last.time)?;
                        before(new, &last, of(&self.previous.pods, name).as_ref())?
                    }
                };
                Some((name.clone(), kept))
            };
            let kept: Containers = containers.iter().filter_map(point).collect();
            if !kept.is_empty() {
                previous.pods.insert(key.clone(), kept);
            }
        }
        (self.last, self.previous) = (batch, previous);
    }

    /// The start of a container that began in this round, as a point: then it had used nothing.
    fn fresh(&self, new: &Point) -> Option<Point> {
        let start = new.start?;
        let age = new.time.duration_since(start);
        (age >= FRESH && age < self.resolution).then_some(Point { time: start, cpu: 0, ..*new })
    }

    pub fn node(&self, name: &str) -> Option<Usage> {
        Usage::between(self.last.nodes.get(name)?, self.previous.nodes.get(name)?)
    }

    pub fn pod(&self, key: &PodKey) -> Option<PodUsage> {
        let (last, previous) = (self.last.pods.get(key)?, self.previous.pods.get(key)?);
        let mut containers = Vec::with_capacity(last.len());
        for (name, point) in last {
            let usage = Usage::between(point, previous.get(name)?);
            containers.extend(usage.map(|usage| (name.clone(), usage)));
        }
        let first = containers.iter().map(|(_, usage)| *usage).min_by_key(|usage| usage.time)?;
        Some(PodUsage { time: first.time, window: first.window, containers })
    }

    pub fn is_empty(&self) -> bool {
        self.previous.nodes.is_empty() && self.previous.pods.is_empty()
    }
}

/// The point before `new`: the last one, or the one before that where a kubelet has not measured since.
fn before(new: &Point, last: &Point, previous: Option<&Point>) -> Option<Point> {
    if new.time > last.time {
        return Some(*last);
    }
    previous.filter(|previous| previous.time < new.time).copied()
}
