//! What no rule claims is refused on the machine: not a single packet for it reaches the link to the outside.

use serde_json::json;

use crate::net::Net;
use crate::rules::Cluster;
use crate::traffic::tcp;

/// Counts, where the outsider is, what comes in for addresses of the cluster.
const COUNTERS: &str = "table inet seen { chain in { type filter hook prerouting priority -300; \
     ip daddr 10.96.0.0/12 counter; ip6 daddr fd96::/108 counter; }; }";

fn leaked(net: &Net) -> Vec<u64> {
    let listed = net.rules_of("out");
    let rules = listed["nftables"].as_array().unwrap().iter().filter_map(|item| item.get("rule"));
    let counters = rules.flat_map(|rule| rule["expr"].as_array().unwrap()).filter_map(|e| e.get("counter"));
    counters.map(|counter| counter["packets"].as_u64().unwrap()).collect()
}

#[test]
fn nothing_for_a_service_leaves_the_machine() {
    let net = Net::new(2);
    net.serve("pod0", "10.1.0.2:8080");
    net.nft_in("out", COUNTERS);
    let mut cluster = Cluster::new(&net);
    cluster.set("web", tcp("10.96.0.1"), &["10.1.0.2@node"]);
    let six = json!({"clusterIP": "fd96::1", "clusterIPs": ["fd96::1"], "ports": [{"port": 80, "targetPort": 8080}]});
    cluster.set("six", six, &[]);
    assert!(net.echoes("pod1", "10.1.0.1") && net.echoes("pod1", "fd02::1"));
    for from in ["pod1", "node"] {
        // No such Service, no such port, no endpoints; as a stream, a datagram and an echo request.
        for address in ["10.96.77.1:80", "10.96.0.1:81", "[fd96::77]:80", "[fd96::1]:80", "[fd96::1]:81"] {
            assert_eq!(net.ask(from, address), "refused", "{address} from {from}");
            // To a process on the node itself the kernel says that it may not.
            let said = crate::net::say(&net.flow(from, address));
            assert!(
                said == "refused" || from == "node" && said.contains("not permitted"),
                "{address} from {from}: {said}"
            );
        }
        for address in ["10.96.77.1", "fd96::77"] {
            assert!(!net.echoes(from, address), "{address} from {from}");
        }
    }
    assert_eq!(leaked(&net), [0, 0]);
    // The counters do count.
    net.nft("flush ruleset");
    net.ask("pod1", "10.96.77.1:80");
    net.ask("pod1", "[fd96::77]:80");
    assert!(leaked(&net).iter().all(|count| *count > 0), "{:?}", leaked(&net));
}
