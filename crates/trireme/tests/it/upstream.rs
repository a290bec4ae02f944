//! Our binary in place of upstream's: kubeadm's command lines for a control plane, and what servers are told of TLS and HTTP.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use client::{Client, Config};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use serde_json::json;
use testkit::{Etcd, Server, ServerOptions, eventually, free_port};
use tokio::process::{Child, Command};

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");

/// One of upstream's programs, which is ours by another name.
fn start(directory: &Path, name: &str, arguments: &[String]) -> Child {
    let program = directory.join(name);
    std::os::unix::fs::symlink(BINARY, &program).expect("a link");
    let log = std::fs::File::create(directory.join(format!("{name}.log"))).expect("a file");
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    command.spawn().expect("the binary")
}

/// What kubeadm leaves on a machine: certificates, keys and kubeconfigs.
fn kubeadm(directory: &Path, port: u16) -> pki::Cluster {
    let options = pki::Options {
        now: jiff::Timestamp::now(),
        service_address: [10, 96, 0, 1].into(),
        cluster_domain: "cluster.local".to_owned(),
        hosts: Vec::new(),
    };
    let keys = pki::Cluster::ensure(&directory.join("pki"), &options).expect("a PKI");
    let server = format!("https://127.0.0.1:{port}");
    for (name, pair) in
        [("admin", &keys.admin), ("controller-manager", &keys.controller_manager), ("scheduler", &keys.scheduler)]
    {
        let text = pki::kubeconfig(&server, &keys.authority_pem(), name, pair);
        pki::write_private(&directory.join(format!("{name}.conf")), &text).expect("a kubeconfig");
    }
    let key = pki::PrivateKey::generate().expect("a key");
    pki::write_private(&directory.join("pki/sa.key"), key.to_pem()).expect("a key");
    pki::write_private(&directory.join("pki/sa.pub"), &key.public().to_pem()).expect("a key");
    keys
}

/// The words of a command line, with `{}` for the directory.
fn words(directory: &Path, text: &str) -> Vec<String> {
    text.split_whitespace().map(|word| word.replace("{}", directory.to_str().expect("a path"))).collect()
}

async fn until<T>(what: &str, directory: &Path, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), looking).await.unwrap_or_else(|_| {
        let log = |name: &str| std::fs::read_to_string(directory.join(format!("{name}.log"))).unwrap_or_default();
        panic!("{what}: {}{}{}", log("kube-apiserver"), log("kube-controller-manager"), log("kube-scheduler"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeadm_s_command_lines_start_a_control_plane() {
    let etcd = Etcd::start().await;
    let folder = tempfile::tempdir().expect("a directory");
    let (dir, port) = (folder.path(), free_port());
    kubeadm(dir, port);
    let server = format!(
        "--advertise-address=127.0.0.1 --allow-privileged=true --authorization-mode=Node,RBAC --client-ca-file={{}}/pki/ca.crt \
         --enable-admission-plugins=NodeRestriction --enable-bootstrap-token-auth=true --etcd-servers={} --etcd-prefix=/kubeadm \
         --kubelet-client-certificate={{}}/pki/apiserver-kubelet-client.crt --kubelet-client-key={{}}/pki/apiserver-kubelet-client.key \
         --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname --proxy-client-cert-file={{}}/pki/front-proxy-client.crt \
         --proxy-client-key-file={{}}/pki/front-proxy-client.key --requestheader-allowed-names=front-proxy-client \
         --requestheader-client-ca-file={{}}/pki/front-proxy-ca.crt --requestheader-extra-headers-prefix=X-Remote-Extra- \
         --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User --secure-port={port} \
         --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file={{}}/pki/sa.pub \
         --service-account-signing-key-file={{}}/pki/sa.key --service-cluster-ip-range=10.96.0.0/12 \
         --tls-cert-file={{}}/pki/apiserver.crt --tls-private-key-file={{}}/pki/apiserver.key --cert-dir={{}}/run --profiling=false -v=2",
        etcd.endpoint()
    );
    let _server = start(dir, "kube-apiserver", &words(dir, &server));
    // It believes kubeadm's authority alone, so this is the certificate that was given.
    let client =
        Client::https(Config::from_kubeconfig(dir.join("admin.conf")).expect("a kubeconfig")).expect("a client");
    until("the server is ready", dir, async || client.raw("/readyz").await.ok()).await;
    let none = client.get::<ConfigMap>("kube-public", "cluster-info").await;
    assert!(none.is_err_and(|error| error.is_not_found()), "nothing of ours is made beside what kubeadm makes");
    let manager = format!(
        "--allocate-node-cidrs=true --authentication-kubeconfig={{}}/controller-manager.conf \
         --authorization-kubeconfig={{}}/controller-manager.conf --bind-address=127.0.0.1 --client-ca-file={{}}/pki/ca.crt \
         --cluster-cidr=10.244.0.0/16 --cluster-name=kubernetes --cluster-signing-cert-file={{}}/pki/ca.crt \
         --cluster-signing-key-file={{}}/pki/ca.key --controllers=*,bootstrapsigner,tokencleaner \
         --kubeconfig={{}}/controller-manager.conf --leader-elect=true --requestheader-client-ca-file={{}}/pki/front-proxy-ca.crt \
         --root-ca-file={{}}/pki/ca.crt --service-account-private-key-file={{}}/pki/sa.key --service-cluster-ip-range=10.96.0.0/12 \
         --use-service-account-credentials=true --secure-port={}",
        free_port()
    );
    let _manager = start(dir, "kube-controller-manager", &words(dir, &manager));
    let scheduler = format!(
        "--authentication-kubeconfig={{}}/scheduler.conf --authorization-kubeconfig={{}}/scheduler.conf --bind-address=127.0.0.1 \
         --kubeconfig={{}}/scheduler.conf --leader-elect=true --secure-port={}",
        free_port()
    );
    let _scheduler = start(dir, "kube-scheduler", &words(dir, &scheduler));
    until("accounts are made", dir, async || client.get::<ServiceAccount>("default", "default").await.ok()).await;
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x",
            "lastHeartbeatTime": jiff::Timestamp::now().to_string(), "lastTransitionTime": jiff::Timestamp::now().to_string()}],
    }}))
    .expect("a node");
    client.create(&node).await.expect("a node");
    let deployment: Deployment =
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }}))
        .expect("a deployment");
    client.create(&deployment).await.expect("a deployment");
    until("two pods have a node", dir, async || {
        let pods = client.list::<Pod>("default", &client::ListParams::default()).await.ok()?.items;
        let placed = pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).count();
        (placed == 2).then_some(())
    })
    .await;
    let node = client.get::<Node>("", "n1").await.expect("a node");
    assert!(node.spec.is_some_and(|spec| spec.pod_cidr.is_some()), "it has its part of the cluster's addresses");
}

/// What curl says with these arguments, headers included.
async fn curl(server: &Server, arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "-k", "-i"]).args(arguments).arg(format!("https://127.0.0.1:{}/healthz", server.port()));
    let output = command.output().await.expect("curl (Debian: curl)");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_told_of_tls_and_of_http() {
    let folder = tempfile::tempdir().expect("a directory");
    kubeadm(folder.path(), 1);
    let given = format!("{}/pki/admin.crt,{0}/pki/admin.key:page.example", folder.path().display());
    let arguments = [
        "--disable-agent",
        "--tls-min-version=VersionTLS13",
        "--tls-sni-cert-key",
        &given,
        "--goaway-chance=0.02",
        "--cors-allowed-origins=^https://page\\.example$",
        "--strict-transport-security-directives=max-age=5",
        "--request-timeout=30s",
        "--service-account-max-token-expiration=1h",
        "--service-account-jwks-uri=https://keys.example/keys",
        "--default-not-ready-toleration-seconds=60",
        "--version=v1.37.0-custom",
    ];
    let arguments = arguments.map(str::to_owned).to_vec();
    let server = Server::start(ServerOptions { binary: BINARY.into(), arguments }).await;
    let plain = curl(&server, &[]).await;
    assert!(plain.contains("strict-transport-security: max-age=5\r\n") && !plain.contains("access-control"), "{plain}");
    let page = curl(&server, &["-H", "Origin: https://page.example", "-X", "OPTIONS"]).await;
    assert!(page.contains(" 204") && page.contains("access-control-allow-origin: https://page.example\r\n"), "{page}");
    let other = curl(&server, &["-H", "Origin: https://other.example"]).await;
    assert!(other.contains(" 200") && !other.contains("access-control"), "{other}");
    let old = curl(&server, &["--tls-max", "1.2"]).await;
    assert!(!old.contains("200"), "{old}");
    let subject = async |name: &str| {
        let connect = format!(
            "openssl s_client -connect 127.0.0.1:{} {name} </dev/null 2>/dev/null | openssl x509 -noout -subject",
            server.port()
        );
        let output = Command::new("sh").args(["-c", &connect]).output().await.expect("openssl (Debian: openssl)");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(subject("-servername page.example").await.contains("kubernetes-admin"));
    assert!(subject("-servername other.example").await.contains("kube-apiserver"));
    let client = server.client();
    let issuer = client.raw("/.well-known/openid-configuration").await.expect("a document");
    assert!(String::from_utf8_lossy(&issuer).contains("https://keys.example/keys"));
    let version = client.raw("/version").await.expect("a document");
    assert!(String::from_utf8_lossy(&version).contains("\"gitVersion\": \"v1.37.0-custom\""));
    // One request in fifty has its connection closed after it: none of them fails.
    for _ in 0..400 {
        client.get::<Namespace>("", "default").await.expect("an answer");
    }
    // Another certificate in the same files is shown without a restart.
    for end in ["crt", "key"] {
        std::fs::copy(
            folder.path().join(format!("pki/kube-proxy.{end}")),
            folder.path().join(format!("pki/admin.{end}")),
        )
        .expect("a file");
    }
    eventually("the new certificate is shown", async {
        while !subject("-servername page.example").await.contains("kube-proxy") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
