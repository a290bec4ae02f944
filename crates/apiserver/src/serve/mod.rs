//! The HTTPS listener: bytes in, requests to the chain, answers out in the form the client asked for.

mod body;
mod cork;
mod encode;
mod events;
mod frames;
mod gzip;
mod listener;
mod settings;
mod shown;

pub use listener::Listener;
pub use settings::{Headers, Settings};
pub use shown::{ByName, Named, Shown};
