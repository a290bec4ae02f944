//! Who works when the holder of a lease is gone, and when it only seems to be. The lease lasts an hour: whoever takes it over does not wait for its end.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use informer::clock;
use informer::election::{Election, HELD_AT, Timings, lead};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use testkit::{eventually, object};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Rig;

const NAMESPACE: &str = "kube-system";
const ELSEWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), 6443);

/// A lease that `other` holds, and of which it says this.
async fn held(rig: &Rig, name: &str, at: &str) {
    rig.create::<Lease>(json!({
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {HELD_AT: at}},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600, "leaseTransitions": 4,
                 "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"},
    }))
    .await;
}

fn candidate(rig: &Rig, name: &str, stop: &CancellationToken) -> JoinHandle<()> {
    let timings = Timings {
        lease: Duration::from_secs(3600),
        renew_deadline: Duration::from_secs(60),
        retry: Duration::from_millis(20),
    };
    let (namespace, identity) = (NAMESPACE.to_owned(), "this".to_owned());
    let election = Election { namespace, name: name.to_owned(), identity, timings, address: Some(ELSEWHERE) };
    let (client, stop) = (rig.client.clone(), stop.clone());
    tokio::spawn(async move {
        lead(client, election, clock::Real::shared(), stop, async |leadership| leadership.over.cancelled().await).await;
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_machine_says_that_it_is_gone_is_not_waited_for() {
    let rig = Rig::start().await;
    // Nobody listens there any more.
    let free = TcpListener::bind("127.0.0.1:0").await.and_then(|socket| socket.local_addr()).expect("an address");
    held(&rig, "gone", &format!("other {free}")).await;
    let stop = CancellationToken::new();
    let running = candidate(&rig, "gone", &stop);
    let taken = object::<Lease>(&rig.client, NAMESPACE, "gone", "another holder", |lease| {
        lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref()) == Some("this")
    })
    .await;
    let lease = taken.expect("it is there");
    assert_eq!(lease.spec.as_ref().and_then(|spec| spec.lease_transitions), Some(5));
    let at = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(HELD_AT).cloned());
    assert_eq!(at, Some(format!("this {ELSEWHERE}")));
    stop.cancel();
    running.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_answers_or_whose_place_nobody_knows_keeps_its_lease() {
    let rig = Rig::start().await;
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let there = socket.local_addr().expect("an address");
    let free = TcpListener::bind("127.0.0.1:0").await.and_then(|socket| socket.local_addr()).expect("an address");
    held(&rig, "there", &format!("other {there}")).await;
    // Somebody else said so: the holder has taken the lease over since, and keeps annotations that it does not know.
    held(&rig, "elsewhere", &format!("earlier {free}")).await;
    let stop = CancellationToken::new();
    let running = [candidate(&rig, "there", &stop), candidate(&rig, "elsewhere", &stop)];
    eventually("somebody looks a few times", async {
        for _ in 0..5 {
            socket.accept().await.expect("a look");
        }
    })
    .await;
    for name in ["there", "elsewhere"] {
        let lease = rig.client.get::<Lease>(NAMESPACE, name).await.expect("it is there");
        assert_eq!(lease.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("other"), "{name}");
    }
    stop.cancel();
    for one in running {
        one.await.expect("it ends");
    }
}
