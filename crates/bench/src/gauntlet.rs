//! What the gates cost, in process: no TLS and no disk, so that the figures are theirs alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use apiserver::Clock;
use apiserver::admission::pod_security::{Level, Version, Wanted};
use apiserver::admission::{self, Plugin};
use apiserver::audit;
use apiserver::cache::Caches;
use apiserver::gates::authorization::{Attributes, Mode, Settings};
use apiserver::registry::{Registry, RuntimeConfig};
use client::ListParams;
use futures::StreamExt as _;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use machinery::rest::{Body, Handler, Payload, Peer, User};
use serde_json::{Value, json};
use store::{Expect, Op, Store as _, Txn};
use testkit::build::{Build as _, service_account};
use testkit::{Cluster, Options};

use crate::Failure;
use crate::process::cpu_seconds;
use crate::report::Line;

const REQUESTS: u32 = 20_000;
const BINDINGS: usize = 10_000;
const DECISIONS: u32 = 200_000;
const GRANTS: usize = 200;

pub async fn run(scale: f64) -> Result<(), Failure> {
    requests(scale).await?;
    pod_security()?;
    decisions().await?;
    grants().await
}

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [""], "resources": resources})
}

fn role(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name, "namespace": namespace},
        "rules": [rule(&["create", "list", "get"], &["pods", "configmaps"])]})
}

fn binding(namespace: &str, name: &str, role: &str, user: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]})
}

fn typed<T: client::Kind>(tree: Value) -> Result<T, Failure> {
    Ok(serde_json::from_value(tree)?)
}

/// A pod that every standard lets pass, created for show: every gate and every check, and nothing written.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bench", "labels": {"app": "bench"}},
        "spec": {"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "main", "image": "registry.example.com/team/application:v1.2.3",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]},
    })
}

/// A server, and somebody who may create pods there.
struct Measured {
    cluster: Cluster,
    handler: Arc<dyn Handler>,
    peer: Peer,
    /// What a remote peer shows.
    credentials: Option<HeaderValue>,
}

/// Namespaces that differ by the standard that they enforce.
const SPACES: [(&str, &str); 2] = [("open", "privileged"), ("strict", "restricted")];

impl Measured {
    /// With these settings; who sends is an account with its token, or a part of this very process.
    async fn start(options: Options, remote: bool) -> Result<Self, Failure> {
        let cluster = Cluster::start_with(options).await;
        let admin = cluster.in_process();
        for (name, level) in SPACES {
            let labels = json!({"pod-security.kubernetes.io/enforce": level});
            admin.create(&typed::<Namespace>(json!({"metadata": {"name": name, "labels": labels}}))?).await?;
            admin.create(&service_account("default").in_namespace(name)).await?;
            admin.create(&typed::<Role>(role(name, "bench"))?).await?;
            let mut bound = binding(name, "bench", "bench", "bench");
            bound["subjects"] = json!([{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]);
            admin.create(&typed::<RoleBinding>(bound)?).await?;
        }
        let handler = cluster.handler();
        if !remote {
            let peer = Peer::InProcess(Arc::new(User::new("system:serviceaccount:default:default", [])));
            return Ok(Self { cluster, handler, peer, credentials: None });
        }
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(Body::Value(wanted))?;
        let Payload::Value(answer) = admin.request(request).await?.into_body() else {
            return Err("a token is no tree".into());
        };
        let token = answer["status"]["token"].as_str().ok_or("no token")?;
        let credentials = Some(HeaderValue::from_str(&format!("Bearer {token}"))?);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let peer = Peer::Remote { address, certificates: Arc::default(), doubtful: false };
        Ok(Self { cluster, handler, peer, credentials })
    }

    /// CPU microseconds per dry-run create of a pod.
    async fn creates(&self, namespace: &str, scale: f64) -> Result<f64, Failure> {
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        let one = async || -> Result<(), Failure> {
            let mut request = Request::post(&path).header(CONTENT_TYPE, "application/json").body(Body::Value(pod()))?;
            request.extensions_mut().insert(self.peer.clone());
            if let Some(credentials) = &self.credentials {
                request.headers_mut().insert(AUTHORIZATION, credentials.clone());
            }
            let answer = self.handler.handle(request).await;
            if answer.status() == http::StatusCode::CREATED { Ok(()) } else { Err("a pod was refused".into()) }
        };
        one().await?;
        let requests = ((f64::from(REQUESTS) * scale) as u32).max(1);
        let begun = cpu_seconds(std::process::id())?;
        for _ in 0..requests {
            one().await?;
        }
        Ok((cpu_seconds(std::process::id())? - begun) * 1e6 / f64::from(requests))
    }
}

/// No gate that can be taken away: everybody may do everything at once, and nobody changes or refuses anything.
fn without_gates() -> Options {
    Options {
        runtime_config: "flowcontrol.apiserver.k8s.io/v1=false".to_owned(),
        configure: Some(Arc::new(|config| {
            let names: Vec<&str> = Plugin::names().collect();
            config.admission = admission::Settings::parse("", &names.join(",")).expect("names of plug-ins");
            config.authorization.modes = vec![Mode::AlwaysAllow];
        })),
    }
}

/// All that is on by default.
fn with_gates(audit: Option<audit::Settings>) -> Options {
    let configure = move |config: &mut apiserver::Config| {
        config.admission = admission::Settings::default();
        config.audit.clone_from(&audit);
    };
    Options { configure: Some(Arc::new(configure)), ..Options::default() }
}

/// What the gates add to a request, and the whole of it.
///
/// The gates are what a dry-run create of a pod costs with all of them (a token to check, seats, roles, every plug-in that is on by
/// default, the strictest of the standards) less what it costs with none of them; what a plug-in adds to the pod (the token's
/// volume, tolerations) and what it then costs to check and to encode that is theirs too. Once more with an audit log of
/// every request, each of whose lines is on disk before its answer.
async fn requests(scale: f64) -> Result<(), Failure> {
    let bare = Measured::start(without_gates(), false).await?;
    let bare_us = bare.creates("strict", scale).await?;
    bare.cluster.stop().await;

    let whole = Measured::start(with_gates(None), true).await?;
    let (open_us, strict_us) = (whole.creates("open", scale).await?, whole.creates("strict", scale).await?);
    whole.cluster.stop().await;

    let directory = tempfile::tempdir()?;
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")?;
    let log = audit::log::Settings {
        path: directory.path().join("audit.log"),
        mode: audit::Mode::Blocking,
        max_age: 0,
        max_backup: 1,
        max_size: 0,
        compress: false,
        buffer: audit::log::QUEUE,
        truncate: None,
    };
    let audit = audit::Settings { policy: audit::policy::Policy::load(&policy)?, log: Some(log), webhook: None };
    let audited = Measured::start(with_gates(Some(audit)), true).await?;
    let audited_us = audited.creates("strict", scale).await?;
    audited.cluster.stop().await;

    Line::new("gauntlet")
        .figure("bare_us", bare_us)
        .figure("cpu_us", strict_us - bare_us)
        .figure("audited_us", audited_us - bare_us)
        .at_most("cpu_us", 50.0)
        .print();
    Line::new("dry_run_create").figure("open_us", open_us).figure("cpu_us", strict_us).print();
    Ok(())
}

/// The restricted standard, for a pod that meets it and for one that meets none of it: the slower of the two counts.
fn pod_security() -> Result<(), Failure> {
    let wanted = Wanted { level: Level::Restricted, version: Version::LATEST };
    let (good, mut bad) = (pod(), pod());
    bad["spec"] = json!({
        "hostNetwork": true, "hostPID": true, "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        "initContainers": [{"name": "init", "image": "i", "securityContext": {"privileged": true, "procMount": "Unmasked"}}],
        "containers": [{"name": "main", "image": "i", "ports": [{"hostPort": 80, "containerPort": 80}],
            "securityContext": {"runAsUser": 0, "capabilities": {"add": ["SYS_ADMIN"]}}}],
    });
    let each = |pod: &Value, violations: usize| -> Result<f64, Failure> {
        let ask = || wanted.violations(&pod["metadata"], &pod["spec"]).len();
        if (ask() == 0) != (violations == 0) || ask() < violations {
            return Err(format!("{} violations instead of {violations}", ask()).into());
        }
        let begun = Instant::now();
        for _ in 0..DECISIONS {
            std::hint::black_box(ask());
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(DECISIONS))
    };
    let (met, broken) = (each(&good, 0)?, each(&bad, 9)?);
    Line::new("pod_security").figure("met_us", met).figure("us", met.max(broken)).at_most("us", 10.0).print();
    Ok(())
}

/// Decisions of RBAC, with ten thousand bindings.
async fn decisions() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let store = store::embedded::Embedded::open(directory.path(), store::embedded::Options::default())?;
    let put = |key: String, object: Value| {
        let value = machinery::object::encode(&object);
        store.txn(Txn {
            key: key.into(),
            expect: Expect::Absent,
            op: Op::Put { value, ttl: None },
            write: None,
            note: Default::default(),
        })
    };
    let writes = (0..BINDINGS).map(|number| {
        let (namespace, user) = (format!("n{}", number % 100), format!("user-{number}"));
        put(
            format!("/registry/rolebindings/{namespace}/b{number}"),
            binding(&namespace, &format!("b{number}"), "reader", &user),
        )
    });
    let roles = (0..100).map(|number| {
        let namespace = format!("n{number}");
        put(format!("/registry/roles/{namespace}/reader"), role(&namespace, "reader"))
    });
    let mut written = futures::stream::iter(writes.chain(roles)).buffer_unordered(256);
    while let Some(outcome) = written.next().await {
        outcome?;
    }
    let config = RuntimeConfig::default();
    let caches = Caches::start(store.clone(), Registry::layout(&config)).await?;
    let registry = Registry::new(&config, &caches, 3600);
    let clock: Clock = Arc::new(Timestamp::now);
    let authorizers = Settings::default().build(&registry, &caches, &clock)?;
    let users: Vec<User> = (0..BINDINGS).map(|number| User::new(format!("user-{number}"), [])).collect();
    let ask = async |number: usize| {
        let (user, namespace) = (&users[number % BINDINGS], format!("n{}", number % 100));
        authorizers.allows(&Attributes::question(user, "list", "", "pods", "").in_namespace(&namespace)).await
    };
    if !ask(1).await {
        return Err("a bound user is refused".into());
    }
    let begun = Instant::now();
    for number in 0..DECISIONS {
        std::hint::black_box(ask(number as usize).await);
    }
    let each = begun.elapsed().as_secs_f64() * 1e6 / f64::from(DECISIONS);
    Line::new("rbac_decision").figure("bindings", BINDINGS as f64).figure("us", each).at_most("us", 5.0).print();
    caches.stop();
    store.close().await;
    Ok(())
}

/// From the acknowledgement of a binding until the first request that it allows.
async fn grants() -> Result<(), Failure> {
    let cluster = Cluster::start().await;
    let admin = cluster.in_process();
    admin.create(&typed::<Role>(role("default", "reader"))?).await?;
    let mut latencies = Vec::new();
    for number in 0..GRANTS {
        let user = format!("user-{number}");
        let client = cluster.in_process_as(User::new(user.as_str(), []));
        admin.create(&typed::<RoleBinding>(binding("default", &user, "reader", &user))?).await?;
        let begun = Instant::now();
        while client.list::<ConfigMap>("default", &ListParams::default()).await.is_err() {}
        latencies.push(begun.elapsed());
    }
    Line::new("new_binding").latencies(&mut latencies).at_most("max_ms", 10.0).print();
    cluster.stop().await;
    Ok(())
}
