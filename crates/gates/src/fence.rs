//! Writes that were made under a lease, refused once somebody else holds it.
//!
//! A leader that was paused between deciding and sending cannot know that it was deposed meanwhile. It names its lease in a header of every write, and here,
//! after the pause and right before the commit, is where the lease's holder is known.

use std::sync::Arc;

use http::HeaderMap;
use machinery::gvk::GroupResource;
use machinery::status::ApiError;
use machinery::value;
use rules::names::LEASE_HEADER;
use storage::cache::{Cache, Caches};

use super::RequestInfo;

/// Where the holders of leases are known.
pub struct Fence {
    pub caches: Arc<Caches>,
    /// None where leases are not served: then nobody holds one.
    pub leases: Option<Arc<Cache>>,
}

impl Fence {
    /// Refuses a write whose lease is not, or no longer, held by whom it names. Requests without the header, and reads, pass.
    pub async fn check(&self, info: &RequestInfo, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(named) = headers.get(LEASE_HEADER) else { return Ok(()) };
        if matches!(info.verb, "get" | "list" | "watch") {
            return Ok(());
        }
        let named = named.to_str().map_err(|_| ApiError::bad_request("the trireme-lease header is not text"))?;
        let mut parts = named.splitn(3, '/');
        let (Some(namespace), Some(name), Some(holder)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ApiError::bad_request("the trireme-lease header must be namespace/name/holder"));
        };
        // Another server of the cluster may have given the lease to somebody else a moment ago.
        self.caches.settle().await?;
        let key = format!("{namespace}/{name}");
        let lease = self.leases.as_ref().and_then(|leases| leases.get(&key)).map(|lease| lease.to_value());
        let held = lease.as_ref().map_or("", |lease| value::text(lease, "spec.holderIdentity"));
        if holder.is_empty() || held != holder {
            let why = format!("the write was made under a lease that {holder:?} does not hold");
            return Err(ApiError::conflict(&GroupResource::new("coordination.k8s.io", "leases"), name, &why));
        }
        Ok(())
    }
}
