//! When a token goes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::common::expiry::{Expiry, expiry};

pub(super) fn plan(token: &Secret, now: Timestamp) -> Expiry {
    expiry(expires(token), now)
}

/// When a token expires; one whose time cannot be read has expired, one without a time never does.
fn expires(token: &Secret) -> Option<Timestamp> {
    let text = token.data.as_ref()?.get("expiration")?;
    let at = std::str::from_utf8(&text.0).ok().and_then(machinery::time::parse);
    Some(at.unwrap_or(Timestamp::UNIX_EPOCH))
}
