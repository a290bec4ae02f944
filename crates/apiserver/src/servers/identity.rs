//! A server's own Lease in `kube-system`, by which others know that it is there: its name is `apiserver-` and a hash, it is renewed while the
//! server runs, taken away when it stops, and taken away by any other server an hour after it was last renewed.
//!
//! Upstream's hash is that of the host's name. Ours has the server's address in it, too: several servers may share a host.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use machinery::rest::Body;
use machinery::status::{ApiError, Reason};
use machinery::{Value, time, value};
use rest::Api;
use ring::digest::{SHA256, digest};
use serde_json::json;
use storage::cache::Filter;

use crate::loopback::Loopback;

/// Whose lease it is.
pub(crate) const COMPONENT: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
const HOST: &str = "kubernetes.io/hostname";
/// Where its peers reach it.
pub(crate) const PEER: &str = "kubernetes.io/peer-advertise-address";
const DURATION: u32 = 3600;
const RENEW: Duration = Duration::from_secs(10);
/// How often leases of servers that are gone are looked for.
const COLLECT: Duration = Duration::from_secs(3600);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const JSON: &str = "application/json";

/// One server's lease.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    name: String,
    holder: String,
    host: String,
    peers: SocketAddr,
}

impl Identity {
    /// Of a server that everybody reaches at this address, and its peers perhaps at another.
    pub(crate) fn new(address: SocketAddr, peers: Option<SocketAddr>) -> Self {
        let (host, name, peers) = (host(), name_at(address), peers.unwrap_or(address));
        let holder = format!("{name}_{:032x}", rand::random::<u128>());
        Self { name, holder, host, peers }
    }

    /// Renews it, and takes those of others away that are long gone, for as long as it is polled.
    pub(crate) async fn run(self, api: std::sync::Weak<Api>, loopback: Loopback) {
        tokio::join!(self.keep(&api, &loopback), collect(&api, &loopback));
    }

    async fn keep(&self, api: &std::sync::Weak<Api>, loopback: &Loopback) {
        // One of before may name an address at which nobody is.
        self.remove(loopback).await;
        let mut known = None;
        while let Some(api) = api.upgrade() {
            let now = (api.clock)();
            drop(api);
            known = match self.renew(loopback, known, now).await {
                Ok(lease) => Some(lease),
                Err(error) => {
                    tracing::debug!(%error, "this server's own lease was not renewed");
                    None
                }
            };
            tokio::time::sleep(RENEW.mul_f64(1.0 + rand::random_range(0.0..0.04))).await;
        }
    }

    async fn renew(&self, loopback: &Loopback, known: Option<Value>, now: Timestamp) -> Result<Value, ApiError> {
        let path = format!("{LEASES}/{}", self.name);
        let known = match known {
            Some(known) => Some(known),
            None => match loopback.send(Method::GET, &path, JSON, Body::Empty).await {
                Ok(found) => Some(found),
                Err(error) if error.is(Reason::NotFound) => None,
                Err(error) => return Err(error),
            },
        };
        match known {
            Some(known) => loopback.send(Method::PUT, &path, JSON, Body::Value(self.renewed(known, now))).await,
            None => loopback.send(Method::POST, LEASES, JSON, Body::Value(self.renewed(json!({}), now))).await,
        }
    }

    /// The lease as of now. What others wrote into it stays.
    fn renewed(&self, mut lease: Value, now: Timestamp) -> Value {
        let name = |lease: &mut Value, field: &str, key: &str, text: &str| lease["metadata"][field][key] = text.into();
        lease["metadata"]["name"] = self.name.as_str().into();
        lease["metadata"]["namespace"] = "kube-system".into();
        name(&mut lease, "labels", COMPONENT.0, COMPONENT.1);
        name(&mut lease, "labels", HOST, &self.host);
        name(&mut lease, "annotations", PEER, &self.peers.to_string());
        lease["spec"]["holderIdentity"] = self.holder.as_str().into();
        lease["spec"]["leaseDurationSeconds"] = DURATION.into();
        lease["spec"]["renewTime"] = format!("{now:.6}").into();
        lease
    }

    /// Takes it away.
    pub(crate) async fn remove(&self, loopback: &Loopback) {
        let path = format!("{LEASES}/{}", self.name);
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        match loopback.send(Method::DELETE, &path, JSON, Body::Value(options)).await {
            Err(error) if !error.is(Reason::NotFound) => tracing::debug!(%error, "this server's own lease stays"),
            _ => {}
        }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

/// The name of the lease of a server on this host that others reach at this address.
pub(crate) fn name_at(address: SocketAddr) -> String {
    name(&host(), address)
}

/// `apiserver-` and half of the hash of who it is, in base 32 without padding.
fn name(host: &str, address: SocketAddr) -> String {
    let hash = digest(&SHA256, format!("{host} {address}").as_bytes());
    format!("apiserver-{}", base32(&hash.as_ref()[..16]))
}

fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bits: Vec<bool> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect();
    let digit = |bits: &[bool]| {
        let number = (0..5).fold(0_usize, |number, bit| number << 1 | usize::from(bits.get(bit) == Some(&true)));
        char::from(DIGITS[number])
    };
    bits.chunks(5).map(digit).collect()
}

/// Takes away the leases of servers that have been gone for long.
async fn collect(api: &std::sync::Weak<Api>, loopback: &Loopback) {
    while let Some(api) = api.upgrade() {
        collect_once(&api, loopback).await;
        drop(api);
        tokio::time::sleep(COLLECT).await;
    }
}

async fn collect_once(api: &Arc<Api>, loopback: &Loopback) {
    let Some(leases) = api.registry.stored("coordination.k8s.io", "leases") else { return };
    let (all, _) = leases.cache.list(&Filter::everything(), None, 0);
    for lease in all.iter().map(|lease| lease.to_value()).filter(|lease| is_over(lease, (api.clock)())) {
        // In the version that was judged: a server that came back meanwhile keeps its lease.
        if let Err(error) = loopback.delete(leases, &lease).await {
            tracing::debug!(%error, "the lease of a server that is gone stays");
        }
    }
}

/// Whether a lease is that of a server which did not renew it in time.
fn is_over(lease: &Value, now: Timestamp) -> bool {
    if value::text(lease, "metadata.namespace") != "kube-system"
        || value::at(lease, "metadata.labels").and_then(|labels| labels.get(COMPONENT.0)) != Some(&COMPONENT.1.into())
    {
        return false;
    }
    let renewed = time::parse_clamped(value::text(lease, "spec.renewTime"));
    let (Some(renewed), Some(seconds)) = (renewed, value::int(lease, "spec.leaseDurationSeconds")) else { return true };
    renewed.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|end| end < now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams_in_form_and_differ_by_address() {
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
        let of = |text: &str| name("host", text.parse().expect("an address"));
        let (one, two) = (of("192.0.2.1:6443"), of("192.0.2.2:6443"));
        assert_ne!(one, two);
        assert_eq!((one.len(), &one[..10]), (10 + 26, "apiserver-"));
    }

    #[test]
    fn only_leases_of_servers_that_are_long_gone_are_taken_away() {
        let now: Timestamp = "2026-01-01T01:00:01Z".parse().expect("a time");
        let lease = |labels: Value, spec: Value| json!({"metadata": {"namespace": "kube-system", "name": "x", "labels": labels}, "spec": spec});
        let ours = json!({COMPONENT.0: COMPONENT.1});
        let renewed = |at: &str| json!({"renewTime": at, "leaseDurationSeconds": 3600});
        assert!(is_over(&lease(ours.clone(), renewed("2026-01-01T00:00:00.000000Z")), now));
        assert!(!is_over(&lease(ours.clone(), renewed("2026-01-01T00:00:01.000000Z")), now));
        assert!(is_over(&lease(ours, json!({})), now), "one that says nothing is nobody's");
        assert!(!is_over(&lease(json!({}), renewed("2020-01-01T00:00:00Z")), now), "an election's");
    }

    #[test]
    fn a_renewal_keeps_what_others_wrote() {
        let address = |text: &str| text.parse().expect("an address");
        let identity = Identity::new(address("192.0.2.1:6443"), Some(address("[fd00::1]:7443")));
        let known = json!({"metadata": {"resourceVersion": "7", "labels": {"mine": "yes"}}});
        let lease = identity.renewed(known, "2026-01-01T00:00:00Z".parse().expect("a time"));
        assert_eq!(lease["metadata"]["labels"]["mine"], "yes");
        assert_eq!(lease["metadata"]["labels"][COMPONENT.0], "kube-apiserver");
        assert_eq!(lease["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
        assert_eq!(lease["metadata"]["resourceVersion"], "7");
        assert_eq!(lease["metadata"]["annotations"][PEER], "[fd00::1]:7443");
        assert_eq!(identity.name, name_at(address("192.0.2.1:6443")), "its name is where everybody reaches it");
    }
}
