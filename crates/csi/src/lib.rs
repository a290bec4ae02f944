//! Storage drivers, spoken to by the Container Storage Interface v1, and the sockets by which they make themselves known.
//!
//! [`Driver`] is what the kubelet sees of a driver: a method per call of its node service, each with a time limit. [`registration`]
//! asks a plug-in who it is, and tells it what came of that. Whether a call that failed may have done something all the same is
//! said by [`Error::is_final`]: only then may what was prepared for it be taken away.
//!
//! A driver is a program of somebody else's. So every call has a connection of its own (one that hangs spoils no other), only so
//! many run at once, a socket that was swapped for a link is not followed, and nothing that carries secrets has a derived `Debug`.

mod driver;
mod error;
pub mod names;
pub mod registration;
mod secrets;
mod socket;

pub use driver::{Abilities, Driver};
pub use error::Error;
pub use socket::channel;

/// The messages of the wire contract, generated from `proto/csi.proto`.
#[allow(clippy::all, clippy::unwrap_used)]
pub mod v1 {
    tonic::include_proto!("csi.v1");
}
