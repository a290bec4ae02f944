//! Who is it? A chain of authenticators: the first that knows the peer wins, and who shows nothing is anonymous.
//!
//! A credential that is shown and does not hold is refused; only its absence makes a request anonymous.

pub mod service_accounts;

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use machinery::rest::{Peer, User};
use machinery::status::ApiError;

use service_accounts::ServiceAccounts;

/// The chain.
pub struct Authenticator {
    /// Bound service account tokens.
    pub service_accounts: Arc<ServiceAccounts>,
}

impl Authenticator {
    /// The identity behind a request, or 401.
    pub fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Arc<User>, ApiError> {
        let certificates = match peer {
            Peer::InProcess(user) => return Ok(user.clone()),
            Peer::Remote { certificates, .. } => certificates,
        };
        if let Some(leaf) = certificates.first() {
            return certificate(leaf).ok_or_else(ApiError::unauthorized).map(Arc::new);
        }
        if let Some(token) = bearer(headers)? {
            return self.service_accounts.authenticate(token).ok_or_else(ApiError::unauthorized).map(Arc::new);
        }
        Ok(Arc::new(User {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..User::default()
        }))
    }
}

/// `CN` is the user, every `O` a group. TLS has proved that the peer holds the key and that our CA signed it.
fn certificate(der: &[u8]) -> Option<User> {
    let subject = pki::Certificate::from_der(der).ok()?.subject;
    if subject.common_name.is_empty() {
        return None;
    }
    Some(User::new(subject.common_name, subject.organizations.iter().map(String::as_str)))
}

/// The token of an `Authorization: Bearer` header.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = header.to_str().map_err(|_| ApiError::unauthorized())?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            Ok(Some(token.trim()))
        }
        _ => Err(ApiError::unauthorized()),
    }
}
