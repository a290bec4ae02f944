use super::*;
use crate::model::objects::Object;
use crate::plugins::testing::{cluster, filter, passing, scores, with};
use crate::testing::{node, pod, selector};

const ZONE: &str = "topology.kubernetes.io/zone";

fn zoned(name: &str, zone: &str) -> k8s_openapi::api::core::v1::Node {
    node(name).label(ZONE, zone).build()
}

fn four_nodes() -> Vec<k8s_openapi::api::core::v1::Node> {
    vec![zoned("node-a", "zone1"), zoned("node-b", "zone1"), zoned("node-x", "zone2"), zoned("node-y", "zone2")]
}

fn foo(name: &str, on: &str) -> k8s_openapi::api::core::v1::Pod {
    pod(name).label("foo", "").on(on).build()
}

#[test]
fn a_domain_may_not_get_too_far_ahead() {
    let incoming = || pod("p").label("foo", "").spread(1, ZONE, "DoNotSchedule", "foo", "");
    // zone1 has three, zone2 has one: only zone2 may grow.
    let placed = || vec![foo("a1", "node-a"), foo("a2", "node-a"), foo("b1", "node-b"), foo("x1", "node-x")];
    assert_eq!(
        passing(PodTopologySpread::default(), cluster(four_nodes(), placed()), incoming().build()),
        ["node-x", "node-y"]
    );
    // More skew allowed: all may.
    let lax = incoming().last_spread(|c| c.max_skew = 3).build();
    assert_eq!(passing(PodTopologySpread::default(), cluster(four_nodes(), placed()), lax).len(), 4);
    // Pods of other namespaces and terminating ones do not count.
    let elsewhere = placed().into_iter().map(|mut p| {
        p.metadata.namespace = Some("other".into());
        p
    });
    assert_eq!(passing(PodTopologySpread::default(), cluster(four_nodes(), elsewhere), incoming().build()).len(), 4);
    let leaving = ["a1", "a2", "b1"].map(|n| pod(n).label("foo", "").terminating().on("node-a").build());
    assert_eq!(passing(PodTopologySpread::default(), cluster(four_nodes(), leaving), incoming().build()).len(), 4);
}

#[test]
fn a_pod_that_does_not_match_itself_adds_nothing() {
    let incoming = pod("p").label("bar", "").spread(1, ZONE, "DoNotSchedule", "foo", "").build();
    let placed = vec![foo("a1", "node-a")];
    assert_eq!(passing(PodTopologySpread::default(), cluster(four_nodes(), placed), incoming).len(), 4);
}

#[test]
fn nodes_without_the_label_are_out_of_the_question() {
    let nodes = vec![zoned("node-a", "zone1"), node("bare").build()];
    let incoming = pod("p").label("foo", "").spread(1, ZONE, "DoNotSchedule", "foo", "").build();
    assert_eq!(
        filter(PodTopologySpread::default(), cluster(nodes, []), incoming),
        [("node-a".to_owned(), String::new()), ("bare".to_owned(), LABEL_MISSING.to_owned())]
    );
}

#[test]
fn too_few_domains_count_as_an_empty_one() {
    let incoming = |min| {
        pod("p")
            .label("foo", "")
            .spread(1, ZONE, "DoNotSchedule", "foo", "")
            .last_spread(|c| c.min_domains = Some(min))
            .build()
    };
    let placed = || vec![foo("a1", "node-a"), foo("x1", "node-x")];
    assert_eq!(passing(PodTopologySpread::default(), cluster(four_nodes(), placed()), incoming(2)).len(), 4);
    assert_eq!(passing(PodTopologySpread::default(), cluster(four_nodes(), placed()), incoming(3)).len(), 0);
}

#[test]
fn nodes_that_affinity_excludes_are_not_counted_unless_told_so() {
    // zone2 is empty but unreachable: it must not hold zone1 back.
    let incoming = |policy: &str| {
        pod("p")
            .label("foo", "")
            .node_selector(ZONE, "zone1")
            .spread(1, ZONE, "DoNotSchedule", "foo", "")
            .last_spread(|c| c.node_affinity_policy = Some(policy.into()))
            .build()
    };
    let placed = || vec![foo("a1", "node-a"), foo("b1", "node-b")];
    assert_eq!(
        passing(PodTopologySpread::default(), cluster(four_nodes(), placed()), incoming("Honor")),
        ["node-a", "node-x", "node-b", "node-y"]
    );
    assert_eq!(
        passing(PodTopologySpread::default(), cluster(four_nodes(), placed()), incoming("Ignore")),
        ["node-x", "node-y"]
    );
}

#[test]
fn tainted_nodes_are_counted_unless_told_otherwise() {
    let nodes =
        || vec![zoned("node-a", "zone1"), node("tainted").label(ZONE, "zone2").taint("k", "v", "NoSchedule").build()];
    let incoming = |policy: &str| {
        pod("p")
            .label("foo", "")
            .spread(1, ZONE, "DoNotSchedule", "foo", "")
            .last_spread(|c| c.node_taints_policy = Some(policy.into()))
            .build()
    };
    let placed = || vec![foo("a1", "node-a")];
    assert_eq!(passing(PodTopologySpread::default(), cluster(nodes(), placed()), incoming("Ignore")), ["tainted"]);
    assert_eq!(
        passing(PodTopologySpread::default(), cluster(nodes(), placed()), incoming("Honor")),
        ["node-a", "tainted"]
    );
}

#[test]
fn match_label_keys_narrow_the_selector_to_the_pods_own_revision() {
    let incoming = pod("p")
        .label("foo", "")
        .label("rev", "2")
        .spread(1, ZONE, "DoNotSchedule", "foo", "")
        .last_spread(|c| c.match_label_keys = Some(vec!["rev".into(), "absent".into()]))
        .build();
    let old_revision = ["a1", "a2"].map(|n| pod(n).label("foo", "").label("rev", "1").on("node-a").build());
    assert_eq!(passing(PodTopologySpread::default(), cluster(four_nodes(), old_revision), incoming).len(), 4);
}

#[test]
fn soft_constraints_prefer_the_emptier_domain() {
    let incoming = pod("p").label("foo", "").spread(1, ZONE, "ScheduleAnyway", "foo", "").build();
    let placed = vec![foo("a1", "node-a"), foo("a2", "node-a"), foo("x1", "node-x")];
    let result = scores(PodTopologySpread::default(), cluster(four_nodes(), placed), incoming).unwrap();
    // ln(2 + 2) = 1.386: raw 3 and 1, so 100 * (3 + 1 - s) / 3.
    assert_eq!(result, [("node-a".into(), 33), ("node-x".into(), 100), ("node-b".into(), 33), ("node-y".into(), 100)]);
}

#[test]
fn soft_constraints_by_node_count_the_nodes_own_pods() {
    let incoming = pod("p").label("foo", "").spread(1, HOSTNAME, "ScheduleAnyway", "foo", "").build();
    let placed = vec![foo("a1", "node-a"), foo("a2", "node-a"), foo("b1", "node-b")];
    let result = scores(PodTopologySpread::default(), cluster(four_nodes(), placed), incoming).unwrap();
    let by_name: std::collections::BTreeMap<_, _> = result.into_iter().collect();
    assert!(by_name["node-a"] < by_name["node-b"] && by_name["node-b"] < by_name["node-x"]);
    assert_eq!((by_name["node-x"], by_name["node-y"]), (100, 100));
}

#[test]
fn nodes_without_a_label_score_zero_for_the_pods_own_constraints() {
    let nodes = vec![zoned("node-a", "zone1"), node("bare").build()];
    let incoming = pod("p").label("foo", "").spread(1, ZONE, "ScheduleAnyway", "foo", "").build();
    let result = scores(PodTopologySpread::default(), cluster(nodes, []), incoming).unwrap();
    assert_eq!(result, [("node-a".into(), 100), ("bare".into(), 0)]);
}

#[test]
fn workloads_are_spread_by_default() {
    let service = k8s_openapi::api::core::v1::Service {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            name: Some("s".into()),
            namespace: Some("default".into()),
            ..Default::default()
        },
        spec: Some(k8s_openapi::api::core::v1::ServiceSpec {
            selector: selector("foo", "").match_labels,
            ..Default::default()
        }),
        ..Default::default()
    };
    let placed = || vec![foo("a1", "node-a"), foo("a2", "node-a")];
    let served = with(cluster(four_nodes(), placed()), [Object::Service(Arc::new(service))]);
    let by_name: std::collections::BTreeMap<_, _> =
        scores(PodTopologySpread::default(), served, pod("p").label("foo", "").build()).unwrap().into_iter().collect();
    assert!(by_name["node-a"] < by_name["node-b"] && by_name["node-b"] < by_name["node-x"]);
    // Without a service or controller there is nothing to spread.
    assert_eq!(
        scores(PodTopologySpread::default(), cluster(four_nodes(), placed()), pod("p").label("foo", "").build()),
        None
    );
}
