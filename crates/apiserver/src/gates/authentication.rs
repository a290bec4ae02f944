//! Who is it? Client certificates and in-process identities; everybody else is refused.

use std::sync::Arc;

use http::HeaderMap;
use machinery::rest::{Peer, User};
use machinery::status::ApiError;

/// The chain of authenticators; the first that knows the peer wins.
#[derive(Debug, Default)]
pub struct Authenticator {}

impl Authenticator {
    /// The identity behind a request, or 401.
    pub fn authenticate(&self, peer: &Peer, _headers: &HeaderMap) -> Result<Arc<User>, ApiError> {
        match peer {
            Peer::InProcess(user) => Ok(user.clone()),
            Peer::Remote { certificates, .. } => {
                let leaf = certificates.first().ok_or_else(ApiError::unauthorized)?;
                let certificate = pki::Certificate::from_der(leaf).map_err(|_| ApiError::unauthorized())?;
                let subject = certificate.subject;
                if subject.common_name.is_empty() {
                    return Err(ApiError::unauthorized());
                }
                Ok(Arc::new(User::new(subject.common_name, subject.organizations.iter().map(String::as_str))))
            }
        }
    }
}
