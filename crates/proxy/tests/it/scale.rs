//! Cost at size: one endpoint of 5,000 Services and 50,000 endpoints changes.

use std::collections::BTreeMap;

use proxy::rules::Rules;
use serde_json::json;

use crate::apply::Rules as _;
use crate::net::Net;
use crate::rules::{changed, node, objects};

#[test]
fn one_endpoint_among_fifty_thousand_is_a_few_lines() {
    let net = Net::new(1);
    net.serve("pod0", "10.1.0.2:8080");
    let spec = |n: u32| {
        let ip = format!("10.100.{}.{}", n / 250, n % 250 + 1);
        json!({"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "targetPort": 8080}]})
    };
    let all: BTreeMap<String, _> = (0..5_000_u32)
        .map(|n| {
            let endpoints: Vec<String> =
                (0..10).map(|e| format!("10.200.{}.{}@far", n / 25, n % 25 * 10 + e)).collect();
            let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
            (format!("s{n}"), objects(&format!("s{n}"), &spec(n), &endpoints))
        })
        .collect();
    let mut rules = Rules::build(all.values().map(|o| &o.0), all.values().flat_map(|o| &o.1), node());
    net.nft(&rules.replacement());
    let now = objects("s77", &spec(77), &["10.1.0.2@node"]);
    let transaction = rules.update(&[changed("s77", Some(&now))]);
    assert!(transaction.update().lines().count() < 12, "{}", transaction.update());
    assert!(transaction.elements().is_some(), "nobody has to be started for it");
    net.apply(&transaction);
    assert_eq!(net.ask("out", "10.100.0.78:80"), "pod0 10.1.0.1");
}
