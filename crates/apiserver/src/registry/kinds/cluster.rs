//! CertificateSigningRequests.

use machinery::Value;

use super::super::strategy::Strategy;
use crate::rest::keep;

/// CertificateSigningRequests: their spec is what was asked for, by whom, and never changes.
pub struct CertificateSigningRequests;

impl Strategy for CertificateSigningRequests {
    fn fields(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }
}
