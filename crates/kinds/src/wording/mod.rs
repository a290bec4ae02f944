//! What imitates the wording of upstream's code and nothing else: values printed as the Go structs that upstream has in memory, and
//! texts that betray how it counts. Rules of kinds are not here.

pub mod bytes;
pub mod internal;
pub mod selector;

pub use internal::{compact, difference, show};
