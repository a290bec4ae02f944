//! Small mechanisms that the crates of the API server share. None of them knows what a request or an object is.
//!
//! - [`expiring`]: a bounded map whose entries are good for a while;
//! - [`held`](fn@held): a stream that lets go of something when it ends;
//! - [`reload`]: configuration files that are followed while the process runs;
//! - [`Clock`]: the time, which tests set; [`new_uuid`]: identities.

pub mod expiring;
mod held;
pub mod reload;

use std::sync::Arc;

use jiff::Timestamp;

pub use held::held;

/// The time, injected so that tests can set it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A new uuid from the thread's own generator, which is as good as the system's and costs no system call.
pub fn new_uuid() -> uuid::Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}
