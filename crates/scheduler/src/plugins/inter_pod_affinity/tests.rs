use super::*;
use crate::model::objects::Object;
use crate::plugins::testing::{cluster, filter, passing, scores, with};
use crate::testing::{node, pod, selector};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const HOST: &str = "kubernetes.io/hostname";

fn nodes() -> Vec<Node> {
    vec![
        node("n1").label("zone", "z1").build(),
        node("n2").label("zone", "z1").build(),
        node("n3").label("zone", "z2").build(),
        node("bare").build(),
    ]
}

#[test]
fn company_must_be_in_the_same_domain() {
    let near = |key: &str| pod("p").affinity_to("app", "db", key).build();
    let placed = || [pod("db").label("app", "db").on("n1").build()];
    assert_eq!(passing(InterPodAffinity::default(), cluster(nodes(), placed()), near("zone")), ["n1", "n2"]);
    assert_eq!(passing(InterPodAffinity::default(), cluster(nodes(), placed()), near(HOST)), ["n1"]);
    let why = filter(InterPodAffinity::default(), cluster(nodes(), placed()), near("zone"));
    assert_eq!(why[2], ("n3".into(), AFFINITY_UNMET.into()));
    assert_eq!(why[3], ("bare".into(), AFFINITY_UNMET.into()), "a node without the label is in no domain");
}

#[test]
fn all_terms_must_be_met_by_the_same_pods() {
    let incoming = || pod("p").affinity_to("app", "db", "zone").affinity_to("tier", "gold", "zone").build();
    let apart = [pod("a").label("app", "db").on("n1").build(), pod("b").label("tier", "gold").on("n1").build()];
    assert!(passing(InterPodAffinity::default(), cluster(nodes(), apart), incoming()).is_empty());
    let both = [pod("a").label("app", "db").label("tier", "gold").on("n3").build()];
    assert_eq!(passing(InterPodAffinity::default(), cluster(nodes(), both), incoming()), ["n3"]);
}

#[test]
fn the_first_of_a_group_may_start_anywhere_in_a_domain() {
    let first = pod("p").label("app", "db").affinity_to("app", "db", "zone").build();
    assert_eq!(passing(InterPodAffinity::default(), cluster(nodes(), []), first), ["n1", "n2", "n3"]);
    let lonely = pod("p").affinity_to("app", "db", "zone").build();
    assert!(passing(InterPodAffinity::default(), cluster(nodes(), []), lonely).is_empty());
}

#[test]
fn unwanted_company_excludes_its_domain_in_both_directions() {
    let away = || pod("p").label("app", "web").anti_affinity("app", "web", "zone").build();
    let placed = [pod("web").label("app", "web").on("n1").build()];
    assert_eq!(
        filter(InterPodAffinity::default(), cluster(nodes(), placed), away()),
        [
            ("n1".to_owned(), ANTI_AFFINITY_UNMET.to_owned()),
            ("n2".to_owned(), ANTI_AFFINITY_UNMET.to_owned()),
            ("n3".to_owned(), String::new()),
            ("bare".to_owned(), String::new()),
        ]
    );
    // The placed pod refuses; the incoming one has no wish of its own.
    let refusing = [pod("web").label("app", "web").anti_affinity("app", "web", HOST).on("n1").build()];
    assert_eq!(
        filter(InterPodAffinity::default(), cluster(nodes(), refusing), pod("p").label("app", "web").build())[0],
        ("n1".to_owned(), EXISTING_REFUSE.to_owned())
    );
}

#[test]
fn terms_reach_other_namespaces_by_name_and_by_label() {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some("team".into()),
            labels: selector("kind", "db").match_labels,
            ..Default::default()
        },
        ..Default::default()
    };
    let placed = || [pod("db").namespace("team").label("app", "db").on("n3").build()];
    let world = || with(cluster(nodes(), placed()), [Object::Namespace(Arc::new(namespace.clone()))]);
    let own = pod("p").affinity_to("app", "db", "zone").build();
    assert!(passing(InterPodAffinity::default(), world(), own).is_empty());
    let by_name =
        pod("p").affinity_to("app", "db", "zone").last_affinity(|t| t.namespaces = Some(vec!["team".into()])).build();
    assert_eq!(passing(InterPodAffinity::default(), world(), by_name), ["n3"]);
    let by_label = pod("p")
        .affinity_to("app", "db", "zone")
        .last_affinity(|t| t.namespace_selector = Some(selector("kind", "db")))
        .build();
    assert_eq!(passing(InterPodAffinity::default(), world(), by_label), ["n3"]);
    let any = pod("p")
        .affinity_to("app", "db", "zone")
        .last_affinity(|t| t.namespace_selector = Some(Default::default()))
        .build();
    assert_eq!(passing(InterPodAffinity::default(), world(), any), ["n3"]);
}

#[test]
fn preferences_of_both_sides_add_up() {
    let incoming = pod("p")
        .label("app", "web")
        .prefers_near(10, "app", "db", "zone")
        .prefers_away(5, "app", "noisy", "zone")
        .build();
    let placed = [
        pod("db").label("app", "db").on("n1").build(),
        pod("noisy").label("app", "noisy").on("n3").build(),
        // Wants web pods near: symmetric, weighs 3 for n3's zone.
        pod("fan").prefers_near(3, "app", "web", "zone").on("n3").build(),
    ];
    let result = scores(InterPodAffinity::default(), cluster(nodes(), placed), incoming).unwrap();
    // Raw: z1 10, z2 -5 + 3 = -2, bare 0.
    assert_eq!(result, [("n1".into(), 100), ("n2".into(), 100), ("n3".into(), 0), ("bare".into(), 16)]);
}

#[test]
fn required_affinity_of_placed_pods_draws_their_kind_near() {
    let placed = || [pod("db").affinity_to("app", "web", "zone").on("n3").build()];
    let incoming = || pod("p").label("app", "web").build();
    let result = scores(InterPodAffinity::default(), cluster(nodes(), placed()), incoming()).unwrap();
    assert_eq!(result[2], ("n3".into(), 100));
    let weightless = InterPodAffinity::new(InterPodAffinityArgs { hard_pod_affinity_weight: 0, ..Default::default() });
    assert_eq!(scores(weightless, cluster(nodes(), placed()), incoming()), None);
    let ignoring = InterPodAffinity::new(InterPodAffinityArgs {
        ignore_preferred_terms_of_existing_pods: true,
        ..Default::default()
    });
    assert_eq!(scores(ignoring, cluster(nodes(), placed()), incoming()), None);
}
