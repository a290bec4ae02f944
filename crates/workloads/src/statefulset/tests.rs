//! One thing at a time, in order.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::claims::{self, claim_owners, goes_with_earlier_pod, has_other_controller};
use super::identity::parent_and_ordinal;
use super::plan::{Claims, Observed, Step, Templates, plan};
use crate::common::meta::{MetaExt, controller_reference};
use crate::testing::{at, pod};

fn set(replicas: i32, policy: &str, partition: i32) -> StatefulSet {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "ns", "uid": "db"},
        "spec": {"replicas": replicas, "podManagementPolicy": policy, "serviceName": "db", "selector": {}, "template": {"spec": {"containers": []}},
                 "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}},
                 "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]},
    }))
    .expect("a set")
}

fn templates(set: &StatefulSet, current: &str, update: &str) -> Templates {
    let revision = |name: &str| {
        let mut revision = ControllerRevision::default();
        revision.metadata.name = Some(name.to_owned());
        revision
    };
    Templates::new(set, &revision(current), &revision(update))
}

fn member(number: i32, revision: &str) -> crate::testing::PodBuilder {
    let name = format!("db-{number}");
    let volumes = claims::volumes_of(&set(1, "OrderedReady", 0), &name);
    pod(&name)
        .on("n")
        .label("controller-revision-hash", revision)
        .label("statefulset.kubernetes.io/pod-name", &name)
        .label("apps.kubernetes.io/pod-index", &number.to_string())
        .with(|pod| pod.spec.get_or_insert_default().volumes = Some(volumes))
}

#[track_caller]
fn check(set: &StatefulSet, update: &str, pods: &[Arc<Pod>], expected: &[&str]) {
    let claims = claims_of(set, pods);
    check_with(set, update, pods, &claims, expected);
}

/// The claims of these pods, owned as they should be.
fn claims_of(set: &StatefulSet, pods: &[Arc<Pod>]) -> Claims {
    let claims = pods.iter().flat_map(|pod| {
        let mut claims = claims::claims(set, pod.metadata.name());
        for claim in &mut claims {
            claim.metadata.owner_references = claim_owners(set, pod, claim).or(claim.metadata.owner_references.take());
        }
        claims
    });
    claims.map(|claim| (claim.metadata.name.clone().unwrap_or_default(), Arc::new(claim))).collect()
}

fn turn(set: &StatefulSet, pods: &[Arc<Pod>], claims: &Claims, update: &str) -> Vec<Step> {
    let observed = Observed {
        templates: Some(templates(set, "r1", update)),
        set: Arc::new(set.clone()),
        pods: pods.to_vec(),
        claims: claims.clone(),
        revisions: Vec::new(),
    };
    plan(&observed, at(100)).phases.concat()
}

#[track_caller]
fn check_with(set: &StatefulSet, update: &str, pods: &[Arc<Pod>], claims: &Claims, expected: &[&str]) {
    let steps = turn(set, pods, claims, update);
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    let steps: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::Create(number) => format!("create {number}"),
            Step::Delete(pod) => format!("delete {}", name(pod)),
            Step::Repair(pod) => format!("repair {}", name(pod)),
            Step::CreateClaims(pod) => format!("create claims {}", name(pod)),
            Step::OwnClaims(pod) => format!("own claims {}", name(pod)),
        })
        .collect();
    assert_eq!(steps, expected);
}

#[test]
fn an_ordered_set_waits_for_each_pod() {
    let ordered = set(3, "OrderedReady", 0);
    check(&ordered, "r1", &[], &["create 0"]);
    check(&ordered, "r1", &[member(0, "r1").build()], &[]);
    check(&ordered, "r1", &[member(0, "r1").ready().build()], &["create 1"]);
    check(&ordered, "r1", &[member(0, "r1").phase("Failed").build()], &["delete db-0"]);
    check(&ordered, "r1", &[member(0, "r1").ready().deleting().build()], &[]);
    check(&set(3, "Parallel", 0), "r1", &[], &["create 0", "create 1", "create 2"]);
}

#[test]
fn scaling_down_takes_the_highest_first() {
    let ready = |number| member(number, "r1").ready().build();
    check(&set(1, "OrderedReady", 0), "r1", &[ready(0), ready(1), ready(2)], &["delete db-2"]);
    check(&set(1, "OrderedReady", 0), "r1", &[ready(0), ready(1), member(2, "r1").ready().deleting().build()], &[]);
    check(&set(1, "Parallel", 0), "r1", &[ready(0), ready(1), ready(2)], &["delete db-2", "delete db-1"]);
}

#[test]
fn ordinals_end_with_their_type() {
    let mut last = set(2, "Parallel", i32::MAX);
    last.spec.ordinals.get_or_insert_default().start = Some(i32::MAX - 1);
    check(&last, "r1", &[], &["create 2147483646"]);
    check(&last, "r1", &[member(0, "r1").build()], &["create 2147483646", "delete db-0"]);
    let created = member(i32::MAX - 1, "r1").ready().build();
    check(&last, "r1", &[member(0, "r1").build(), created], &["delete db-0"]);
}

#[test]
fn updates_go_from_the_end_to_the_partition() {
    let ready = |number, revision| member(number, revision).ready().build();
    check(&set(3, "OrderedReady", 0), "r2", &[ready(0, "r1"), ready(1, "r1"), ready(2, "r1")], &["delete db-2"]);
    check(&set(3, "OrderedReady", 0), "r2", &[ready(0, "r1"), ready(1, "r1"), ready(2, "r2")], &["delete db-1"]);
    check(&set(3, "OrderedReady", 2), "r2", &[ready(0, "r1"), ready(1, "r1"), ready(2, "r2")], &[]);
    check(&set(3, "OrderedReady", 0), "r2", &[ready(0, "r1"), ready(1, "r1"), member(2, "r2").build()], &[]);
}

#[test]
fn new_pods_are_old_only_below_the_partition() {
    let revision = |set: &StatefulSet, number| {
        let labels = templates(set, "r1", "r2").pod(set, number).metadata.labels.unwrap_or_default();
        labels["controller-revision-hash"].clone()
    };
    let mut updating = set(3, "Parallel", 0);
    updating.status.get_or_insert_default().current_replicas = Some(3);
    assert_eq!(revision(&updating, 0), "r2", "an old one would be replaced at once, again and again");
    let partitioned = set(3, "Parallel", 2);
    assert_eq!((revision(&partitioned, 1), revision(&partitioned, 2)), ("r1".to_owned(), "r2".to_owned()));
    updating.spec.update_strategy.get_or_insert_default().rolling_update = None;
    assert_eq!(revision(&updating, 2), "r1");
}

#[test]
fn identities_are_repaired() {
    check(
        &set(1, "OrderedReady", 0),
        "r1",
        &[pod("db-0").on("n").ready().label("controller-revision-hash", "r1").build()],
        &["repair db-0"],
    );
    for (name, expected) in
        [("db-0", Some(("db", 0))), ("a-b-12", Some(("a-b", 12))), ("db-01", None), ("db", None), ("db-x", None)]
    {
        assert_eq!(parent_and_ordinal(name), expected, "{name}");
    }
}

fn retaining(replicas: i32, policy: &str, when_deleted: &str, when_scaled: &str) -> StatefulSet {
    let mut set = set(replicas, policy, 0);
    let retention = set.spec.persistent_volume_claim_retention_policy.get_or_insert_default();
    retention.when_deleted = Some(when_deleted.to_owned());
    retention.when_scaled = Some(when_scaled.to_owned());
    set
}

#[test]
fn claims_of_every_replica_get_their_owner() {
    let deleting = retaining(2, "OrderedReady", "Delete", "Retain");
    let pods = [member(0, "r1").ready().build(), member(1, "r1").ready().build()];
    check(&deleting, "r1", &pods, &[]);
    // The policy came later, or somebody took the owner away.
    let unowned = claims_of(&set(2, "OrderedReady", 0), &pods);
    check_with(&deleting, "r1", &pods, &unowned, &["own claims db-0", "own claims db-1"]);
    // And away with it when the policy says so.
    let owned = claims_of(&deleting, &pods);
    check_with(&set(2, "OrderedReady", 0), "r1", &pods, &owned, &["own claims db-0", "own claims db-1"]);
    let parallel = retaining(1, "Parallel", "Delete", "Delete");
    let expected = ["own claims db-0", "own claims db-1", "delete db-1"];
    check_with(&parallel, "r1", &pods, &unowned, &expected);
}

#[test]
fn the_retention_policy_says_who_owns_a_claim() {
    let (kept, condemned) = (member(0, "r1").build(), member(1, "r1").build());
    for (when_deleted, when_scaled, of_kept, of_condemned) in [
        ("Retain", "Retain", None, None),
        ("Delete", "Retain", Some("StatefulSet"), Some("StatefulSet")),
        ("Retain", "Delete", None, Some("Pod")),
        ("Delete", "Delete", Some("StatefulSet"), Some("Pod")),
    ] {
        let set = retaining(1, "Parallel", when_deleted, when_scaled);
        for (pod, expected) in [(&kept, of_kept), (&condemned, of_condemned)] {
            let mut claim = claims::claims(&set, pod.metadata.name()).remove(0);
            if let Some(owners) = claim_owners(&set, pod, &claim) {
                claim.metadata.owner_references = Some(owners);
            }
            let owners = claim.metadata.owner_references.clone().unwrap_or_default();
            let kinds: Vec<&str> = owners.iter().map(|owner| owner.kind.as_str()).collect();
            let name = pod.metadata.name();
            assert_eq!(kinds, expected.into_iter().collect::<Vec<_>>(), "{when_deleted} {when_scaled} {name}");
            assert!(owners.iter().all(|owner| owner.controller == Some(true)), "{name}");
            assert_eq!(claim_owners(&set, pod, &claim), None, "once is enough");
        }
    }
}

#[test]
fn claims_of_others_are_left_alone() {
    let set = retaining(1, "Parallel", "Delete", "Delete");
    let own = member(0, "r1").build();
    let owned_by = |owners: Vec<_>| {
        let mut claim = claims::claims(&set, "db-0").remove(0);
        claim.metadata.owner_references = Some(owners);
        claim
    };
    let mut earlier = set.clone();
    earlier.metadata.uid = Some("another".to_owned());
    assert_eq!(claim_owners(&set, &own, &owned_by(vec![controller_reference(&earlier)])), None, "an earlier set's");
    let other = controller_reference(&*member(7, "r1").build());
    let foreign = owned_by(vec![other.clone()]);
    assert!(has_other_controller(&set, &own, &foreign));
    assert_eq!(claim_owners(&set, &own, &foreign), None);
    // Two cannot control it: ours is the one that goes.
    let both = owned_by(vec![other.clone(), controller_reference(&set)]);
    assert_eq!(claim_owners(&set, &own, &both), Some(vec![other]));
}

#[test]
fn a_pod_waits_until_the_claim_of_the_one_before_it_is_gone() {
    let set = retaining(2, "Parallel", "Retain", "Delete");
    let earlier = member(0, "r1").build();
    let mut claim = claims::claims(&set, "db-0").remove(0);
    claim.metadata.owner_references = Some(vec![controller_reference(&*earlier)]);
    assert!(goes_with_earlier_pod(&set, "db-0", &claim));
    let claims: Claims = [(claim.metadata.name().to_owned(), Arc::new(claim))].into();
    check_with(&set, "r1", &[], &claims, &["create 1"]);
    check_with(&retaining(2, "Parallel", "Retain", "Retain"), "r1", &[], &claims, &["create 0", "create 1"]);
}

#[test]
fn a_pending_pod_gets_the_claims_that_are_missing() {
    let pending = [member(0, "r1").build()];
    check_with(&set(1, "OrderedReady", 0), "r1", &pending, &Claims::new(), &["create claims db-0"]);
    check(&set(1, "OrderedReady", 0), "r1", &pending, &[]);
}

#[test]
fn a_set_finds_its_claims_and_never_plans_more_than_it_can_hold() {
    let huge = set(i32::MAX, "Parallel", 0);
    assert_eq!(turn(&huge, &[], &Claims::new(), "r1").len(), 500);
    for (name, expected) in [
        ("data-db-0", true),
        ("data-db-17", true),
        ("data-db-x", false),
        ("data-db", false),
        ("other-db-0", false),
        ("data-other-db-0", false),
    ] {
        assert_eq!(claims::may_be_of(&huge, name), expected, "{name}");
    }
}

#[test]
fn a_parallel_set_creates_deletes_and_updates_in_one_turn() {
    let ready = |number, revision| member(number, revision).ready().build();
    let pods = [ready(0, "r1"), ready(2, "r1"), ready(5, "r1")];
    check(&set(3, "Parallel", 0), "r2", &pods, &["create 1", "delete db-5"]);
    let mut roomy = set(3, "Parallel", 0);
    let rolling = roomy.spec.update_strategy.get_or_insert_default().rolling_update.get_or_insert_default();
    rolling.max_unavailable = Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(2));
    check(&roomy, "r2", &pods, &["create 1", "delete db-5", "delete db-2"]);
}
