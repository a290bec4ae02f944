//! What the table of facts says about a tree: which fields there are, what their values may be, what is left out.
//!
//! The walks, in the order in which a request meets them:
//! - [`mod@exact`] reads the text again where numbers of it are more than a tree can hold.
//! - [`conform()`] brings what a client sent into the form upstream's decoder would have kept: types are checked, unknown
//!   fields are dropped and named, nulls and zeros that mean "not set" are dropped, scalars get their canonical form.
//!   Where anything was unknown or given twice, [`complaints`] reads the text again, for the words alone.
//! - [`default`] sets the defaults that are data; those that need code come after it.
//! - [`complete`] adds the fields that upstream writes even when they are zero (`resources: {}`).
//! - [`settle`] forgets the empty lists and maps that only rules tell from absent ones, last of all.
//!
//! [`from_unstructured`] comes before them where upstream converts and does not decode: in strategic merge patches and applies.
//! [`prune_unknown`] is the part of [`conform()`] that custom resources need: what else is wrong with them, validation says.

mod conform;
mod defaults;
mod exact;
mod presence;
pub(crate) mod scalar;
mod strict;
mod unstructured;

pub(crate) use conform::json_schema;
pub use conform::{check_types, conform, conform_converted, prune_unknown};
pub use defaults::{complete, default};
pub use exact::exact;
pub use presence::{Form, settle};
pub use scalar::url_bytes;
pub use strict::complaints;
pub use unstructured::from_unstructured;
