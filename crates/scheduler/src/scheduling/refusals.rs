//! Which plug-ins refused how many nodes, in words: for the span of a pod's cycle.

use std::fmt;

use hops::Note;

use super::cycle::{Failure, Placement};
use crate::framework::{Diagnosis, Profile};

/// What a cycle decided, as far as it does not go without saying.
pub(super) fn note(profile: &Profile, diagnosis: &Diagnosis, outcome: &Result<Placement, Failure>) -> Note {
    match outcome {
        Err(Failure::NoNodes) => Note::of(format_args!("there are no nodes")),
        Err(Failure::Error(_)) => Note::of(format_args!("failed")),
        _ if diagnosis.refusals.is_empty() => Note::default(),
        _ => Note::of(format_args!("{}", Refusals { profile, diagnosis })),
    }
}

struct Refusals<'a> {
    profile: &'a Profile,
    diagnosis: &'a Diagnosis,
}

impl fmt::Display for Refusals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (id, count)) in self.diagnosis.refusals.iter().enumerate() {
            let named = self.profile.interests.iter().find(|(known, ..)| known == id);
            let name = named.map_or("an extender", |(_, _, plugin)| plugin.name());
            let (comma, plural) = (if place > 0 { ", " } else { "" }, if *count == 1 { "" } else { "s" });
            write!(f, "{comma}{name} refused {count} node{plural}")?;
        }
        Ok(())
    }
}
