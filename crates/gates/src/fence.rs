//! Writes that were made under a lease, refused once somebody else holds it.
//!
//! A leader that was paused between deciding and sending cannot know that it was deposed meanwhile. It names its lease in a header of every write. Here
//! the lease's holder is known: whoever is deposed already goes no further. Between this look and the write another server of the cluster may still give the
//! lease away, so what was seen here goes along with the request ([`Held`]), and the store compares it at the moment of the write.

use std::sync::Arc;

use http::HeaderMap;
use machinery::gvk::GroupResource;
use machinery::object::Object;
use machinery::status::ApiError;
use machinery::value;
use rules::names::LEASE_HEADER;
use storage::cache::{Cache, Caches};
use store::Record;

use super::RequestInfo;

/// Where the holders of leases are known.
pub struct Fence {
    pub caches: Arc<Caches>,
    /// None where leases are not served: then nobody holds one.
    pub leases: Option<Arc<Cache>>,
}

impl Fence {
    /// Refuses a write whose lease is not, or no longer, held by whom it names. Requests without the header, and reads, pass.
    pub async fn check(&self, info: &RequestInfo, headers: &HeaderMap) -> Result<Option<Held>, ApiError> {
        let Some(named) = headers.get(LEASE_HEADER) else { return Ok(None) };
        if matches!(info.verb, "get" | "list" | "watch") {
            return Ok(None);
        }
        let named = named.to_str().map_err(|_| ApiError::bad_request("the trireme-lease header is not text"))?;
        let mut parts = named.splitn(3, '/');
        let (Some(namespace), Some(name), Some(holder)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ApiError::bad_request("the trireme-lease header must be namespace/name/holder"));
        };
        // Another server of the cluster may have given the lease to somebody else a moment ago.
        self.caches.settle().await?;
        let Some(leases) = &self.leases else { return Err(not_held(name, holder)) };
        let key = format!("{namespace}/{name}");
        let mut held = Held {
            lease: name.to_owned(),
            holder: holder.to_owned(),
            fence: store::Fence { key: leases.stored_key(&key), revision: 0 },
            leases: Arc::clone(leases),
        };
        held.fence = held.judged(leases.get(&key).as_deref())?;
        Ok(Some(held))
    }
}

/// A lease that a request is made under, and that was its sender's when it was looked at.
#[derive(Clone)]
pub struct Held {
    lease: String,
    holder: String,
    leases: Arc<Cache>,
    /// What must still be so when something is written.
    pub fence: store::Fence,
}

impl Held {
    /// Looks at what has become of the lease: a holder who renewed it goes on behind another fence.
    pub fn judge(&self, now: Option<Record>) -> Result<store::Fence, ApiError> {
        let read = |record: Record| Object::from_stored(record.value, record.revision, self.leases.fields());
        let lease = now.map(read).transpose().map_err(ApiError::internal)?;
        self.judged(lease.as_ref())
    }

    /// When a holder renews faster than it can write.
    pub fn restless(&self) -> ApiError {
        ApiError::stale(&leases(), &self.lease)
    }

    fn judged(&self, lease: Option<&Object>) -> Result<store::Fence, ApiError> {
        let Some(lease) = lease else { return Err(not_held(&self.lease, &self.holder)) };
        if self.holder.is_empty() || value::text(&lease.to_value(), "spec.holderIdentity") != self.holder {
            return Err(not_held(&self.lease, &self.holder));
        }
        Ok(store::Fence { key: Arc::clone(&self.fence.key), revision: lease.revision() })
    }
}

fn leases() -> GroupResource {
    GroupResource::new("coordination.k8s.io", "leases")
}

fn not_held(name: &str, holder: &str) -> ApiError {
    ApiError::conflict(&leases(), name, &format!("the write was made under a lease that {holder:?} does not hold"))
}
