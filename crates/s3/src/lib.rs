//! Objects in a bucket of anybody who speaks S3: put, get, list, delete, and files of any size in parts.
//!
//! ```text
//! Settings: flags ▸ environment ▸ file ─► Bucket ─► sign (pure) ─► one connection, HTTPS
//! ```
//! Buckets are addressed by path (`https://ENDPOINT/BUCKET/KEY`), which all of them understand. Every request is signed with Signature Version 4, its body included,
//! so nobody on the way can change either. What is sent is as a rule secret, so it goes in clear over the loopback only; secrets of ours are in no argument, message or `Debug`.
//!
//! Why not an SDK: those there are bring a runtime's worth of crates for five kinds of request. The signature is HMAC and SHA-256, which `ring` has.

mod address;
mod bucket;
mod connection;
mod settings;
mod sign;
mod xml;

pub use address::Address;
pub use bucket::{Bucket, Listing};
pub use settings::{Credentials, Given, Settings};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is no address of a bucket: s3://BUCKET/PREFIX is wanted")]
    Address(String),
    #[error("{0:?} is no endpoint: https://HOST[:PORT] is wanted, and http:// on the loopback only")]
    Endpoint(String),
    #[error(
        "no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and {path} has no [{profile}] with aws_access_key_id and aws_secret_access_key"
    )]
    Credentials { path: String, profile: String },
    #[error("cannot read {path}: {source}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    Authority(#[from] pki::Error),
    /// The other side was not reached, or broke off.
    #[error("{endpoint}: {why}")]
    Connection { endpoint: String, why: String },
    /// The other side said no.
    #[error("{what}: {status} {code}: {message}")]
    Refused { what: String, status: u16, code: String, message: String },
    #[error("{what}: the answer cannot be understood: {why}")]
    Answer { what: String, why: &'static str },
}

impl Error {
    /// Whether there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether the next attempt may well succeed.
    fn passes(&self) -> bool {
        matches!(self, Self::Connection { .. } | Self::Refused { status: 429 | 500..=599, .. })
    }
}
