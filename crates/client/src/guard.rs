//! A condition on the writes of a client: of several candidates only the leader may change anything.
//!
//! A process that was paused may wake up deposed and not know it. So its client asks a [`Guard`] right before every write, and sends the lease it writes
//! under along with it: between the question and the arrival the process may be paused again, and then only the server can refuse. Ours does; others
//! do not know the header and ignore it.

use std::fmt::Debug;

use http::{HeaderValue, Method};
use machinery::rest::Request;
use rules::names::LEASE_HEADER;

use crate::error::Error;

/// Says whether writes are allowed now.
pub trait Guard: Debug + Send + Sync + 'static {
    /// Asked right before a write is sent.
    fn holds(&self) -> bool;

    /// The lease behind it, as [`LEASE_HEADER`] names it.
    fn lease(&self) -> HeaderValue;
}

/// Whether a request only reads.
fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Lets a request pass, marked with its lease, or refuses it.
pub(crate) fn check(guard: &dyn Guard, request: &mut Request) -> Result<(), Error> {
    if reads(request.method()) {
        return Ok(());
    }
    if !guard.holds() {
        return Err(Error::Fenced { method: request.method().to_string(), path: request.uri().path().to_owned() });
    }
    request.headers_mut().insert(LEASE_HEADER, guard.lease());
    Ok(())
}

#[cfg(test)]
mod tests {
    use machinery::rest::Body;

    use super::*;

    #[derive(Debug)]
    struct Fixed(bool);

    impl Guard for Fixed {
        fn holds(&self) -> bool {
            self.0
        }

        fn lease(&self) -> HeaderValue {
            HeaderValue::from_static("kube-system/x/me")
        }
    }

    fn request(method: Method) -> Request {
        http::Request::builder().method(method).uri("/api/v1/nodes").body(Body::Empty).expect("a request")
    }

    #[test]
    fn reads_pass_and_writes_need_the_lease() {
        for method in [Method::GET, Method::HEAD] {
            let mut request = request(method);
            assert!(check(&Fixed(false), &mut request).is_ok());
            assert!(!request.headers().contains_key(LEASE_HEADER));
        }
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let refused = check(&Fixed(false), &mut request(method.clone())).expect_err("the lease is lost");
            assert_eq!(
                refused.to_string(),
                format!("{method} /api/v1/nodes was not sent: this process no longer leads")
            );
            let mut allowed = request(method);
            check(&Fixed(true), &mut allowed).expect("the lease is held");
            assert_eq!(allowed.headers()[LEASE_HEADER], "kube-system/x/me");
        }
    }
}
