//! Several controller managers: one leads, another takes over, and nobody writes who no longer leads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::Guard;
use http::HeaderValue;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use testkit::build::{config_map, deployment};
use testkit::{Server, ServerOptions};
use tokio::process::{Child, Command};

use crate::endpoint::{self, page, somebody};

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");
const LEASE: &str = "kube-controller-manager";
/// A lease lasts 15 s, and is looked at every 2 to 4.4 s.
const TAKEOVER: Duration = Duration::from_secs(120);

async fn bare_server() -> Server {
    let arguments = ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"];
    let arguments = arguments.map(str::to_owned).into();
    Server::start(ServerOptions { binary: BINARY.into(), arguments }).await
}

fn manager(server: &Server) -> Child {
    manager_at(server, SocketAddr::from(([127, 0, 0, 1], testkit::free_port())))
}

fn manager_at(server: &Server, address: SocketAddr) -> Child {
    let mut command = Command::new(BINARY);
    command.args(["controller-manager", "--kubeconfig"]).arg(server.kubeconfig());
    command.args(endpoint::arguments(server, address));
    command.kill_on_drop(true).spawn().expect("the binary")
}

async fn signal(child: &Child, name: &str) {
    let id = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args([name, &id]).status().await;
    assert!(sent.is_ok_and(|status| status.success()), "the signal was sent");
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

/// Who leads, once it is somebody else than before.
async fn leader_after(server: &Server, before: &str) -> String {
    let client = server.client();
    let found = async {
        loop {
            let lease = client.get::<Lease>("kube-system", LEASE).await;
            if let Some(name) = lease.ok().map(|lease| holder(&lease)).filter(|name| !name.is_empty() && name != before)
            {
                return name;
            }
            // The lease is there only with its first holder, and a watch would have to begin before that.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(TAKEOVER, found).await.expect("somebody leads")
}

async fn is_served(server: &Server, name: &str) {
    let client = server.client();
    client.create(&deployment(name, 2)).await.expect("a deployment");
    testkit::objects::<ReplicaSet>(&client, "default", "a ReplicaSet of the Deployment", |sets| {
        sets.iter().any(|set| set.metadata.owner_references.iter().flatten().any(|owner| owner.name == name))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_manager_takes_over_and_a_paused_leader_writes_nothing_more() {
    let server = bare_server().await;
    let mut first = manager(&server);
    let first_name = leader_after(&server, "").await;
    is_served(&server, "one").await;

    let second = manager(&server);
    first.kill().await.expect("it ran");
    let second_name = leader_after(&server, &first_name).await;
    is_served(&server, "two").await;

    // Paused, it cannot renew; the third takes over. Then it wakes up with all of that time's changes waiting for it.
    let third = manager(&server);
    signal(&second, "-STOP").await;
    let third_name = leader_after(&server, &second_name).await;
    assert_ne!(third_name, first_name);
    let client = server.client();
    for number in 0..20 {
        is_served(&server, &format!("late-{number}")).await;
    }
    signal(&second, "-CONT").await;
    let mut second = second;
    let ended = tokio::time::timeout(TAKEOVER, second.wait()).await.expect("it sees that it was deposed");
    assert!(!ended.expect("its status").success(), "a manager that loses its lease ends with an error");
    assert_eq!(leader_after(&server, &second_name).await, third_name, "nobody else took the lease");
    is_served(&server, "three").await;
    let sets = client.list::<ReplicaSet>("default", &client::ListParams::default()).await.expect("a list").items;
    let deployments = client.list::<Deployment>("default", &client::ListParams::default()).await.expect("a list").items;
    assert_eq!(sets.len(), deployments.len(), "one ReplicaSet each: nothing was made twice");
    drop(third);
}

/// A leader that does not know that it was deposed: paused after it asked its own clock, before the request left.
#[derive(Debug)]
struct Deposed;

impl Guard for Deposed {
    fn holds(&self) -> bool {
        true
    }

    fn lease(&self) -> HeaderValue {
        HeaderValue::from_static("kube-system/some-leader/old")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_refuses_writes_under_a_lease_that_somebody_else_holds() {
    let server = bare_server().await;
    let client = server.client();
    let late = server.client().with_guard(Arc::new(Deposed));
    let mut lease = Lease {
        metadata: ObjectMeta {
            name: Some("some-leader".to_owned()),
            namespace: Some("kube-system".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec { holder_identity: Some("old".to_owned()), ..LeaseSpec::default() }),
    };
    let refused = late.create(&config_map("a", "k", "v")).await.expect_err("there is no such lease");
    assert!(refused.is_conflict(), "{refused}");
    lease = client.create(&lease).await.expect("a lease");
    late.create(&config_map("a", "k", "v")).await.expect("it leads");
    lease.spec.get_or_insert_default().holder_identity = Some("new".to_owned());
    client.update(&lease).await.expect("somebody else takes over");
    let refused = late.create(&config_map("b", "k", "v")).await.expect_err("it no longer leads");
    assert!(refused.is_conflict(), "{refused}");
    let refused = late.delete::<ConfigMap>("default", "a", &client::DeleteOptions::default()).await;
    assert!(refused.is_err_and(|error| error.is_conflict()));
    late.get::<ConfigMap>("default", "a").await.expect("reading is nobody's privilege");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_of_its_own_serves_health_and_figures_to_those_who_may() {
    let server = bare_server().await;
    let address = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
    let _running = manager_at(&server, address);
    let nobody = somebody(&server, address, None);
    endpoint::ready(&nobody).await;
    assert_eq!(page(&nobody, "/livez").await, Ok("ok".to_owned()));
    assert_eq!(page(&nobody, "/metrics").await, Err(Some(403)));
    let report = page(&nobody, "/healthz?verbose").await.expect("it is well");
    for check in ["leaderElection", "deployment-controller", "garbage-collector-controller"] {
        assert!(report.contains(&format!("[+]{check} ok")), "{check} is not in\n{report}");
    }
    let figures = testkit::eventually("the administrator's certificate is believed", async {
        loop {
            // A connection of its own: a certificate is asked for when one is made.
            match page(&somebody(&server, address, Some("admin")), "/metrics").await {
                Ok(figures) => return figures,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
    .await;
    assert!(figures.lines().any(|l| l == "leader_election_master_status{name=\"kube-controller-manager\"} 1"));
    assert!(figures.contains("workqueue_depth{"), "{figures}");
}
