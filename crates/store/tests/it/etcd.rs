//! The etcd engine on real etcd processes (Debian's `etcd-server`), on free ports of loopback.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use store::etcd::{Etcd, Options};
use store::{Error, Store};
use tempfile::TempDir;

use crate::contract;
use crate::support::{Fixture, next, take, within};

/// One etcd process, which can be killed and started again on the same data.
struct Member {
    name: String,
    client: String,
    peer: String,
    scheme: &'static str,
    /// Flags beyond the usual ones.
    extra: Vec<String>,
    process: Option<Child>,
}

/// An etcd cluster that ends with the test.
pub struct Cluster {
    dir: TempDir,
    members: Vec<Member>,
}

/// An address that a member can take again after it was killed: none of the ports that the system hands to outgoing
/// connections, or a client that looks for the member may end up on its port.
fn free_address() -> String {
    let free = |address: &String| TcpListener::bind(address).is_ok();
    let addresses = std::iter::repeat_with(|| format!("127.0.0.1:{}", rand::random_range(10_000..30_000)));
    addresses.take(1000).find(free).expect("a free port")
}

impl Cluster {
    pub fn start(size: usize) -> Self {
        Self::start_with(size, "http", |_| Vec::new())
    }

    fn start_with(size: usize, scheme: &'static str, extra: impl Fn(&Path) -> Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let member = |i: usize| Member {
            name: format!("m{i}"),
            client: free_address(),
            peer: free_address(),
            scheme,
            extra: extra(dir.path()),
            process: None,
        };
        let members = (0..size).map(member).collect();
        let mut cluster = Self { dir, members };
        (0..size).for_each(|i| cluster.run(i));
        cluster
    }

    pub fn run(&mut self, i: usize) {
        let all: Vec<_> = self.members.iter().map(|m| format!("{}=http://{}", m.name, m.peer)).collect();
        let member = &mut self.members[i];
        let (client, peer) = (format!("{}://{}", member.scheme, member.client), format!("http://{}", member.peer));
        let mut command = Command::new("etcd");
        command
            .args(["--name", &member.name, "--data-dir"])
            .arg(self.dir.path().join(&member.name))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(","), "--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&member.extra)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        member.process = Some(command.spawn().expect("Debian's etcd-server is installed"));
    }

    /// Stops it, or lets it go on: its connections stay open meanwhile, and nothing comes.
    fn signal(&self, i: usize, signal: &str) {
        let id = self.members[i].process.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    pub fn kill(&mut self, i: usize) {
        if let Some(mut process) = self.members[i].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// A store that knows one member only.
    pub fn member(&self, i: usize) -> Arc<Etcd> {
        let endpoints = vec![self.options().endpoints.swap_remove(i)];
        Etcd::open(&Options { endpoints, ..Options::default() }).unwrap()
    }

    pub fn options(&self) -> Options {
        let endpoints = self.members.iter().map(|m| format!("{}://{}", m.scheme, m.client)).collect();
        Options { endpoints, ..Options::default() }
    }

    pub async fn store(&self) -> Arc<Etcd> {
        let store = Etcd::open(&self.options()).unwrap();
        ready(&store).await;
        store
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|i| self.kill(i));
    }
}

/// Waits until etcd answers. It has no way to announce that, so it is asked again and again.
pub async fn ready(store: &Etcd) {
    within("an answer from etcd", async {
        while store.revision().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

pub fn fixture(store: &Arc<Etcd>) -> Fixture {
    Fixture { store: Arc::clone(store) as _, root: "/registry/".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let cluster = Cluster::start(1);
    contract::run(cluster.store().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_is_gone_is_unavailable_and_back_when_it_is_back() {
    let mut cluster = Cluster::start(1);
    let store = cluster.store().await;
    let f = fixture(&store);
    let acknowledged = f.put("a", "1").await;
    let mut watch = f.watch(acknowledged).await;
    cluster.kill(0);
    let started = std::time::Instant::now();
    let unavailable = |e: &Error| matches!(e, Error::Unavailable(_));
    assert!(store.get(&f.key("a")).await.is_err_and(|e| unavailable(&e)));
    assert!(store.revision().await.is_err_and(|e| unavailable(&e)));
    let txn = store::Txn {
        key: f.key("b").into(),
        expect: store::Expect::Absent,
        op: store::Op::Delete,
        write: None,
        note: Default::default(),
    };
    assert!(store.txn(txn).await.is_err_and(|e| unavailable(&e)));
    assert!(store.watch("/", 1).await.err().is_some_and(|e| unavailable(&e)));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    cluster.run(0);
    ready(&store).await;
    assert_eq!(f.get("a").await.unwrap().revision, acknowledged);
    f.put("a", "2").await;
    f.delete("a").await;
    let told: Vec<_> = take(&mut watch, 2).await.iter().map(|e| f.told(e)).collect();
    assert_eq!(told, ["a: 1 -> 2", "a: 2 -> -"], "the watch has taken itself up again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_lost_its_history_while_it_was_away_says_so() {
    let mut cluster = Cluster::start(1);
    let store = cluster.store().await;
    let f = fixture(&store);
    let first = f.put("a", "1").await;
    let mut watch = f.watch(first).await;
    f.put("a", "2").await;
    assert_eq!(next(&mut watch).await.revision, first + 1);
    cluster.kill(0);
    // Somebody else writes and compacts before this client is back: it may talk to etcd only through another port.
    let (ours, theirs) = (cluster.members[0].client.clone(), free_address());
    cluster.members[0].client.clone_from(&theirs);
    cluster.run(0);
    let other = cluster.store().await;
    let g = fixture(&other);
    let mut last = 0;
    for i in 0..5 {
        last = g.put("a", i.to_string()).await;
    }
    other.compact(last).await.unwrap();
    cluster.kill(0);
    cluster.members[0].client = ours;
    cluster.run(0);
    let item = within("the end of the watch", watch.next()).await.unwrap();
    assert!(matches!(item, Err(Error::Compacted { oldest }) if oldest == last), "{item:?}");
    assert!(watch.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_may_die_one_after_the_other() {
    let mut cluster = Cluster::start(3);
    let store = cluster.store().await;
    let f = fixture(&store);
    let start = f.revision().await;
    let mut watch = f.watch(start).await;
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        cluster.kill(round);
        for i in 0..20 {
            // A write whose member dies under it has no known outcome; it is told apart by reading.
            let (name, value) = (format!("k{round}"), i.to_string());
            within("a write through the members that are left", async {
                while !written(&f, &name, &value).await {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
            acknowledged.push(format!("{name}={value}"));
        }
        cluster.run(round);
        ready(&cluster.member(round)).await;
    }
    let (mut seen, mut last) = (Vec::new(), start);
    while seen.len() < acknowledged.len() {
        let event = next(&mut watch).await;
        assert!(event.revision > last);
        last = event.revision;
        let value = String::from_utf8(event.value.unwrap().to_vec()).unwrap();
        seen.push(format!("{}={value}", &event.key[f.root.len()..]));
    }
    assert_eq!(seen, acknowledged, "every write once and in order");
}

/// Less than it takes to find out that a connection is dead, and much more than it takes to find out that others answer.
const SILENT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_falls_silent_is_left_by_calls_and_watches() {
    let cluster = Cluster::start(3);
    let store = cluster.store().await;
    let f = fixture(&store);
    let mut watch = f.watch(f.revision().await).await;
    for round in 0..3 {
        // One of the three is the one that the watch is at, and one is the leader.
        cluster.signal(round, "-STOP");
        let seen = tokio::time::timeout(SILENT, async {
            let value = round.to_string();
            while !written(&f, "k", &value).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            next(&mut watch).await.value.map(|value| value.to_vec())
        });
        let seen = seen.await.unwrap_or_else(|_| panic!("member {round} holds everybody up"));
        assert_eq!(seen, Some(round.to_string().into_bytes()));
        cluster.signal(round, "-CONT");
        ready(&cluster.member(round)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_history_is_given_up_by_itself() {
    let cluster = Cluster::start(1);
    let options = Options { compaction: Some(Duration::from_millis(100)), ..cluster.options() };
    let store = Etcd::open(&options).unwrap();
    ready(&store).await;
    let f = fixture(&store);
    let first = f.put("a", "1").await;
    f.put("a", "2").await;
    within("a compaction", async {
        while !matches!(f.all_at(first).await, Err(Error::Compacted { .. })) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(f.shown(&f.all().await.records), ["a=2"]);
}

/// Writes the value unless it is there already; says whether it is certainly there now.
async fn written(f: &Fixture, name: &str, value: &str) -> bool {
    let key = f.key(name);
    let Ok(current) = f.store.get(&key).await else { return false };
    if current.as_ref().is_some_and(|r| r.value == value) {
        return true;
    }
    let expect = current.map_or(store::Expect::Absent, |r| store::Expect::At(r.revision));
    let op = store::Op::Put { value: value.to_owned().into(), ttl: None };
    let txn = store::Txn { key: key.into(), expect, op, write: None, note: Default::default() };
    matches!(f.store.txn(txn).await, Ok(store::Outcome::Committed(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_speaks_tls_with_a_client_certificate() {
    let flags = |dir: &Path| {
        certificates(dir);
        let file = |name: &str| dir.join(name).display().to_string();
        let [cert, key, ca] = [file("etcd.pem"), file("etcd.key"), file("ca.pem")];
        vec![
            format!("--cert-file={cert}"),
            format!("--key-file={key}"),
            format!("--trusted-ca-file={ca}"),
            "--client-cert-auth".into(),
        ]
    };
    let cluster = Cluster::start_with(1, "https", flags);
    let file = |name: &str| Some(cluster.dir.path().join(name));
    let known = Options {
        ca_file: file("ca.pem"),
        cert_file: file("etcd.pem"),
        key_file: file("etcd.key"),
        ..cluster.options()
    };
    let store = Etcd::open(&known).unwrap();
    ready(&store).await;
    let f = fixture(&store);
    f.put("a", "secret").await;
    assert_eq!(f.get("a").await.unwrap().value, "secret");
    let stranger = Etcd::open(&Options { ca_file: file("ca.pem"), ..cluster.options() }).unwrap();
    assert!(matches!(stranger.get("a").await, Err(Error::Unavailable(_))), "no certificate, no entry");
    let trusting = Etcd::open(&Options { ca_file: file("other.pem"), ..known }).unwrap();
    assert!(matches!(trusting.get("a").await, Err(Error::Unavailable(_))), "another authority's etcd");
}

/// An authority, one certificate for both ends signed by it, and another authority, made by openssl.
fn certificates(dir: &Path) {
    let script = r#"
        set -e
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=other -keyout o.key -out other.pem
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=etcd -keyout etcd.key -out etcd.csr
        printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > ext
        openssl x509 -req -in etcd.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out etcd.pem
    "#;
    let done = Command::new("sh").args(["-c", script]).current_dir(dir).stderr(Stdio::null()).status().unwrap();
    assert!(done.success());
}
