//! The server over real sockets on loopback, asked with `dig`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agent;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dns::zone::Entry;
use dns::{Bound, Config};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use serde_json::json;
use tokio::net::UdpSocket;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A server with some names.
struct Dns {
    address: SocketAddr,
    metrics: Arc<dns::Metrics>,
    _running: DropGuard,
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn start(upstreams: Vec<SocketAddr>, stub_domains: Vec<(String, Vec<SocketAddr>)>) -> Dns {
    let bound = dns::bind(&Config { upstreams, stub_domains, ..Config::new(vec![loopback()]) }).await.unwrap();
    serve(bound)
}

fn serve(bound: Bound) -> Dns {
    let (address, metrics, zone) = (bound.addresses()[0], bound.metrics(), bound.zone());
    let service = |spec| serde_json::from_value(json!({"spec": spec})).unwrap();
    let slice = |range: std::ops::Range<u32>| {
        let endpoints: Vec<_> =
            range.map(|n| json!({"addresses": [format!("10.1.{}.{}", n / 250, n % 250)]})).collect();
        serde_json::from_value(json!({"addressType": "IPv4", "endpoints": endpoints})).unwrap()
    };
    let web = json!({"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]});
    let mut names = zone.write();
    names.set_service("ns", "web", Entry::of(&service(web), []));
    names.set_service("ns", "many", Entry::of(&service(json!({"clusterIP": "None"})), [&slice(0..300)]));
    let out = json!({"type": "ExternalName", "externalName": "www.example.com"});
    names.set_service("ns", "out", Entry::of(&service(out), []));
    drop(names);
    let shutdown = CancellationToken::new();
    let running = shutdown.clone().drop_guard();
    tokio::spawn(async move { bound.serve(std::future::ready(()), shutdown).await.unwrap() });
    Dns { address, metrics, _running: running }
}

/// What `dig` prints.
async fn dig(dns: &Dns, args: &str) -> String {
    let (ip, port) = (format!("@{}", dns.address.ip()), dns.address.port().to_string());
    let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
    let output = tokio::task::spawn_blocking(move || {
        Command::new("dig").args([&ip, "-p", &port, "+time=10", "+tries=1"]).args(args).output().unwrap()
    });
    // It puts one or several tabs or blanks between columns, as they happen to fit.
    String::from_utf8(output.await.unwrap().stdout).unwrap().replace('\t', " ")
}

/// An upstream that answers A questions with one address, and counts how often it is asked.
async fn upstream(address: [u8; 4]) -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let socket = UdpSocket::bind(loopback()).await.unwrap();
    let (server, asked) = (socket.local_addr().unwrap(), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let count = asked.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut message = Message::from_vec(&buffer[..length]).unwrap();
            let name = message.queries[0].name.clone();
            message.metadata.message_type = MessageType::Response;
            if name.to_string().starts_with("www.") {
                message.answers.push(Record::from_rdata(name, 300, RData::A(A(address.into()))));
            } else {
                message.metadata.response_code = ResponseCode::NXDomain;
            }
            socket.send_to(&message.to_vec().unwrap(), peer).await.unwrap();
        }
    });
    (server, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn dig_finds_what_the_specification_says() {
    let dns = start(vec![], vec![]).await;
    let check = async |args: &str, want: &[&str]| {
        let said = dig(&dns, args).await;
        for text in want {
            assert!(said.contains(text), "{args}: no {text:?} in\n{said}");
        }
    };
    check("web.ns.svc.cluster.local", &["status: NOERROR", "flags: qr aa rd ra;", "30 IN A 10.96.0.1"]).await;
    check("+tcp web.ns.svc.cluster.local", &["30 IN A 10.96.0.1", "(TCP)"]).await;
    check(
        "_http._tcp.web.ns.svc.cluster.local SRV",
        &["IN SRV 0 100 80 web.ns.svc.cluster.local.", "ADDITIONAL SECTION"],
    )
    .await;
    check("-x 10.96.0.1", &["PTR web.ns.svc.cluster.local."]).await;
    check("nothing.ns.svc.cluster.local", &["status: NXDOMAIN", "SOA ns.dns.cluster.local. hostmaster.cluster.local."])
        .await;
    check("web.ns.svc.cluster.local TXT", &["status: NOERROR", "ANSWER: 0, AUTHORITY: 1"]).await;
    check("+short dns-version.cluster.local TXT", &["\"1.1.0\""]).await;
    check("+edns=0 +bufsize=4096 web.ns.svc.cluster.local", &["EDNS: version: 0, flags:; udp: 1232"]).await;
    check("+edns=1 +noednsneg web.ns.svc.cluster.local", &["status: BADVERS"]).await;
    check("+opcode=UPDATE web.ns.svc.cluster.local", &["status: NOTIMP"]).await;
    check("web.ns.svc.cluster.local CH A", &["status: REFUSED"]).await;
    check("+tcp cluster.local AXFR", &["Transfer failed"]).await;
    // No server knows other names: an answer at once all the same.
    check("www.example.com", &["status: SERVFAIL"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_cut_and_whole_by_stream() {
    let dns = start(vec![], vec![]).await;
    let cut = dig(&dns, "+ignore +noedns many.ns.svc.cluster.local").await;
    assert!(cut.contains("flags: qr aa tc rd ra;") && cut.contains("MSG SIZE"), "{cut}");
    let size: usize = cut.lines().find_map(|l| l.split("rcvd: ").nth(1)).unwrap().trim().parse().unwrap();
    assert!((300..=512).contains(&size), "{size}");
    let whole = dig(&dns, "+short many.ns.svc.cluster.local").await;
    assert_eq!(whole.lines().count(), 300);
    // Turned around from one answer to the next, so that not everybody takes the first.
    let mut firsts = std::collections::BTreeSet::new();
    for _ in 0..10 {
        firsts.insert(dig(&dns, "+short many.ns.svc.cluster.local").await.lines().next().unwrap().to_owned());
    }
    assert!(firsts.len() > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_names_come_from_others_and_are_remembered() {
    let (everybody, asked) = upstream([192, 0, 2, 80]).await;
    let (corp, _) = upstream([192, 0, 2, 81]).await;
    let dns = start(vec![everybody], vec![("corp.example".into(), vec![corp])]).await;
    for _ in 0..3 {
        assert_eq!(dig(&dns, "+short www.example.com").await, "192.0.2.80\n");
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(dig(&dns, "+short www.corp.example").await, "192.0.2.81\n");
    assert!(dig(&dns, "no.example.com").await.contains("status: NXDOMAIN"));
    let alias = dig(&dns, "out.ns.svc.cluster.local").await;
    assert!(alias.contains("CNAME www.example.com.") && alias.contains("A 192.0.2.80"), "{alias}");
    let metrics = dns.metrics.render();
    assert!(metrics.contains("coredns_cache_hits_total 3"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_upstream_is_a_failure_in_time() {
    // Bound and never read: it neither answers nor refuses.
    let dead = UdpSocket::bind(loopback()).await.unwrap();
    let dns = start(vec![dead.local_addr().unwrap()], vec![]).await;
    // `dig` gives up after ten seconds: an answer is an answer in time.
    let (first, second) = tokio::join!(dig(&dns, "www.example.com"), dig(&dns, "www.example.com"));
    assert!(first.contains("status: SERVFAIL") && second.contains("status: SERVFAIL"), "{first}");
    // Remembered for a moment: the next one asks nobody, and does not wait.
    let asked = forwarded(&dns);
    assert!(dig(&dns, "www.example.com").await.contains("status: SERVFAIL"));
    assert_eq!(forwarded(&dns), asked);
    assert_eq!(dig(&dns, "+short web.ns.svc.cluster.local").await, "10.96.0.1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_ends_in_a_failure_and_not_in_a_storm() {
    // Two servers that ask each other.
    let first = dns::bind(&Config::new(vec![loopback()])).await.unwrap().addresses()[0];
    let second = start(vec![first], vec![]).await;
    let config = Config { upstreams: vec![second.address], ..Config::new(vec![first]) };
    let first = serve(dns::bind(&config).await.unwrap());
    assert!(dig(&first, "www.example.com").await.contains("status: SERVFAIL"));
    assert!(forwarded(&first) <= 4, "{}", forwarded(&first));
}

/// How often others were asked.
fn forwarded(dns: &Dns) -> u64 {
    let metrics = dns.metrics.render();
    metrics.lines().find_map(|l| l.strip_prefix("coredns_proxy_requests_total ")).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_harms_nobody() {
    let dns = start(vec![], vec![]).await;
    let socket = UdpSocket::bind(loopback()).await.unwrap();
    let mut seed = 1_u32;
    for length in 0..600 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        })
        .take(length)
        .collect();
        socket.send_to(&bytes, dns.address).await.unwrap();
    }
    let mut stream = TcpStream::connect(dns.address).unwrap();
    stream.write_all(&[0, 5, 1, 2, 3, 4, 5]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    assert_eq!(dig(&dns, "+short web.ns.svc.cluster.local").await, "10.96.0.1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_questions_without_an_error() {
    const EACH: u16 = 25_000;
    let dns = start(vec![], vec![]).await;
    let ask = async |client: u16| {
        let socket = UdpSocket::bind(loopback()).await.unwrap();
        socket.connect(dns.address).await.unwrap();
        let mut message = Message::new(0, MessageType::Query, OpCode::Query);
        message.queries.push(Query::query(Name::from_ascii("web.ns.svc.cluster.local.").unwrap(), RecordType::A));
        let mut bytes = message.to_vec().unwrap();
        let mut buffer = [0; 512];
        for n in 0..EACH {
            bytes[..2].copy_from_slice(&(n ^ client << 14).to_be_bytes());
            socket.send(&bytes).await.unwrap();
            let received = tokio::time::timeout(Duration::from_secs(30), socket.recv(&mut buffer)).await;
            let length = received.expect("an answer in time").unwrap();
            assert_eq!(buffer[..2], bytes[..2]);
            assert!(length > bytes.len() && buffer[3] & 0x0f == 0);
        }
    };
    tokio::join!(ask(0), ask(1), ask(2), ask(3));
}
