//! Encryption at rest from outside: what is on disk, what happens when keys change, and a key management service of the
//! test's own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::encryption::Settings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};
use store::Store as _;
use testkit::build::config_map;

use crate::server::Server;

const PLANTED: &str = "planted-deep-in-the-secret";

fn key(name: &str, byte: u8, size: usize) -> Value {
    json!({"name": name, "secret": STANDARD.encode(vec![byte; size])})
}

/// Puts the file in its place in one step, as editors and mounted volumes do.
fn write(path: &Path, resources: Value) {
    let tree =
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": resources});
    let new = path.with_extension("new");
    std::fs::write(&new, tree.to_string()).expect("a file");
    std::fs::rename(&new, path).expect("in its place");
}

async fn encrypted(resources: Value) -> Server {
    Server::start(move |config, directory| {
        let directory = directory.join("encryption");
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("config.yaml");
        write(&path, resources);
        config.encryption = Some(Settings { path, reload: true });
    })
    .await
}

fn secret(name: &str) -> Secret {
    let tree = json!({"metadata": {"name": name, "namespace": "default"}, "stringData": {"password": PLANTED}});
    serde_json::from_value(tree).expect("a secret")
}

/// Every byte that the store has on disk.
fn on_disk(directory: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            bytes.extend(on_disk(&path));
        } else {
            bytes.extend(std::fs::read(&path).expect("a file"));
        }
    }
    bytes
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn stored(server: &Server, key: &str) -> Bytes {
    server.store().get(key).await.expect("the store").expect("a record").value
}

/// Waits until the server has taken in a new configuration.
async fn reloaded(server: &Server, times: usize, status: &str) {
    let wanted =
        format!("apiserver_encryption_config_controller_automatic_reloads_total{{status=\"{status}\"}} {times}");
    let look = async {
        loop {
            let figures = server.admin().raw("/metrics").await.expect("figures");
            if String::from_utf8_lossy(&figures).contains(&wanted) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("the new configuration", look).await;
}

#[tokio::test]
async fn a_planted_secret_is_not_in_the_stores_files() {
    for (provider, prefix) in [
        ("aescbc", "k8s:enc:aescbc:v1:key1:"),
        ("aesgcm", "k8s:enc:aesgcm:v1:key1:"),
        ("secretbox", "k8s:enc:secretbox:v1:key1:"),
    ] {
        let rules =
            json!([{"resources": ["secrets", "*.apps"], "providers": [{provider: {"keys": [key("key1", 1, 32)]}}]}]);
        let server = encrypted(rules).await;
        server.admin().create(&secret("a")).await.expect("a secret");
        server.admin().create(&config_map("open", "k", PLANTED)).await.expect("a config map");
        let read = server.admin().get::<Secret>("default", "a").await.expect("the secret");
        assert_eq!(read.data.expect("data")["password"].0, PLANTED.as_bytes());
        assert!(stored(&server, "/registry/secrets/default/a").await.starts_with(prefix.as_bytes()));
        assert!(!holds(&stored(&server, "/registry/secrets/default/a").await, &STANDARD.encode(PLANTED)));
        let disk = on_disk(&server.path("store"));
        assert!(!holds(&disk, &STANDARD.encode(PLANTED)), "{provider}");
        assert!(holds(&disk, PLANTED), "what is not to be sealed is not");
        server.admin().delete::<ConfigMap>("default", "open", &Default::default()).await.expect("deleted");
        server.stop().await;
    }
}

#[tokio::test]
async fn keys_are_replaced_while_the_server_runs() {
    let old = json!({"aescbc": {"keys": [key("key1", 1, 32)]}});
    let server = encrypted(json!([{"resources": ["secrets"], "providers": [old, {"identity": {}}]}])).await;
    let path = server.path("encryption/config.yaml");
    let name = "/registry/secrets/default/a";
    server.admin().create(&secret("a")).await.expect("a secret");
    let before = stored(&server, name).await;
    // A file that makes no sense changes nothing.
    write(&path, json!([]));
    reloaded(&server, 1, "failure").await;
    let new = json!({"secretbox": {"keys": [key("key2", 2, 32)]}});
    write(&path, json!([{"resources": ["secrets"], "providers": [new, old]}]));
    reloaded(&server, 1, "success").await;
    let read = server.admin().get::<Secret>("default", "a").await.expect("the secret");
    assert_eq!(stored(&server, name).await, before, "reading writes nothing");
    // The same object again: nothing changes but the key.
    server.admin().update(&read).await.expect("updated");
    let after = stored(&server, name).await;
    assert!(after.starts_with(b"k8s:enc:secretbox:v1:key2:"));
    let again = server.admin().get::<Secret>("default", "a").await.expect("the secret");
    server.admin().update(&again).await.expect("updated");
    assert_eq!(stored(&server, name).await, after, "and only once");
    write(&path, json!([{"resources": ["secrets"], "providers": [new]}]));
    reloaded(&server, 2, "success").await;
    server.admin().create(&secret("b")).await.expect("a secret");
    assert_eq!(server.admin().list::<Secret>("default", &Default::default()).await.expect("all").items.len(), 2);
    let probe = server.admin().raw("/readyz?verbose").await.expect("ready");
    assert!(String::from_utf8_lossy(&probe).contains("[+]kms-providers ok"));
    server.stop().await;
}

#[derive(Clone, PartialEq, Message)]
struct Sealed {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Asked {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

/// A key management service: its cipher is a laughing matter, its protocol is not.
#[derive(Default)]
struct Service {
    key_id: Mutex<String>,
    well: Mutex<String>,
    encrypted: AtomicUsize,
    decrypted: AtomicUsize,
}

impl Service {
    fn start(socket: &Path) -> Arc<Self> {
        let service =
            Arc::new(Self { key_id: Mutex::new("id-1".into()), well: Mutex::new("ok".into()), ..Self::default() });
        let listener = tokio::net::UnixListener::bind(socket).expect("a socket");
        let told = service.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let told = told.clone();
                let serve = service_fn(move |request| answer(told.clone(), request));
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), serve));
            }
        });
        service
    }

    fn call(&self, method: &str, message: &[u8]) -> Vec<u8> {
        let turned = |bytes: &[u8]| bytes.iter().map(|byte| byte ^ 0x5a).collect::<Vec<u8>>();
        let (key_id, annotations) =
            (self.key_id.lock().clone(), BTreeMap::from([("tests.example.com".into(), b"note".to_vec())]));
        let asked = Asked::decode(message).unwrap_or_default();
        match method {
            "Status" => Status { version: "v2".into(), healthz: self.well.lock().clone(), key_id }.encode_to_vec(),
            "Encrypt" => {
                self.encrypted.fetch_add(1, Ordering::Relaxed);
                Sealed { bytes: turned(&Sealed::decode(message).expect("a request").bytes), key_id, annotations }
                    .encode_to_vec()
            }
            "Decrypt" => {
                self.decrypted.fetch_add(1, Ordering::Relaxed);
                assert!(asked.key_id.starts_with("id-"), "{asked:?}");
                assert_eq!(asked.annotations, annotations, "what it said comes back");
                Sealed { bytes: turned(&asked.bytes), ..Sealed::default() }.encode_to_vec()
            }
            other => panic!("there is no method {other}"),
        }
    }
}

type Frames = StreamBody<futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, std::convert::Infallible>>>>;

/// One gRPC call, by hand: a message with five bytes before it, and the status in the trailers.
async fn answer(
    service: Arc<Service>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Frames>, hyper::Error> {
    let method = request.uri().path().strip_prefix("/v2.KeyManagementService/").expect("our service").to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let message = service.call(&method, &body[5..]);
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("a small message"));
    framed.put_slice(&message);
    let trailers = http::HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        http::HeaderValue::from_static("0"),
    )]);
    let frames = vec![Ok(Frame::data(framed.freeze())), Ok(Frame::trailers(trailers))];
    let mut response = http::Response::new(StreamBody::new(futures::stream::iter(frames)));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    Ok(response)
}

#[tokio::test]
async fn a_key_management_service_keeps_the_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("kms.sock");
    let service = Service::start(&socket);
    let provider = |timeout: &str| {
        json!({"kms": {"apiVersion": "v2", "name": "mine", "timeout": timeout,
        "endpoint": format!("unix://{}", socket.display())}})
    };
    let rules = |timeout: &str| json!([{"resources": ["secrets"], "providers": [provider(timeout), {"identity": {}}]}]);
    let server = encrypted(rules("3s")).await;
    for name in ["a", "b", "c"] {
        server.admin().create(&secret(name)).await.expect("a secret");
    }
    assert_eq!(service.encrypted.load(Ordering::Relaxed), 1, "one seed for all of them");
    assert_eq!(service.decrypted.load(Ordering::Relaxed), 0, "which is known already");
    let name = "/registry/secrets/default/a";
    assert!(stored(&server, name).await.starts_with(b"k8s:enc:kms:v2:mine:"));
    assert!(!holds(&on_disk(&server.path("store")), &STANDARD.encode(PLANTED)));
    let probe = server.admin().raw("/readyz/kms-providers").await.expect("well");
    assert_eq!(&probe[..], b"ok");

    // Its key is replaced; who asks it next learns of it, makes a new seed, and writes with that.
    *service.key_id.lock() = "id-2".into();
    write(&server.path("encryption/config.yaml"), rules("4s"));
    reloaded(&server, 1, "success").await;
    assert_eq!(service.encrypted.load(Ordering::Relaxed), 2);
    let before = stored(&server, name).await;
    let read = server.admin().get::<Secret>("default", "a").await.expect("the secret");
    server.admin().update(&read).await.expect("updated");
    assert_ne!(stored(&server, name).await, before, "written again with the new key");
    assert_eq!(service.decrypted.load(Ordering::Relaxed), 1, "the old seed was asked for once");

    // One that is not well is not taken in.
    *service.well.lock() = "broken".into();
    write(&server.path("encryption/config.yaml"), rules("5s"));
    reloaded(&server, 1, "failure").await;
    server.admin().create(&secret("d")).await.expect("the seed of before is still good");
    server.stop().await;
}

#[tokio::test]
async fn another_start_reads_what_was_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("kms.sock");
    let service = Service::start(&socket);
    let rules = json!([{"resources": ["*.*"], "providers": [{"kms": {"apiVersion": "v2", "name": "mine",
        "endpoint": format!("unix://{}", socket.display())}}]}]);
    let server = encrypted(rules).await;
    server.admin().create(&secret("kept")).await.expect("a secret");
    let server = server
        .restart(|config, directory| {
            let path = directory.join("encryption/config.yaml");
            config.encryption = Some(Settings { path, reload: false });
        })
        .await;
    let read = server.admin().get::<Secret>("default", "kept").await.expect("the secret");
    assert_eq!(read.data.expect("data")["password"].0, PLANTED.as_bytes());
    assert_eq!(service.decrypted.load(Ordering::Relaxed), 1, "one seed opens everything");
    server.stop().await;
}
