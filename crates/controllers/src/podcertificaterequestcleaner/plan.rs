//! How long a request is kept.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::PodCertificateRequest;

use crate::common::expiry::{Expiry, expiry};
use crate::common::meta::MetaExt;

/// Signers answer sooner than this, and the kubelet reads the answer at once.
const KEPT: Duration = Duration::from_secs(15 * 60);

pub(super) fn plan(request: &PodCertificateRequest, now: Timestamp) -> Expiry {
    expiry(expires(request), now)
}

/// When a request may go; `None` for one that is going.
fn expires(request: &PodCertificateRequest) -> Option<Timestamp> {
    if request.metadata.is_deleting() {
        return None;
    }
    request.metadata.creation_timestamp.as_ref().map(|created| clock::add(created.0, KEPT))
}
