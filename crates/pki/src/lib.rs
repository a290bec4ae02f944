//! pki.
