//! Several servers of one cluster: they join, share an etcd that they look after, and survive the loss of one.

mod faults;
pub mod machines;
mod moving;
mod nodes;
mod peers;
pub mod relay;
mod rolling;

use std::time::Duration;

use client::{Client, Config, DeleteOptions, Event, ListParams, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use serde_json::json;
use testkit::build::{config_map, deployment};
use testkit::eventually;

use machines::{Host, Machines, PORT};
use relay::Relay;

fn step(name: &str) {
    println!("--- {name}");
}

/// One cluster for all of it: making one takes longer than most of what is asked of it.
#[tokio::test(flavor = "multi_thread")]
async fn three_servers_share_a_cluster_and_survive_the_loss_of_one() {
    let machines = Machines::make('h', 4).await;
    let all = [1, 2, 3].map(|number| machines.address(number));
    step("the first begins");
    let mut one = machines.server(1, &["--cluster-init"]).await;
    one.lists(&all[..1]).await;
    refused_joins(&machines, &one).await;
    step("others join");
    let two = overheard(&machines, &one).await;
    let mut three = machines.join(3, &one, &[]).await;
    for host in [&one, &two, &three] {
        host.lists(&all).await;
    }
    has_three_members(&one).await;
    identities(&one, 3).await;
    same_cluster(&one, &three).await;
    no_secrets_in_logs(&[&one, &two, &three]);

    step("one stops, and is gone at once");
    assert!(three.server.stop().await, "{}", three.server.log_text());
    assert!(three.etcd().is_none(), "its etcd is stopped with it");
    assert_eq!(one.listed().await, all[..2].iter().map(ToString::to_string).collect::<Vec<_>>());
    identities(&one, 2).await;
    three.start_again().await;
    two.lists(&all).await;

    step("one is killed, and its etcd is not");
    let etcd = three.etcd();
    three.server.kill().await;
    three.start_again().await;
    assert_eq!(three.etcd(), etcd, "it was adopted");

    step("a machine is lost");
    let follower = Follower::start(&machines, &one).await;
    one.lose().await;
    create(&two.client(), "after").await;
    follower.goes_on(&two.client()).await;
    two.lists(&all[1..]).await;
    works(&two.client(), "web").await;
    // Its address refuses connections: nobody waited for its leases to run out.
    let took_over = |host: &Host| host.server.log_text().contains("refuses connections: taking it over");
    assert!(took_over(&two) || took_over(&three), "{}\n{}", two.server.log_text(), three.server.log_text());
    step("and comes back");
    one.start_again().await;
    two.lists(&all).await;
    one.client().get::<ConfigMap>("default", "after").await.expect("it has what it missed");
    a_majority_is_lost(&machines, one, two, three).await;
}

/// Two of three machines are gone for good: the third goes on alone, and others join it again.
async fn a_majority_is_lost(machines: &Machines, mut one: Host, mut two: Host, three: Host) {
    step("a majority is lost");
    let (success, said) = one.etcd_command(&["recover"]).await;
    assert!(!success && said.contains("stop the server first"), "{said}");
    drop(three);
    two.lose().await;
    drop(two);
    one.lose().await;
    let (success, said) = one.etcd_command(&["recover"]).await;
    assert!(success && said.contains("goes on alone"), "{said}");
    one.start_again().await;
    one.client().get::<ConfigMap>("default", "after").await.expect("nothing that it had is lost");
    create(&one.client(), "alone").await;
    let two = machines.join(2, &one, &[]).await;
    two.lists(&[machines.address(1), machines.address(2)]).await;
    two.client().get::<ConfigMap>("default", "alone").await.expect("it has joined");
}

/// What joins and must not.
async fn refused_joins(machines: &Machines, one: &Host) {
    step("joins that are refused");
    let home = tempfile::tempdir().expect("a directory");
    let join = async |name: &str, token: &str| {
        let data = home.path().join(name).display().to_string();
        let url = machines.url(1);
        let arguments = ["server", "--disable-agent", "--data-dir", &data, "--join", &url, "--token", token];
        let address = machines.address(4).to_string();
        let (success, said) = machines.run(4, &[&arguments[..], &["--bind-address", &address]].concat()).await;
        assert!(!success, "{name}: {said}");
        assert!(!home.path().join(name).join("pki/ca.key").exists(), "{name}: it got the keys");
        said
    };
    let token = one.server_token().await;
    let (bearer, pin) = token.split_once('@').expect("a pin");
    // A node's token, as the server keeps one in its directory.
    let nodes = std::fs::read_to_string(one.server.data_dir().join("token")).expect("the server's token");
    let said = join("nodes", nodes.trim()).await;
    assert!(said.contains("is not for servers"), "{said}");
    // Another authority's pin: nothing is sent, least of all the token.
    let other = format!("{bearer}@sha256:{}", "0".repeat(64));
    let said = join("pin", &other).await;
    assert!(said.contains("is not the one that the token names"), "{said}");
    let said = join("bare", bearer).await;
    assert!(said.contains("does not name the cluster's authority"), "{said}");
    let said = join("unknown", &format!("aaaaaa.{}@{pin}", "a".repeat(16))).await;
    assert!(said.contains("does not accept token aaaaaa"), "{said}");
    // One whose time is over.
    let expired = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-eeeeee", "namespace": "kube-system"},
        "stringData": {
            "token-id": "eeeeee", "token-secret": "e".repeat(16), "usage-bootstrap-authentication": "true",
            "expiration": "2020-01-01T00:00:00Z", "auth-extra-groups": "system:bootstrappers:trireme:servers",
        },
    });
    let expired: Secret = serde_json::from_value(expired).expect("a Secret");
    one.client().create(&expired).await.expect("an expired token");
    let said = join("expired", &format!("eeeeee.{}@{pin}", "e".repeat(16))).await;
    assert!(said.contains("does not accept token eeeeee"), "{said}");
    // Somebody used it: it is worth nothing to anybody else.
    let id = bearer.split('.').next().expect("an id");
    let name = format!("bootstrap-token-{id}");
    let mut used = one.client().get::<Secret>("kube-system", &name).await.expect("the token");
    let mark = k8s_openapi::ByteString(b"sha256:another".to_vec());
    used.data.get_or_insert_default().insert("trireme-server".to_owned(), mark);
    one.client().update(&used).await.expect("marked");
    let said = join("replayed", &token).await;
    assert!(said.contains(&format!("token {id} was used by another server already")), "{said}");
    one.client().delete::<Secret>("kube-system", &name, &DeleteOptions::default()).await.expect("taken back");
    let said = join("deleted", &token).await;
    assert!(said.contains("does not accept token"), "{said}");
    // Not even an administrator gets the keys by asking.
    let asked = one.client().post::<_, serde_json::Value>("/trireme/servers", &json!({})).await;
    let refused = asked.expect_err("an administrator is no server").to_string();
    assert!(refused.contains("\"kubernetes-admin\" cannot join a server"), "{refused}");
}

async fn has_three_members(host: &Host) {
    step("members of etcd");
    let (success, said) = host.etcd_command(&["members"]).await;
    assert!(success, "{said}");
    assert_eq!(said.matches(" member ").count() + said.matches(" leader ").count(), 3, "{said}");
    assert_eq!(said.matches(" leader ").count(), 1, "{said}");
    let file = host.server.data_dir().join("etcd.snapshot");
    let (success, said) = host.etcd_command(&["snapshot", &file.display().to_string()]).await;
    assert!(success && said.contains("bytes written"), "{said}");
    let (success, said) = host.etcd_command(&["defrag"]).await;
    assert!(success && said.matches(" after").count() == 3, "{said}");
    let (success, said) = host.etcd_command(&["remove", "nobody"]).await;
    assert!(!success && said.contains("etcd has no member nobody"), "{said}");
}

/// A server joins over a wire that somebody listens to, who learns nothing of it.
async fn overheard(machines: &Machines, one: &Host) -> Host {
    let relay = Relay::to((machines.host(), 0).into(), (machines.address(1), PORT).into()).await;
    machines.divert(2, 1, Some(relay.address)).await;
    let token = one.server_token().await;
    let two = machines.server(2, &["--join", &machines.url(1), "--token", &token]).await;
    machines.divert(2, 1, None).await;
    assert!(relay.connections() > 0 && relay.heard() > 10_000, "it joined over that wire");
    let read = |name: &str| std::fs::read_to_string(two.server.data_dir().join(name)).expect("it got it");
    let secret = token.split(['.', '@']).nth(1).expect("a secret");
    for secret in [secret, "PRIVATE KEY"] {
        assert!(!relay.has(secret), "{secret:?} went over the wire in clear");
    }
    for name in ["pki/ca.key", "pki/sa.key", "pki/front-proxy-ca.key"] {
        let key = read(name);
        let line = key.lines().nth(1).expect("a key in PEM");
        assert!(!relay.has(line), "{name} went over the wire in clear");
    }
    assert!(!two.server.log_text().contains(secret), "{}", two.server.log_text());
    two
}

/// Each server has a Lease of its own.
async fn identities(host: &Host, number: usize) {
    let label = "apiserver.kubernetes.io/identity=kube-apiserver";
    let params = ListParams { label_selector: label.to_owned(), ..ListParams::default() };
    let client = host.client();
    let names = eventually(&format!("{number} identities"), async {
        loop {
            let leases = client.list::<Lease>("kube-system", &params).await.expect("a list").items;
            if leases.len() == number {
                return leases.iter().filter_map(|lease| lease.metadata.name.clone()).collect::<Vec<_>>();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert!(names.iter().all(|name| name.starts_with("apiserver-")), "{names:?}");
}

/// What one server writes the other reads, and whom one believes the other believes.
async fn same_cluster(one: &Host, other: &Host) {
    step("one cluster");
    let made = one.client().create(&config_map("shared", "k", "v")).await.expect("created");
    let read = other.client().get::<ConfigMap>("default", "shared").await.expect("read at once");
    assert_eq!(made.metadata.resource_version, read.metadata.resource_version);
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).expect("a request");
    let client = one.client();
    testkit::object::<ServiceAccount>(&client, "default", "default", "an account", |account| account.is_some()).await;
    let issued: TokenRequest = client
        .create_subresource::<ServiceAccount, _, _>("default", "default", "token", &request)
        .await
        .expect("a token");
    let token = issued.status.and_then(|status| status.token).expect("a token");
    let mut config = Config::from_kubeconfig(other.server.kubeconfig()).expect("a kubeconfig");
    config.credentials = client::config::Credentials::token(&token).expect("a token");
    let somebody = Client::https(config).expect("a client");
    somebody.raw("/version").await.expect("the other server believes it");
}

fn no_secrets_in_logs(hosts: &[&Host]) {
    for host in hosts {
        let log = host.server.log_text();
        let token = std::fs::read_to_string(host.server.data_dir().join("token")).expect("a token");
        let secret = token.split(['.', '@']).nth(1).expect("a secret").to_owned();
        assert!(!log.contains("PRIVATE KEY") && !log.contains(&secret), "{log}");
    }
}

/// Creates a ConfigMap, as often as it takes: a write that is under way while etcd chooses another leader may fail, or be done and not acknowledged.
async fn create(client: &Client, name: &str) {
    eventually(&format!("{name} is created"), async {
        loop {
            match client.create(&config_map(name, "k", "v")).await {
                Ok(_) => return,
                Err(error) if error.is_already_exists() => return,
                Err(error) => assert!(error.is_unreachable(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Controllers work, whoever leads.
async fn works(client: &Client, name: &str) {
    client.create(&deployment(name, 1)).await.expect("a deployment");
    testkit::objects::<ReplicaSet>(client, "default", "its ReplicaSet", |sets| {
        sets.iter().any(|set| set.metadata.owner_references.iter().flatten().any(|owner| owner.name == name))
    })
    .await;
}

/// A client that knows all servers, and was watching at the first one.
struct Follower {
    client: Client,
    revision: String,
}

impl Follower {
    async fn start(machines: &Machines, one: &Host) -> Self {
        let client = one.client();
        let servers: Vec<String> = (1..=3).map(|number| machines.url(number)[8..].to_owned()).collect();
        client.set_servers(&servers);
        let revision = client.list::<ConfigMap>("default", &ListParams::default()).await.expect("a list").revision;
        Self { client, revision }
    }

    /// Goes on at another server where it was, and misses nothing.
    async fn goes_on(self, writer: &Client) {
        step("a client goes on at another server");
        for number in 0..20 {
            create(writer, &format!("late-{number}")).await;
        }
        let params = WatchParams { resource_version: Some(self.revision), ..WatchParams::default() };
        let mut events = self.client.watch::<ConfigMap>("default", &params).await.expect("another server answers");
        let mut seen = Vec::new();
        let read = async {
            while seen.len() < 21 {
                match events.next().await.expect("the watch goes on").expect("no history is lost") {
                    Event::Added(object) => seen.push(object.metadata.name.clone().unwrap_or_default()),
                    other => panic!("unexpected: {other:?}"),
                }
            }
        };
        eventually("every event", read).await;
        let expected = ["after".to_owned()].into_iter().chain((0..20).map(|number| format!("late-{number}")));
        assert_eq!(seen, expected.collect::<Vec<_>>());
        create(&self.client, "by-another").await;
    }
}
