//! The endpoint of a component beside a real API server, which says who may see what.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::config::{Config as Connection, Credentials, Trust as Believed};
use client::{Client, Patch};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::rest::User;
use rules::zpages::Component;
use serving::{Check, Config, Pages, Running, Trust};
use tokio_util::sync::CancellationToken;

struct Rig {
    cluster: testkit::Cluster,
    certificate: pki::Pair,
    running: Running,
    stopping: CancellationToken,
}

impl Rig {
    async fn start() -> Self {
        Self::believing(Trust::Published).await
    }

    async fn believing(trust: Trust) -> Self {
        let cluster = testkit::Cluster::start().await;
        let address: SocketAddr = ([127, 0, 0, 1], 0).into();
        let certificate = serving::own_certificate("host", address, jiff::Timestamp::now()).expect("a certificate");
        let stopping = CancellationToken::new();
        let told = stopping.clone();
        let config = Config {
            address,
            certificate: certificate.clone(),
            handshake: pki::Handshake::default(),
            trust,
            // Its own identity and nothing but its own rights, as upstream grants them.
            authentication: cluster.in_process_as(User::new("system:kube-scheduler", [])),
            authorization: cluster.in_process_as(User::new("system:kube-scheduler", [])),
            always_allowed: ["/healthz", "/readyz", "/livez"].map(str::to_owned).into(),
            clock: informer::clock::Real::shared(),
            pages: Pages {
                healthz: Vec::new(),
                livez: Vec::new(),
                readyz: vec![Check::new("shutdown", move || match told.is_cancelled() {
                    true => Err("process is shutting down".to_owned()),
                    false => Ok(()),
                })],
                metrics: Arc::new(|text| text.push_str("answer 42\n")),
                resources: None,
                configz: Some(serde_json::json!({ "componentconfig": {} })),
                component: Component { name: "kube-scheduler".to_owned(), ..Component::default() },
            },
        };
        let running = serving::start(config).await.expect("it listens");
        Self { cluster, certificate, running, stopping }
    }

    fn connection(&self) -> Connection {
        let mut connection = Connection::new(format!("https://{}", self.running.address()));
        connection.trust = Believed::bundle(self.certificate.chain_pem.as_bytes()).expect("a bundle");
        connection
    }

    fn anonymous(&self) -> Client {
        Client::https(self.connection()).expect("a client")
    }

    fn with_token(&self, token: &str) -> Client {
        let credentials = Credentials::token(token).expect("a token");
        Client::https(Connection { credentials, ..self.connection() }).expect("a client")
    }

    fn with_certificate(&self, pair: &pki::Pair) -> Client {
        let credentials = Credentials::certificate(pair.chain_pem.as_bytes(), pair.key_pem.as_bytes());
        Client::https(Connection { credentials: credentials.expect("a certificate"), ..self.connection() })
            .expect("a client")
    }
}

async fn get(client: &Client, path: &str) -> Result<String, (u16, String)> {
    match client.raw(path).await {
        Ok(bytes) => Ok(String::from_utf8(bytes.to_vec()).expect("text")),
        Err(error) => Err((error.code().unwrap_or(0), error.to_string())),
    }
}

fn named(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..ObjectMeta::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_for_everybody_and_figures_for_those_who_may() {
    let rig = Rig::start().await;
    let nobody = rig.anonymous();
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(get(&nobody, path).await, Ok("ok".to_owned()), "{path}");
    }
    let refused = |user: &str, path: &str| (403, format!("forbidden: User \"{user}\" cannot get path \"{path}\""));
    let answer = get(&nobody, "/metrics").await.expect_err("nobody may");
    assert_eq!((answer.0, answer.1.contains(&refused("system:anonymous", "/metrics").1)), (403, true), "{}", answer.1);
    assert_eq!(get(&nobody, "/livez/ping").await.expect_err("only the whole is open").0, 403);
    assert_eq!(get(&rig.with_token("nonsense"), "/metrics").await.expect_err("no such token").0, 401);

    let admin = rig.cluster.in_process();
    let account = ServiceAccount { metadata: named("scraper", Some("default")), ..ServiceAccount::default() };
    admin.create(&account).await.expect("an account");
    let wanted = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let issued: TokenRequest = admin
        .create_subresource::<ServiceAccount, _, _>("default", "scraper", "token", &wanted)
        .await
        .expect("a token");
    let token = issued.status.and_then(|status| status.token).expect("it is issued");
    let scraper = rig.with_token(&token);
    let user = "system:serviceaccount:default:scraper";
    let answer = get(&scraper, "/configz").await.expect_err("not yet");
    assert_eq!((answer.0, answer.1.contains(&refused(user, "/configz").1)), (403, true), "{}", answer.1);

    let rule = PolicyRule {
        non_resource_urls: Some(vec!["/metrics".to_owned(), "/metrics/slis".to_owned()]),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    let role = ClusterRole { metadata: named("scrape", None), rules: Some(vec![rule]), ..ClusterRole::default() };
    admin.create(&role).await.expect("a role");
    let binding = ClusterRoleBinding {
        metadata: named("scrape", None),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: "scrape".to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: "scraper".to_owned(),
            namespace: Some("default".to_owned()),
            api_group: None,
        }]),
    };
    admin.create(&binding).await.expect("a binding");
    assert_eq!(get(&scraper, "/metrics").await, Ok("answer 42\n".to_owned()));
    let slis = get(&scraper, "/metrics/slis").await.expect("how the checks came out");
    assert!(slis.contains("kubernetes_healthcheck{name=\"shutdown\",type=\"readyz\"} 1"), "{slis}");

    rig.stopping.cancel();
    let report = get(&nobody, "/readyz").await.expect_err("it is shutting down");
    assert_eq!(report.0, 500);
    assert_eq!(get(&nobody, "/livez").await, Ok("ok".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_believed_as_far_as_the_api_server_believes_them() {
    let rig = Rig::start().await;
    // Nobody's certificates are believed before the API server says whose: this one is not even asked for.
    let administrator = rig.with_certificate(&rig.cluster.keys().admin);
    assert_eq!(get(&administrator, "/metrics").await.expect_err("not believed").0, 403);
    let admin = rig.cluster.in_process();
    let published = [("client-ca-file".to_owned(), rig.cluster.keys().authority_pem())];
    let map = ConfigMap {
        metadata: named("extension-apiserver-authentication", Some("kube-system")),
        data: Some(published.into()),
        ..ConfigMap::default()
    };
    if let Err(error) = admin.create(&map).await {
        assert!(error.is_already_exists(), "{error}");
        let patch = Patch::Merge(serde_json::json!({ "data": map.data }));
        admin.patch::<ConfigMap>("kube-system", "extension-apiserver-authentication", &patch).await.expect("published");
    }
    // A connection of its own each time: the certificate is asked for when one is made.
    let known = || rig.with_certificate(&rig.cluster.keys().admin);
    testkit::eventually("the administrator is believed", async {
        while get(&known(), "/metrics").await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Somebody whom the API server knows, but who may not.
    let proxy = rig.with_certificate(&rig.cluster.keys().proxy);
    assert_eq!(get(&proxy, "/metrics").await.expect_err("the proxy may not").0, 403);
    assert_eq!(get(&known(), "/nowhere").await.expect_err("nothing is there").0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_shows_a_certificate_that_nobody_vouches_for_is_told_so() {
    let clients = authority("clients");
    let rig = Rig::believing(Trust::Given(clients.certificate().to_pem())).await;
    let at = |age: Duration| jiff::Timestamp::now() - age;
    let good = issued(&clients, at(Duration::ZERO));
    let expired = issued(&clients, at(2 * DAY));
    let foreign = issued(&authority("others"), at(Duration::ZERO));
    assert_eq!(get(&rig.with_certificate(&good), "/healthz").await, Ok("ok".to_owned()));
    // Not as those who say nothing: plug-ins of clients make a new certificate when they hear this.
    for pair in [&expired, &foreign] {
        for path in ["/healthz", "/metrics"] {
            let (code, said) = get(&rig.with_certificate(pair), path).await.expect_err("not believed");
            assert_eq!(code, 401, "{said}");
        }
    }
    assert_eq!(get(&rig.anonymous(), "/healthz").await, Ok("ok".to_owned()));
}

const DAY: Duration = Duration::from_secs(86_400);

fn authority(name: &str) -> pki::Authority {
    let key = pki::PrivateKey::generate().expect("a key");
    pki::Authority::new(name, key, jiff::Timestamp::now() - 10 * DAY, 365 * DAY).expect("an authority")
}

/// A client's, good for a day from then on.
fn issued(by: &pki::Authority, then: jiff::Timestamp) -> pki::Pair {
    let key = pki::PrivateKey::generate().expect("a key");
    let leaf = pki::Leaf::client(pki::Subject::new("somebody", []), DAY);
    let certificate = by.issue(&leaf, &key.public(), then).expect("a certificate");
    pki::Pair { chain_pem: certificate.to_pem(), key_pem: key.to_pem().to_owned() }
}
