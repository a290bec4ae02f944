//! Ranges: given in order, never twice, never over others.

use super::plan::{Ledger, Usage};
use ipnet::IpNet;

fn cidr(text: &str) -> IpNet {
    text.parse().expect("a range")
}

#[track_caller]
fn check(cluster: &str, bits: u8, used: &[&str], expected: Option<&str>) {
    let mut ledger = Ledger::new([(cidr(cluster), bits)], &[]);
    for (number, text) in used.iter().enumerate() {
        ledger.note(&format!("n{number}"), vec![cidr(text)]);
    }
    let given = ledger.give("new").map(|given| given[0].to_string());
    assert_eq!(given.as_deref(), expected, "{bits} bits out of {cluster}");
}

#[test]
fn a_node_keeps_what_it_was_given_until_it_is_gone() {
    let both = [(cidr("10.244.0.0/16"), 24), (cidr("fd00:10:244::/56"), 64)];
    let mut ledger = Ledger::new(both, &[cidr("10.244.0.0/24")]);
    let text = |given: Option<Vec<IpNet>>| given.map(|given| given.iter().map(IpNet::to_string).collect::<Vec<_>>());
    let first = Some(vec!["10.244.1.0/24".to_owned(), "fd00:10:244::/64".to_owned()]);
    assert_eq!(text(ledger.give("a")), first, "the reserved range is nobody's");
    assert_eq!(text(ledger.give("a")), first, "asked again");
    assert_eq!(text(ledger.give("b")), Some(vec!["10.244.2.0/24".to_owned(), "fd00:10:244:1::/64".to_owned()]));
    ledger.note("a", vec![cidr("10.244.1.0/24"), cidr("fd00:10:244::/64")]);
    let four = Usage { cluster: cidr("10.244.0.0/16"), taken: 3, most: 256 };
    assert_eq!(ledger.usage().next(), Some(four), "its echo is not counted twice");
    assert_eq!(ledger.release("a"), 2);
    assert_eq!(ledger.release("a"), 0);
    assert_eq!(text(ledger.give("c")), first);
}

#[test]
fn the_first_free_range_is_given() {
    check("10.244.0.0/16", 24, &[], Some("10.244.0.0/24"));
    check("10.244.0.0/16", 24, &["10.244.0.0/24"], Some("10.244.1.0/24"));
    check("10.244.0.0/16", 24, &["10.244.1.0/24"], Some("10.244.0.0/24"));
    check("10.244.0.0/16", 24, &["10.244.1.0/24", "10.244.0.0/24", "10.244.3.0/24"], Some("10.244.2.0/24"));
}

#[test]
fn ranges_of_other_sizes_and_services_are_left_alone() {
    check("10.244.0.0/16", 24, &["10.244.0.0/22"], Some("10.244.4.0/24"));
    check("10.244.0.0/16", 24, &["10.244.0.128/25"], Some("10.244.1.0/24"));
    check("10.0.0.0/8", 24, &["10.0.0.0/16"], Some("10.1.0.0/24"));
    check("10.244.0.0/16", 24, &["10.243.0.0/16", "fd00::/64"], Some("10.244.0.0/24"));
}

#[test]
fn a_full_cluster_gives_nothing() {
    check("10.244.0.0/24", 24, &["10.244.0.0/24"], None);
    check("10.244.0.0/23", 24, &["10.244.0.0/24", "10.244.1.0/24"], None);
}

#[test]
fn six_works_like_four() {
    check("fd00:10:244::/56", 64, &["fd00:10:244::/64"], Some("fd00:10:244:1::/64"));
}
