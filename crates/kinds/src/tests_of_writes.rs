//! What a write cannot own, kind by kind, since it is put back.

use std::collections::BTreeSet;

use machinery::apply::{Element, Filter, Set};

fn resets(group: &str, kind: &str, has_status: bool, subresource: &str) -> Filter {
    match crate::strategy(group, kind).resets(subresource, has_status) {
        [] => Filter::All,
        paths => Filter::exclude(paths.iter().copied()),
    }
}

/// What a write owns of an object that has something everywhere.
fn owned(filter: &Filter) -> Vec<&'static str> {
    const PATHS: [&str; 9] = [
        "spec.a",
        "status.a",
        "status.conditions",
        "status.certificate",
        "metadata.labels",
        "metadata.annotations",
        "metadata.finalizers",
        "metadata.ownerReferences",
        "metadata.deletionTimestamp",
    ];
    let steps = |path: &str| path.split('.').map(|step| Element::field(step.to_owned())).collect::<Vec<_>>();
    let mut all = Set::default();
    PATHS.iter().for_each(|path| all.insert(&steps(path)));
    let left = filter.apply(all);
    PATHS.into_iter().filter(|path| left.has(&steps(path))).collect()
}

#[test]
fn every_kind_with_a_status_resets_what_upstreams_strategy_resets() {
    let metadata = [
        "metadata.labels",
        "metadata.annotations",
        "metadata.finalizers",
        "metadata.ownerReferences",
        "metadata.deletionTimestamp",
    ];
    let status = ["status.a", "status.conditions", "status.certificate"];
    // The kinds whose status strategy leaves metadata to be written along.
    let along = BTreeSet::from([
        "CronJob",
        "CustomResourceDefinition",
        "DaemonSet",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "ReplicaSet",
        "ReplicationController",
        "ResourceQuota",
        "Service",
        "StatefulSet",
    ]);
    let mut seen = BTreeSet::new();
    for resource in facts::resources().filter(|resource| resource.subresource("status").is_some()) {
        let kind = &*resource.kind;
        seen.insert(kind);
        let through = |subresource| owned(&resets(&resource.group, kind, true, subresource));
        let (main, written) = (through(""), through("status"));
        match kind {
            "CertificateSigningRequest" => {
                assert_eq!(main, metadata);
                assert_eq!(written, [&["status.a", "status.certificate"][..], &metadata].concat());
                assert_eq!(through("approval"), [&["status.a", "status.conditions"][..], &metadata].concat());
                continue;
            }
            "Deployment" => assert_eq!(written, [&status[..], &metadata[1..]].concat()),
            "Pod" => assert_eq!(written, [&status[..], &metadata[..3]].concat()),
            kind if along.contains(kind) => assert_eq!(written, [&status[..], &metadata].concat(), "{kind}"),
            kind => assert_eq!(written, status, "{kind}"),
        }
        assert_eq!(main, [&["spec.a"][..], &metadata].concat(), "{kind}");
    }
    assert!(along.is_subset(&seen), "kinds that are not served: {:?}", along.difference(&seen));
    assert_eq!(owned(&resets("", "Pod", true, "resize")).len(), 9, "nobody asks upstream's strategy");
    assert_eq!(owned(&resets("", "Namespace", true, "finalize")), [&["spec.a"][..], &metadata].concat());
    assert_eq!(owned(&resets("", "ConfigMap", false, "")).len(), 9, "what has no status resets nothing");
}

#[test]
fn most_kinds_judge_finalizers() {
    let lenient = [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "policy",
    ];
    for resource in facts::resources().filter(|resource| crate::place::is_stored(resource)) {
        let storage = crate::place::storage_version(resource);
        let judged = crate::strategy(&storage.group, &storage.kind).judges_finalizers(&resource.group);
        let old_event = resource.group.is_empty() && resource.kind == "Event";
        assert_eq!(judged, !old_event && !lenient.contains(&&*resource.group), "{} {}", resource.group, resource.kind);
    }
}
