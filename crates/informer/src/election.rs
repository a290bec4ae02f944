//! Leader election on a Lease: of several processes one works, and another takes over when it dies.
//!
//! The holder renews every 2 s; a holder that could not renew for 10 s stops working; others take over a lease that was not renewed for 15 s *as they
//! saw it*: they compare no clocks, only whether the record changed since they last looked. A process that was paused may wake up deposed and not know
//! it, so leadership comes with a [`Fence`] that is asked before every write: it holds only as long as no other process can have taken over.
//!
//! A holder that says where it answers is not waited for so long when it is certainly gone: its address refuses connections, which is the word of its machine's
//! kernel that nobody is behind it, and it has missed a renewal, which is the word of the lease. A holder that lives but cannot be reached renews, and keeps the
//! lease; so does one that is silent, which a machine that is lost cannot be told from. Neither word is a proof, and none is needed: the API server refuses what is
//! written under a lease that somebody else holds, and has its store compare the lease in the transaction of each write.
//!
//! A process that nobody can contest (the whole cluster in one process) does not call this at all.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, Guard};
use http::HeaderValue;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use threads::prompt::{self, Lane};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::Clock;
use crate::metrics::{LEADING, SLOW_RENEWALS};

/// Where the holder of a lease answers: its identity, a blank, an address and a port. With the identity, as others keep annotations that they do not know.
pub const HELD_AT: &str = "trireme.io/held-at";

/// How long an address may take to refuse a connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// Which lease, and who asks for it.
#[derive(Debug, Clone)]
pub struct Election {
    /// The lease's namespace, such as `kube-system`.
    pub namespace: String,
    /// The lease's name, such as `kube-controller-manager`.
    pub name: String,
    /// Unique among the candidates, such as `host_uuid`.
    pub identity: String,
    /// How patient everybody is.
    pub timings: Timings,
    /// Where this process answers for as long as it lives, if it does: others look there when it does not renew.
    pub address: Option<SocketAddr>,
}

/// The three times of an election.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    /// A lease that was not renewed for so long is free.
    pub lease: Duration,
    /// A holder that could not renew for so long gives up.
    pub renew_deadline: Duration,
    /// How often is tried.
    pub retry: Duration,
}

impl Timings {
    /// Who has not renewed for so long has missed at least one renewal.
    fn missed(&self) -> Duration {
        self.retry * 3 / 2
    }
}

impl Default for Timings {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew_deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// Says whether this process may still write. As the [`Guard`] of a client it is asked before every write.
#[derive(Debug, Clone)]
pub struct Fence {
    /// As the header of a write names it.
    lease: HeaderValue,
    /// Monotonic milliseconds until which nobody else can have taken over; 0 is never.
    until: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
}

impl Fence {
    fn new(election: &Election, clock: Arc<dyn Clock>) -> Self {
        let lease = format!("{}/{}/{}", election.namespace, election.name, election.identity);
        // An identity that no header can carry matches no lease: the server refuses, which is the safe side.
        let lease = HeaderValue::from_str(&lease).unwrap_or(HeaderValue::from_static("//"));
        Self { lease, until: Arc::default(), clock }
    }

    /// Whether the last renewal is fresh enough. Ask right before a write, not before the work that leads to it.
    pub fn holds(&self) -> bool {
        millis(self.clock.monotonic()) < self.until.load(Ordering::Acquire)
    }

    fn hold_until(&self, until: Duration) {
        self.until.store(millis(until), Ordering::Release);
    }

    fn drop_now(&self) {
        self.until.store(0, Ordering::Release);
    }
}

impl Guard for Fence {
    fn holds(&self) -> bool {
        Self::holds(self)
    }

    fn lease(&self) -> HeaderValue {
        self.lease.clone()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What the leader gets to know.
#[derive(Debug, Clone)]
pub struct Leadership {
    /// To be asked before writes.
    pub fence: Fence,
    /// Cancelled when leadership is lost or the process stops.
    pub over: CancellationToken,
}

/// How an election ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The process was stopped; the lease is free again if it was held.
    Stopped,
    /// The lease could not be renewed in time. The work was cancelled and has ended.
    Lost,
}

/// Waits for leadership, then works until it is lost or the process stops.
pub async fn lead<F, W>(
    client: Client,
    election: Election,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    work: F,
) -> Outcome
where
    F: FnOnce(Leadership) -> W,
    W: Future<Output = ()>,
{
    let mut candidate = Candidate {
        client,
        fence: Fence::new(&election, clock.clone()),
        clock,
        election,
        observed: None,
        deserted: false,
    };
    let name = candidate.election.name.clone();
    LEADING.set(&[&name], 0.0);
    let acquired = stop.run_until_cancelled(candidate.acquire()).await;
    if acquired.is_none() {
        return Outcome::Stopped;
    }
    LEADING.set(&[&name], 1.0);
    tracing::info!(lease = name, identity = candidate.election.identity, "leading");
    let over = stop.child_token();
    let leadership = Leadership { fence: candidate.fence.clone(), over: over.clone() };
    // Not beside the work in one task: whatever it computes, the lease is renewed meanwhile.
    let keep = AbortOnDropHandle::new(prompt::spawn(Lane::Promises, keep(candidate, stop, over)));
    work(leadership).await;
    let Ok((mut candidate, lost)) = keep.await else { return Outcome::Lost };
    if lost {
        tracing::error!(lease = name, "leadership was lost");
        return Outcome::Lost;
    }
    candidate.release().await;
    Outcome::Stopped
}

/// Renews until the process stops or leadership is lost, and then ends it. However this ends, the work is cancelled.
async fn keep(mut candidate: Candidate, stop: CancellationToken, over: CancellationToken) -> (Candidate, bool) {
    let _over = over.drop_guard();
    let lost = stop.run_until_cancelled(candidate.keep()).await.is_some();
    candidate.fence.drop_now();
    LEADING.set(&[&candidate.election.name], 0.0);
    (candidate, lost)
}

struct Candidate {
    client: Client,
    clock: Arc<dyn Clock>,
    election: Election,
    fence: Fence,
    /// The lease as last seen, and when it was first seen like that.
    observed: Option<(Lease, Duration)>,
    /// Its holder seemed to be gone when it was looked at last.
    deserted: bool,
}

impl Candidate {
    /// Tries until the lease is held.
    async fn acquire(&mut self) {
        while !self.try_once().await {
            let retry = self.election.timings.retry;
            let pause = if self.deserted { retry / 4 } else { retry.mul_f64(1.0 + 1.2 * rand::random::<f64>()) };
            self.clock.sleep(pause).await;
        }
    }

    /// Renews until that failed for too long.
    async fn keep(&mut self) {
        let timings = self.election.timings;
        let mut renewed = self.clock.monotonic();
        loop {
            self.clock.sleep(timings.retry).await;
            let left = (renewed + timings.renew_deadline).saturating_sub(self.clock.monotonic());
            let too_late = self.clock.sleep(left);
            let attempt = tokio::select! {
                renewed = self.try_once() => renewed,
                () = too_late => return,
            };
            if attempt {
                renewed = self.clock.monotonic();
            } else if self.clock.monotonic() >= renewed + timings.renew_deadline || self.held_by_another() {
                return;
            }
        }
    }

    fn held_by_another(&self) -> bool {
        let holder = self.observed.as_ref().and_then(|(lease, _)| holder(lease));
        holder.is_some_and(|holder| !holder.is_empty() && holder != self.election.identity)
    }

    /// Whether the lease is held afterwards.
    async fn try_once(&mut self) -> bool {
        // Measured before the request: the lease counts from when it was asked for, never from later.
        let asked = self.clock.monotonic();
        match self.write().await {
            Ok(Some(lease)) => {
                self.observed = Some((lease, asked));
                self.fence.hold_until(asked + self.election.timings.renew_deadline);
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(lease = self.election.name, %error, "cannot get or renew the lease");
                false
            }
        }
    }

    async fn write(&mut self) -> Result<Option<Lease>, client::Error> {
        let now = MicroTime(self.clock.now());
        if let Some(renewed) = self.renew(now.clone()).await {
            return Ok(Some(renewed));
        }
        let current = match self.client.get::<Lease>(&self.election.namespace, &self.election.name).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => {
                let lease = self.claim(None, now);
                return self.client.create(&lease).await.map(Some);
            }
            Err(error) => return Err(error),
        };
        let seen = self.clock.monotonic();
        let known = self.observed.as_ref().is_some_and(|(known, _)| known.spec == current.spec);
        if !known {
            self.observed = Some((current.clone(), seen));
        }
        let since = self.observed.as_ref().map_or(seen, |(_, since)| *since);
        let unchanged = seen.saturating_sub(since);
        if !may_claim(&current, &self.election.identity, unchanged) {
            // Who leads leaves it alone, and of who renewed nobody asks anything.
            self.deserted = known && !self.fence.holds() && self.is_deserted(&current).await;
            if !self.deserted || unchanged < self.election.timings.missed() {
                return Ok(None);
            }
            tracing::info!(
                lease = self.election.name,
                "its holder does not renew it, and refuses connections: taking it over"
            );
        }
        let lease = self.claim(Some(&current), now);
        self.client.update(&lease).await.map(Some)
    }

    /// The holder renews what it wrote last without looking first. If that is no longer what is there, it has to look.
    async fn renew(&self, now: MicroTime) -> Option<Lease> {
        let held = self.observed.as_ref().map(|(lease, _)| lease)?;
        if !self.fence.holds() || self.held_by_another() {
            return None;
        }
        match self.client.update(&self.claim(Some(held), now)).await {
            Ok(lease) => Some(lease),
            Err(error) => {
                tracing::debug!(lease = self.election.name, %error, "cannot renew the lease as it was; looking at it");
                SLOW_RENEWALS.increment(&[&self.election.name]);
                None
            }
        }
    }

    /// Whether nobody is where the holder said that it would answer.
    async fn is_deserted(&self, lease: &Lease) -> bool {
        let Some(address) = held_at(lease) else { return false };
        // Here answers this process, so the other is gone; but every machine has a loopback address of its own.
        if self.election.address == Some(address) && !address.ip().is_loopback() {
            return true;
        }
        let connected = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
        matches!(connected, Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    fn claim(&self, current: Option<&Lease>, now: MicroTime) -> Lease {
        let spec = current.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let mine = spec.holder_identity.as_deref() == Some(&self.election.identity);
        let transitions = spec.lease_transitions.unwrap_or_default();
        let seconds = i32::try_from(self.election.timings.lease.as_secs()).unwrap_or(i32::MAX);
        let mut metadata = current.map_or_else(
            || ObjectMeta {
                namespace: Some(self.election.namespace.clone()),
                name: Some(self.election.name.clone()),
                ..ObjectMeta::default()
            },
            |lease| lease.metadata.clone(),
        );
        match self.election.address {
            Some(address) => {
                let at = format!("{} {address}", self.election.identity);
                metadata.annotations.get_or_insert_default().insert(HELD_AT.to_owned(), at);
            }
            None => drop(metadata.annotations.as_mut().and_then(|annotations| annotations.remove(HELD_AT))),
        }
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.election.identity.clone()),
                lease_duration_seconds: Some(seconds),
                acquire_time: if mine { spec.acquire_time } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(if mine || current.is_none() {
                    transitions
                } else {
                    transitions.saturating_add(1)
                }),
                ..spec
            }),
        }
    }

    /// Gives the lease back, so that nobody has to wait for it.
    async fn release(&mut self) {
        let Some((mut lease, _)) = self.observed.take() else { return };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.clock.now()));
        }
        if let Err(error) = self.client.update(&lease).await {
            tracing::debug!(lease = self.election.name, %error, "the lease was not given back; it will expire");
        }
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

/// Where the holder answers, if it was the holder who said so.
fn held_at(lease: &Lease) -> Option<SocketAddr> {
    let (identity, address) = lease.metadata.annotations.as_ref()?.get(HELD_AT)?.rsplit_once(' ')?;
    if holder(lease) != Some(identity) {
        return None;
    }
    address.parse().ok()
}

/// A lease may be claimed by its holder, when it is free, and when its holder showed no life for its whole duration.
fn may_claim(lease: &Lease, identity: &str, unchanged_for: Duration) -> bool {
    let holder = holder(lease).unwrap_or_default();
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    holder.is_empty() || holder == identity || unchanged_for >= duration
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Fake;
    use jiff::Timestamp;

    fn lease(holder: &str) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn a_lease_is_claimed_when_it_is_free_own_or_abandoned() {
        let second = Duration::from_secs(1);
        assert!(may_claim(&lease(""), "me", Duration::ZERO));
        assert!(may_claim(&lease("me"), "me", Duration::ZERO));
        assert!(!may_claim(&lease("other"), "me", 14 * second));
        assert!(may_claim(&lease("other"), "me", 15 * second));
    }

    #[test]
    fn only_the_holder_says_where_it_answers() {
        let at = |said: &str| {
            let mut lease = lease("vm_1");
            lease.metadata.annotations = Some([(HELD_AT.to_owned(), said.to_owned())].into());
            held_at(&lease)
        };
        assert_eq!(at("vm_1 192.0.2.1:6443"), "192.0.2.1:6443".parse().ok());
        assert_eq!(at("vm_1 [2001:db8::1]:6443"), "[2001:db8::1]:6443".parse().ok());
        for said in ["vm_2 192.0.2.1:6443", "192.0.2.1:6443", "vm_1 somewhere", ""] {
            assert_eq!(at(said), None, "{said}");
        }
        assert_eq!(held_at(&lease("vm_1")), None);
    }

    #[test]
    fn a_fence_falls_before_anybody_else_can_take_over() {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let election = Election {
            namespace: "kube-system".into(),
            name: "a".into(),
            identity: "me".into(),
            timings: Timings::default(),
            address: None,
        };
        let fence = Fence::new(&election, clock.clone());
        assert_eq!(fence.lease(), "kube-system/a/me");
        assert!(!fence.holds(), "nothing was acquired yet");
        let timings = Timings::default();
        fence.hold_until(clock.monotonic() + timings.renew_deadline);
        clock.advance(Duration::from_secs(9));
        assert!(fence.holds());
        clock.advance(Duration::from_secs(2));
        assert!(!fence.holds(), "a process paused for 11 s must not write, though the lease lasts 15 s");
    }
}
