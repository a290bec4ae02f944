//! Probes: whether a container has started, lives and is ready.
//!
//! [`Verdicts`] is what the rest of the kubelet sees; a task per container and kind of probe keeps it up to date.

pub mod http_get;
pub mod prober;
pub mod task;

use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Has it started? The others wait for this one.
    Startup,
    /// Does it still live? If not, it is restarted.
    Liveness,
    /// May it get traffic?
    Readiness,
}

impl Kind {
    /// As events spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// What a probe has come to, after its thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Success,
    Failure,
}

/// Verdicts about the containers of a pod, by container id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts(HashMap<(String, Kind), Verdict>);

impl Verdicts {
    /// The verdict, if there is one.
    pub fn get(&self, container: &str, kind: Kind) -> Option<Verdict> {
        self.0.get(&(container.to_owned(), kind)).copied()
    }

    /// Notes a verdict; says whether it is news.
    pub fn set(&mut self, container: &str, kind: Kind, verdict: Verdict) -> bool {
        self.0.insert((container.to_owned(), kind), verdict) != Some(verdict)
    }

    /// Forgets containers that are gone.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(container, _), _| keep(container));
    }
}
