//! SCTP. Not every kernel speaks it, but every one translates it: so the test writes and reads the packets itself.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};
use serde_json::json;

use crate::net::Net;
use crate::rules::Cluster;

/// CRC-32C, as the protocol has it.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// The first packet of an association.
fn init(from: u16, to: u16) -> Vec<u8> {
    let mut packet = [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0; 8]].concat();
    // An INIT chunk of 20 bytes: tag, window, streams, first number.
    packet.extend([1, 0, 0, 20, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let sum = checksum(&packet);
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
    packet
}

#[test]
fn associations_reach_an_endpoint_and_are_refused_without_one() {
    let net = Net::new(2);
    let mut cluster = Cluster::new(&net);
    let spec = json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "type": "NodePort",
                      "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080, "protocol": "SCTP"}]});
    cluster.set("sctp", spec.clone(), &["10.1.0.2@node"]);
    let raw = || socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::SCTP)).unwrap();
    let pod = net.inside("pod0", raw);
    sockopt::set_socket_timeout(&pod, sockopt::Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
    for (from, to, port) in [("pod1", [10, 96, 0, 1], 80), ("node", [10, 96, 0, 1], 80), ("out", [192, 0, 2, 1], 30080)]
    {
        let target = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(to), 0));
        let sender = net.inside(from, raw);
        sendto(&sender, &init(40_000, port), SendFlags::empty(), &target).unwrap();
        let mut buffer = [0; 128];
        let (length, _) = recv(&pod, &mut buffer, RecvFlags::empty()).unwrap();
        // Behind the header of 20 bytes: ports, tag, checksum.
        assert_eq!(u16::from_be_bytes([buffer[22], buffer[23]]), 8080, "from {from}: {:?}", &buffer[..length]);
        assert_eq!(buffer[16..20], [10, 1, 0, 2], "from {from}");
    }
    // Without endpoints it is refused, and leaves by no link.
    cluster.set("sctp", spec, &[]);
    net.nft_in(
        "out",
        "table ip seen { chain in { type filter hook prerouting priority -300; ip daddr 10.96.0.1 counter; }; }",
    );
    let sender = net.inside("pod1", raw);
    let target = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 0));
    sendto(&sender, &init(40_001, 80), SendFlags::empty(), &target).unwrap();
    // Whatever left would have arrived before what is sent after it.
    assert_eq!(net.ask("pod1", "192.0.2.9:9"), "refused");
    assert!(net.rules_of("out").to_string().contains("\"packets\":0"), "{}", net.rules_of("out"));
}
