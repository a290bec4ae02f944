//! The one client of the API: over HTTPS, or in process through the whole handler chain.
//!
//! A component gets a [`Client`] and cannot tell which transport is behind it. In process, a request is handed to the API
//! server's [`Handler`](machinery::rest::Handler) with the component's identity and passes every gate; only the encoding is
//! skipped. Over HTTPS it is HTTP/2 where the server speaks it. Either way objects are decoded straight from the bytes they
//! are stored or sent as, and every failure of the server is a typed [`ApiError`](machinery::ApiError).

mod answer;
mod client;
pub mod config;
mod dynamic;
mod error;
mod frames;
mod guard;
pub mod metrics;
mod original;
mod params;
mod path;
mod tally;
mod transport;
mod undecodable;

pub use answer::{Event, List};
pub use client::{Client, Kind};
pub use config::Config;
pub use dynamic::{Dynamic, Gvr, Partial};
pub use error::Error;
pub use guard::Guard;
pub use original::Original;
pub use params::{DeleteOptions, ListParams, Patch, Propagation, VersionMatch, WatchParams};
pub use transport::{Connection, Upgrade};
pub use undecodable::Undecodable;
