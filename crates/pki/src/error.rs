//! Why a key or a certificate could not be made, read or kept.

use std::path::PathBuf;

/// A failure, with the file it is about where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or a directory cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What a file holds cannot be used.
    #[error("{}: {source}", path.display())]
    Content {
        path: PathBuf,
        #[source]
        source: Box<Error>,
    },
    /// The text holds no PEM of the wanted kind.
    #[error("no {0} in PEM")]
    NotPem(&'static str),
    /// The bytes are no DER of the wanted structure.
    #[error("malformed {what}: {source}")]
    Der {
        what: &'static str,
        /// Where it is wrong.
        #[source]
        source: der::Error,
    },
    /// The private key is of a type that cannot sign here.
    #[error("private key is not usable: {0}")]
    Key(String),
    /// A signature does not fit its key.
    #[error("signature of the {0} does not verify")]
    Signature(&'static str),
    /// The signature algorithm or key type is not one that is supported.
    #[error("unsupported signature algorithm {0}")]
    Algorithm(String),
    /// The authority's certificate and key do not belong together; neither is replaced silently.
    #[error("{} and {} do not belong together", certificate.display(), key.display())]
    Mismatch { certificate: PathBuf, key: PathBuf },
    /// What is there already is another cluster's.
    #[error("{} is another cluster's: this directory has been a server's before", .0.display())]
    Foreign(PathBuf),
    /// TLS refuses the certificate, its key or the authorities.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// The system's source of randomness failed.
    #[error("no randomness from the system")]
    Randomness,
}

impl Error {
    pub(crate) fn der(what: &'static str) -> impl FnOnce(der::Error) -> Self {
        move |source| Self::Der { what, source }
    }
}
