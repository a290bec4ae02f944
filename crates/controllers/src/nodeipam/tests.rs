//! Ranges: given in order, never twice, never over others.

use super::plan::Ranges;
use crate::config::Cidr;

fn cidr(text: &str) -> Cidr {
    Cidr::parse(text).expect("a range")
}

#[track_caller]
fn check(cluster: &str, bits: u8, used: &[&str], expected: Option<&str>) {
    let used: Vec<Cidr> = used.iter().map(|text| cidr(text)).collect();
    let free = Ranges::new(cidr(cluster), bits).free(used.iter()).map(|free| free.to_string());
    assert_eq!(free.as_deref(), expected, "{bits} bits out of {cluster}");
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
