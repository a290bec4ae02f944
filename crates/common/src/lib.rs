//! Small mechanisms that the crates of the API server and of nodes share. None of them knows what a request or an object is.
//!
//! - [`expiring`]: a bounded map whose entries are good for a while;
//! - [`files`]: notifications that a file or a directory changed;
//! - [`without_body`]: what is left of an answer for a HEAD;
//! - [`held`](fn@held): a stream that lets go of something when it ends;
//! - [`reload`]: configuration files that are followed while the process runs;
//! - [`Clock`]: the time, which tests set; [`new_uuid`]: identities.

pub mod expiring;
pub mod files;
mod head;
mod held;
pub mod reload;

use std::sync::Arc;

use jiff::Timestamp;

pub use head::without_body;
pub use held::held;

/// The time, injected so that tests can set it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A new uuid from the thread's own generator, which is as good as the system's and costs no system call.
pub fn new_uuid() -> uuid::Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}
