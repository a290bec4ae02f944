//! Every workload through create, scale, update, roll back and delete, with a real kubectl and hollow nodes.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use tempfile::TempDir;
use testkit::{HollowNodes, Kubectl, Server, ServerOptions};
use tokio::process::{Child, Command};

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");
/// Every request, without bodies.
const POLICY: &str =
    "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: Metadata}]}";
const LOG: &str = "audit.log";

/// A control plane whose nodes are hollow. Every controller has its own identity and role, and the
/// audit log says whether those are enough.
pub struct Hollow {
    pub server: Server,
    pub kubectl: Kubectl,
    audit: TempDir,
    /// Those of this process, or those of a process of their own. They end when dropped.
    nodes: (Option<HollowNodes>, Option<Child>),
}

impl Hollow {
    /// With nodes that this process simulates.
    pub async fn start(nodes: usize) -> Self {
        let mut cluster = Self::without_nodes().await;
        cluster.nodes.0 = Some(HollowNodes::start(&cluster.server.client(), nodes).await);
        cluster.schedulable(nodes).await;
        cluster
    }

    /// With nodes of `trireme hollow-node`.
    pub async fn start_process(nodes: usize) -> Self {
        let mut cluster = Self::without_nodes().await;
        let mut command = Command::new(BINARY);
        command.args(["hollow-node", "--count", &nodes.to_string(), "--kubeconfig"]).arg(cluster.server.kubeconfig());
        cluster.nodes.1 = Some(command.kill_on_drop(true).spawn().expect("the binary"));
        cluster.schedulable(nodes).await;
        cluster
    }

    async fn without_nodes() -> Self {
        let audit = tempfile::tempdir().expect("a directory");
        let policy = audit.path().join("policy.yaml");
        std::fs::write(&policy, POLICY).expect("a file");
        let path = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        let arguments = ["--disable-agent", "--audit-policy-file", &path(&policy), "--audit-log-path"];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.push(path(&audit.path().join(LOG)));
        let server = Server::start(ServerOptions { binary: BINARY.into(), arguments }).await;
        let kubectl = server.kubectl();
        Self { server, kubectl, audit, nodes: (None, None) }
    }

    /// Waits until so many nodes take pods.
    async fn schedulable(&self, nodes: usize) {
        testkit::objects::<Node>(&self.server.client(), "", "ready hollow nodes", |all| {
            let untainted = |node: &Node| node.spec.as_ref().is_none_or(|spec| spec.taints.is_none());
            all.iter().filter(|node| is_ready(node) && untainted(node)).count() == nodes
        })
        .await;
    }

    /// The end of a test: whatever the controllers did for it, they were allowed to.
    pub async fn end(mut self) {
        drop(self.nodes);
        assert!(self.server.stop().await, "{}", self.server.log_text());
        let log = std::fs::read_to_string(self.audit.path().join(LOG)).expect("a log");
        let events = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("every line is JSON"));
        let (mut acting, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for event in events {
            let user = event["user"]["username"].as_str().unwrap_or_default().to_owned();
            if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
                refused.insert(format!("{user}: {} {}", event["verb"], event["requestURI"]));
            }
            acting.insert(user);
        }
        assert!(refused.is_empty(), "refused: {refused:#?}");
        let controllers = acting.iter().filter(|user| user.starts_with("system:serviceaccount:kube-system:")).count();
        assert!(controllers >= 5, "the controllers act as themselves: {acting:?}");
    }

    /// Runs a line of kubectl that must succeed.
    pub async fn k(&self, line: &str) -> String {
        self.kubectl.run(&line.split(' ').collect::<Vec<_>>()).await
    }

    pub async fn apply(&self, manifest: &str) {
        self.kubectl.run_with(&["apply", "-f", "-"], manifest).await;
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A set of some kind with three pods.
pub fn set(kind: &str, api: &str, extra: &str, image: &str) -> String {
    format!(
        "apiVersion: {api}\nkind: {kind}\nmetadata: {{name: web}}\nspec:\n{extra}  selector: {{matchLabels: {{app: web}}}}\n  \
         template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {{containers: [{{name: c, image: \"{image}\"}}]}}\n"
    )
}

const IMAGES: &str = "get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}";

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_with_every_verb_of_rollout() {
    let cluster = Hollow::start(3).await;
    cluster.k("create deployment web --image=img:1 --replicas=3").await;
    let status = cluster.k("rollout status deployment/web --timeout=50s").await;
    assert!(status.contains("successfully rolled out"), "{status}");
    cluster.k("scale deployment/web --replicas=5").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    assert_eq!(cluster.k("get deployment web -o jsonpath={.status.availableReplicas}").await, "5");

    cluster.k("set image deployment/web img=img:2").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    cluster.k("wait --for=jsonpath={.status.replicas}=5 deployment/web --timeout=50s").await;
    let history = cluster.k("rollout history deployment/web").await;
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    let second = cluster.k("rollout history deployment/web --revision=2").await;
    assert!(second.contains("img:2"), "{second}");

    cluster.k("rollout undo deployment/web").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    assert_eq!(cluster.k("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}").await, "img:1");
    assert!(cluster.k("rollout history deployment/web").await.contains("\n3 "));

    cluster.k("rollout pause deployment/web").await;
    cluster.k("set image deployment/web img=img:3").await;
    // What a paused Deployment does not do shows in that it has seen the change and made no ReplicaSet of it.
    let generation = cluster.k("get deployment web -o jsonpath={.metadata.generation}").await;
    cluster
        .k(&format!("wait --for=jsonpath={{.status.observedGeneration}}={generation} deployment/web --timeout=50s"))
        .await;
    let sets = cluster.k("get rs -l app=web -o jsonpath={.items[*].spec.template.spec.containers[0].image}").await;
    assert!(!sets.contains("img:3"), "{sets}");
    cluster.k("rollout resume deployment/web").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    assert!(
        cluster
            .k("get rs -l app=web -o jsonpath={.items[*].spec.template.spec.containers[0].image}")
            .await
            .contains("img:3")
    );

    cluster.k("rollout restart deployment/web").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    let stamp = cluster.k("get deployment web -o jsonpath={.spec.template.metadata.annotations}").await;
    assert!(stamp.contains("kubectl.kubernetes.io/restartedAt"), "{stamp}");

    cluster.k("autoscale deployment web --min=2 --max=7 --cpu-percent=80").await;
    let scaler =
        cluster.k("get hpa web -o jsonpath={.spec.minReplicas}-{.spec.maxReplicas}-{.spec.scaleTargetRef.kind}").await;
    assert_eq!(scaler, "2-7-Deployment");

    let events =
        cluster.k("get events --field-selector involvedObject.kind=Deployment -o jsonpath={.items[*].reason}").await;
    assert!(events.contains("ScalingReplicaSet"), "{events}");
    cluster.k("delete deployment/web --timeout=50s").await;
    cluster.k("wait --for=delete pods -l app=web --timeout=50s").await;
    assert_eq!(cluster.k("get rs,pods -l app=web -o name").await, "");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_never_gets_ready_is_seen_and_undone() {
    let cluster = Hollow::start(2).await;
    cluster.k("create deployment web --image=img:1 --replicas=4").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    let broken = r#"{"spec":{"progressDeadlineSeconds":2,"template":{"metadata":{"annotations":{"hollow.trireme.io/ready":"false"}}}}}"#;
    cluster.kubectl.run(&["patch", "deployment", "web", "-p", broken]).await;
    let failure = cluster.kubectl.fail(&["rollout", "status", "deployment/web", "--timeout=50s"]).await;
    assert!(failure.contains("exceeded its progress deadline"), "{failure}");
    let available = cluster.k("get deployment web -o jsonpath={.status.availableReplicas}").await;
    assert_eq!(available, "3", "a quarter may be missing and no more");
    cluster.k("rollout undo deployment/web").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    assert_eq!(cluster.k("get deployment web -o jsonpath={.status.availableReplicas}").await, "4");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_sets_and_daemon_sets_roll_forth_and_back() {
    let cluster = Hollow::start(3).await;
    for (kind, extra) in [("StatefulSet", "  replicas: 3\n  serviceName: web\n"), ("DaemonSet", "")] {
        let name = format!("{}/web", kind.to_lowercase());
        cluster.apply(&set(kind, "apps/v1", extra, "img:1")).await;
        cluster.k(&format!("rollout status {name} --timeout=50s")).await;
        assert_eq!(cluster.k(IMAGES).await, "img:1 img:1 img:1", "{kind}");
        cluster.k(&format!("set image {name} c=img:2")).await;
        cluster.k(&format!("rollout status {name} --timeout=50s")).await;
        assert_eq!(cluster.k(IMAGES).await, "img:2 img:2 img:2", "{kind}");
        let history = cluster.k(&format!("rollout history {name}")).await;
        assert!(history.contains("\n1 ") && history.contains("\n2 "), "{kind}: {history}");
        cluster.k(&format!("rollout undo {name}")).await;
        cluster.k(&format!("rollout status {name} --timeout=50s")).await;
        assert_eq!(cluster.k(IMAGES).await, "img:1 img:1 img:1", "{kind}");
        cluster.k(&format!("rollout restart {name}")).await;
        cluster.k(&format!("rollout status {name} --timeout=50s")).await;
        if kind == "StatefulSet" {
            let names = cluster.k("get pods -l app=web -o jsonpath={.items[*].metadata.name}").await;
            assert_eq!(names, "web-0 web-1 web-2");
            cluster.k("scale statefulset/web --replicas=1").await;
            cluster.k("wait --for=jsonpath={.status.replicas}=1 statefulset/web --timeout=50s").await;
        }
        cluster.k(&format!("delete {name} --timeout=50s")).await;
        cluster.k("wait --for=delete pods -l app=web --timeout=50s").await;
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_sets_and_replication_controllers_scale() {
    let cluster = Hollow::start(2).await;
    let plain = "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {app: web}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: c, image: \"img:1\"}]}\n";
    for (name, manifest) in [
        ("replicaset/web", set("ReplicaSet", "apps/v1", "  replicas: 2\n", "img:1")),
        ("replicationcontroller/web", plain.to_owned()),
    ] {
        cluster.apply(&manifest).await;
        for count in [2, 4, 1] {
            cluster.k(&format!("scale {name} --replicas={count}")).await;
            cluster.k(&format!("wait --for=jsonpath={{.status.readyReplicas}}={count} {name} --timeout=50s")).await;
        }
        cluster.k(&format!("delete {name} --timeout=50s")).await;
        cluster.k("wait --for=delete pods -l app=web --timeout=50s").await;
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_complete_fail_and_follow_a_schedule() {
    let cluster = Hollow::start(2).await;
    cluster.k("create job once --image=img:1").await;
    cluster.k("wait --for=condition=complete job/once --timeout=50s").await;
    assert_eq!(cluster.k("get job once -o jsonpath={.status.succeeded}").await, "1");

    cluster
        .apply(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: many}\nspec:\n  completions: 6\n  parallelism: 3\n  completionMode: Indexed\n  \
             template:\n    spec: {restartPolicy: Never, containers: [{name: c, image: \"img:1\"}]}\n",
        )
        .await;
    cluster.k("wait --for=condition=complete job/many --timeout=50s").await;
    assert_eq!(cluster.k("get job many -o jsonpath={.status.succeeded}-{.status.completedIndexes}").await, "6-0-5");

    cluster
        .apply(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad}\nspec:\n  backoffLimit: 0\n  template:\n    metadata: {annotations: \
             {hollow.trireme.io/exit-code: \"3\"}}\n    spec: {restartPolicy: Never, containers: [{name: c, image: \"img:1\"}]}\n",
        )
        .await;
    cluster.k("wait --for=condition=failed job/bad --timeout=50s").await;
    assert_eq!(
        cluster.k("get job bad -o jsonpath={.status.conditions[?(@.type==\"Failed\")].reason}").await,
        "BackoffLimitExceeded"
    );

    let schedule = ["create", "cronjob", "nightly", "--image=img:1", "--schedule=0 3 * * *"];
    cluster.kubectl.run(&schedule).await;
    cluster.k("create job by-hand --from=cronjob/nightly").await;
    cluster.k("wait --for=condition=complete job/by-hand --timeout=50s").await;
    let owner = cluster.k("get job by-hand -o jsonpath={.metadata.ownerReferences[0].kind}").await;
    assert_eq!(owner, "CronJob");
    cluster.k("delete cronjob/nightly job/once job/many job/bad --timeout=50s").await;
    // The Job made by hand goes with the CronJob that owns it; pods go with their Jobs.
    cluster.k("wait --for=delete jobs --all --timeout=50s").await;
    cluster.k("wait --for=delete pods --all --timeout=50s").await;
    cluster.end().await;
}
