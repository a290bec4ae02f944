//! The text of `kubectl describe`, for every kind. Pure: whoever calls asks the API server.
//!
//! A description is made in three steps, so that decisions stay apart from I/O:
//!
//! 1. [`describer`] finds how a kind is described; [`Describer::resources`] says where to get the object;
//! 2. [`Describer::reads`] says what has to be read besides, given the object: events, pods of a controller, a node's lease;
//! 3. [`Describer::text`] writes the text, given the object and the answers.
//!
//! Words, order and tab stops are upstream's to the letter. A kind that has no describer of its own is shown field by field
//! ([`generic`]).

mod events;
mod generic;
mod kinds;
mod label;
mod read;
mod show;
mod tabs;
mod writer;

use machinery::Value;

pub use read::{Answers, Failure, Read, Resource};
pub use show::Settings;
pub use tabs::{Tabs, align};

use kinds::Kind;
use show::Scene;
use writer::Writer;

/// Why there is no description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A read failed without whose answer nothing can be said. The message is the API server's.
    #[error("{0}")]
    Read(String),
    #[error("{0}")]
    Selector(String),
    #[error("Error parsing CSR: {0}")]
    Request(String),
}

/// How one kind is described.
#[derive(Clone, Copy)]
pub struct Describer(Option<&'static Kind>);

/// The describer of a kind. Versions do not matter: a describer names the version that it reads.
pub fn describer(group: &str, kind: &str) -> Describer {
    Describer(kinds::find(group, kind))
}

/// A template of pods alone, with tabs where columns would be: `rollout history` shows it so.
pub fn pod_template(template: &Value) -> String {
    let mut out = Writer::default();
    kinds::pod_template(&mut out, template);
    out.unaligned()
}

impl Describer {
    /// Whether the kind has a describer of its own.
    pub fn is_specific(&self) -> bool {
        self.0.is_some()
    }

    /// Where to get the object from, the first that has it. Empty: as it was asked for.
    pub fn resources(&self) -> &'static [Resource] {
        self.0.map_or(&[], |kind| kind.resources)
    }

    /// What has to be read besides the object, in the order in which upstream's client asks.
    pub fn reads(&self, object: &Value, show_events: bool) -> Vec<Read> {
        match self.0 {
            None => generic::reads(object, show_events),
            Some(kind) => (kind.reads)(object, show_events),
        }
    }

    /// The description. A read that has no answer counts as one that was not made.
    pub fn text(&self, object: &Value, answers: &Answers, settings: &Settings) -> Result<String, Error> {
        let scene = Scene { object, answers, settings };
        let mut out = Writer::default();
        match self.0 {
            None => generic::text(&scene, &mut out),
            Some(kind) => (kind.text)(&scene, &mut out)?,
        }
        Ok(out.finish())
    }
}
