//! Identities as users bring them: the real binary with its options, a real kubectl, an issuer of the test's own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use bytes::Bytes;
use client::config::Credentials;
use client::{Client, Config};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use machinery::rest::{Body, Payload};
use pki::{Authority, Leaf, PrivateKey, Subject};
use serde_json::{Value, json};
use testkit::{Issuer, Kubectl, Server, ServerOptions};

const DAY: Duration = Duration::from_secs(86_400);

/// An authority and where its certificate is.
fn authority(directory: &Path, name: &str) -> (Authority, String) {
    let key = PrivateKey::generate().expect("a key");
    let authority = Authority::new(name, key, Timestamp::now(), DAY).expect("an authority");
    let file = write(directory, &format!("{name}.crt"), &authority.certificate().to_pem());
    (authority, file)
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// How somebody without any credential reaches the server.
fn nobody(server: &Server, directory: &Path) -> PathBuf {
    let admin = std::fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let data = admin.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{}', certificate-authority-data: '{}'}}}}], \
         users: [{{name: u, user: {{}}}}]}}",
        server.port(),
        data.expect("the server's authority").trim_matches('"'),
    );
    write(directory, "nobody.kubeconfig", &text).into()
}

fn options(arguments: &[&str]) -> ServerOptions {
    ServerOptions {
        binary: env!("CARGO_BIN_EXE_trireme").into(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
    }
}

/// Who the server takes the owner of a certificate for, given these headers.
async fn whoami(server: &Server, credentials: Credentials, headers: &[(&'static str, &'static str)]) -> Value {
    let mut config = Config::from_kubeconfig(server.kubeconfig()).expect("a kubeconfig");
    config.credentials = credentials;
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}});
    let mut request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.header("content-type", "application/json").body(Body::Value(body)).expect("a request");
    let answer = Client::https(config).expect("a client").request(request).await;
    match answer.expect("an answer").into_body() {
        Payload::Bytes(bytes) => serde_json::from_slice(&bytes).expect("JSON"),
        Payload::Value(tree) => tree,
        Payload::Stream(pieces) => {
            let pieces: Vec<Bytes> = pieces.try_collect().await.expect("the whole answer");
            serde_json::from_slice(&pieces.concat()).expect("JSON")
        }
        _ => panic!("a review is one object"),
    }
}

fn certificate(authority: &Authority, name: &str, groups: &[&str]) -> Credentials {
    let key = PrivateKey::generate().expect("a key");
    let leaf = Leaf::client(Subject::new(name, groups.iter().copied()), DAY);
    let issued = authority.issue(&leaf, &key.public(), Timestamp::now()).expect("a certificate");
    Credentials::certificate(issued.to_pem().as_bytes(), key.to_pem().as_bytes()).expect("credentials")
}

#[tokio::test]
async fn everybody_comes_in_by_a_door_of_their_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let issuer = Issuer::start().await;
    let (clients, clients_file) = authority(directory, "clients");
    let (proxies, proxies_file) = authority(directory, "proxies");
    let (first, second) = (PrivateKey::generate().expect("a key"), PrivateKey::generate().expect("a key"));
    let signing = write(directory, "sa.key", first.to_pem());
    let arguments = [
        "--verbose",
        "--verbose",
        "--disable-agent",
        "--token-auth-file",
        &write(directory, "tokens.csv", "static-secret-token,jane,7,\"devs,ops\"\n"),
        "--client-ca-file",
        &clients_file,
        "--requestheader-client-ca-file",
        &proxies_file,
        "--requestheader-allowed-names=front-proxy-client",
        "--service-account-issuer=https://tests.example",
        "--service-account-signing-key-file",
        &signing,
        "--service-account-key-file",
        &write(directory, "sa.pub", &first.public().to_pem()),
        "--oidc-issuer-url",
        issuer.url(),
        "--oidc-client-id=us",
        "--oidc-ca-file",
        &write(directory, "issuer.crt", issuer.authority()),
        "--oidc-username-prefix=oidc:",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
        "--oidc-signing-algs=RS256,ES256",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=AlwaysPullImages",
    ];
    let mut server = Server::start(options(&arguments)).await;
    let admin = server.kubectl();
    let somebody = Kubectl::new(&nobody(&server, directory), directory);
    let who = async |token: &str| somebody.run(&["--token", token, "auth", "whoami", "-o", "json"]).await;

    let jane = who("static-secret-token").await;
    assert!(jane.contains("\"username\": \"jane\"") && jane.contains("\"ops\""), "{jane}");

    let token = issuer.token(&json!({"sub": "joe", "groups": ["devs"]}));
    let joe = who(&token).await;
    assert!(joe.contains("\"oidc:joe\"") && joe.contains("\"oidc:devs\""), "{joe}");
    let refused = somebody.fail(&["--token", &token, "get", "pods"]).await;
    assert!(refused.contains("User \"oidc:joe\" cannot list resource \"pods\""), "{refused}");
    admin.run(&["create", "rolebinding", "devs", "--clusterrole=admin", "--group=oidc:devs"]).await;
    testkit::object::<k8s_openapi::api::rbac::v1::ClusterRole>(
        &server.client(),
        "",
        "admin",
        "an aggregated role",
        |role| role.is_some_and(|role| role.rules.as_ref().is_some_and(|rules| !rules.is_empty())),
    )
    .await;
    somebody.run(&["--token", &token, "get", "pods"]).await;
    let rules = somebody.run(&["--token", &token, "auth", "can-i", "--list"]).await;
    assert!(rules.contains("pods/exec") && rules.contains("selfsubjectreviews.authentication.k8s.io"), "{rules}");
    assert_eq!(somebody.run(&["--token", &token, "auth", "can-i", "create", "pods/exec"]).await, "yes\n");
    let answer = somebody.output(&["--token", &token, "auth", "can-i", "get", "nodes"], "").await;
    assert!(!answer.success && answer.stdout == "no\n", "{answer:?}");
    let expired = somebody
        .fail(&[
            "--token",
            &issuer.token(&json!({"sub": "joe", "exp": Timestamp::now().as_second() - 600})),
            "get",
            "pods",
        ])
        .await;
    assert!(expired.contains("You must be logged in to the server"), "{expired}");

    // A pod of somebody whom AlwaysPullImages concerns.
    admin.run(&["create", "serviceaccount", "bot"]).await;
    let run = ["--token", &token, "run", "pulled", "--image=busybox", "--image-pull-policy=IfNotPresent", "-o"];
    let pulled = somebody.run(&[&run[..], &["jsonpath={.spec.containers[0].imagePullPolicy}"]].concat()).await;
    assert_eq!(pulled, "Always");

    let bot_token = admin.run(&["create", "token", "bot"]).await.trim().to_owned();
    let claims: Value = bot_token
        .split('.')
        .nth(1)
        .and_then(|part| serde_json::from_slice(&BASE64.decode(part).expect("base64")).ok())
        .expect("claims");
    assert_eq!((&claims["iss"], &claims["aud"][0]), (&json!("https://tests.example"), &json!("https://tests.example")));
    assert!(who(&bot_token).await.contains("\"system:serviceaccount:default:bot\""));

    let secret = "---\n{apiVersion: v1, kind: Secret, metadata: {name: bootstrap-token-abcdef, namespace: kube-system}, \
        type: bootstrap.kubernetes.io/token, stringData: {token-id: abcdef, token-secret: 0123456789abcdef, \
        usage-bootstrap-authentication: 'true'}}";
    admin.run_with(&["create", "-f", "-"], secret).await;
    assert!(who("abcdef.0123456789abcdef").await.contains("\"system:bootstrap:abcdef\""));

    let whom = |review: &Value| review["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned();
    let spoofed = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    let guest = whoami(&server, certificate(&clients, "guest", &["visitors"]), &spoofed).await;
    assert_eq!(whom(&guest), "guest", "a client's headers mean nothing: {guest}");
    let proxied = whoami(&server, certificate(&proxies, "front-proxy-client", &[]), &spoofed).await;
    assert_eq!(whom(&proxied), "root", "{proxied}");

    let impersonated = admin.run(&["auth", "whoami", "--as=ann", "--as-group=readers", "-o", "json"]).await;
    assert!(impersonated.contains("\"ann\"") && impersonated.contains("\"readers\""), "{impersonated}");
    let refused = somebody.fail(&["--token", &token, "get", "pods", "--as=ann"]).await;
    assert!(refused.contains("cannot impersonate-on:user-info:"), "{refused}");

    certificates_are_signed(&admin, directory).await;

    // Another key signs from now on; what the first one signed stays good.
    assert!(server.stop().await, "{}", server.log_text());
    write(directory, "sa.key", second.to_pem());
    server.spawn();
    server.ready().await;
    assert!(who(&bot_token).await.contains("\"system:serviceaccount:default:bot\""));
    let keys: Value = serde_json::from_str(&admin.run(&["get", "--raw", "/openid/v1/jwks"]).await).expect("keys");
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(2), "{keys}");
    assert_ne!(admin.run(&["create", "token", "bot"]).await.split('.').next(), bot_token.split('.').next());

    let log = server.log_text();
    assert!(log.contains("DEBUG") || log.contains("TRACE"), "everything is logged");
    for (what, secret) in [
        ("a static token", "static-secret-token"),
        ("another issuer's token", token.rsplit('.').next().expect("a signature")),
        ("an account's token", bot_token.rsplit('.').next().expect("a signature")),
        ("a bootstrap token", "0123456789abcdef"),
    ] {
        assert!(!log.contains(secret), "{what} is in the log");
    }
    assert!(server.stop().await, "{}", server.log_text());
}

/// A request for a client certificate, approved with kubectl and signed by the controller.
async fn certificates_are_signed(admin: &Kubectl, directory: &Path) {
    let key = PrivateKey::generate().expect("a key");
    let request = pki::Request::new(&Subject::new("eve", ["readers"]), &[], &key).expect("a request");
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "eve"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            "request": STANDARD.encode(request.to_pem())},
    });
    admin.run(&["create", "-f", &write(directory, "csr.json", &object.to_string())]).await;
    assert!(admin.run(&["get", "csr", "eve"]).await.contains("Pending"));
    admin.run(&["certificate", "approve", "eve"]).await;
    let wait = ["wait", "--timeout=60s", "--for=jsonpath={.status.certificate}", "csr/eve"];
    admin.run(&wait).await;
    assert!(admin.run(&["get", "csr", "eve"]).await.contains("Approved,Issued"));
}
