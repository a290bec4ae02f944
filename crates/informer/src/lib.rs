//! What every component that watches the API stands on: caches, queues, and the small mechanisms around them.
//!
//! [`Informers`] keeps one watch and one typed cache per kind; an [`Informer`] reads that cache and tells handlers of changes, always after
//! the cache holds what they are called with. Handlers put [`Key`]s into a [`WorkQueue`], and a [`Reconciler`] takes them out, one worker per key,
//! with back-off. [`Expectations`] bridge the gap between a write and its echo in the cache, [`Recorder`] writes events without flooding the
//! API, [`election`] decides which of several processes works. Time comes from a [`Clock`] that tests advance by hand.
//!
//! Deliberately absent: any knowledge of what a kind means, and any loop that wakes up to look for work.

mod aside;
mod backoff;
mod cache;
pub mod clock;
mod echoes;
pub mod election;
pub mod events;
mod expectations;
pub mod guard;
mod informers;
mod key;
pub mod metrics;
mod queue;
mod reconciler;
mod reflector;
mod source;
mod turns;

pub use backoff::Backoff;
pub use cache::{Change, Informer, Item, Phase, Read};
pub use clock::Clock;
pub use echoes::{Echoes, UNOBSERVED};
pub use events::{EventType, Recorder};
pub use expectations::Expectations;
pub use informers::{Filter, Informers};
pub use key::Key;
pub use queue::{Taken, WorkQueue};
pub use reconciler::{Action, Reconciler, feed, run};
pub use source::{AllMetadata, Cached, Metadata, Source, Stream, struct_events, structs};
pub use turns::{Turns, turns};
