//! What wakes a pod that a plugin rejected, and what does not: every plugin against every kind of event.
//!
//! The first table is which events each plugin registers for, the second runs the whole machine: a pod that exactly one plugin
//! rejects, then each event of one catalogue, and whether the pod is still waiting. Both tables are upstream's: its
//! `EventsToRegister` and its queueing hints.

mod cases;
mod events;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use informer::clock::Fake;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, Node, NodeCondition, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeSpec, Pod, Toleration, TopologySelectorTerm,
};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSIDriverSpec, CSINode, CSINodeDriver, CSINodeSpec, CSIStorageCapacity, StorageClass, VolumeAttachment,
    VolumeNodeResources,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::framework::{Action, Resource};
use crate::model::objects::Object;
use crate::testing::{NodeBuilder, PodBuilder, container, node, pod};
use cases::{CASES, Case};
use events::EVENTS;
use world::World;
use world::*;

const ZONE: &str = "topology.kubernetes.io/zone";
const DRIVER: &str = "csi.example.com";

fn scheduler() -> Scheduler {
    let clock = Fake::at(Timestamp::UNIX_EPOCH);
    Scheduler::new(&Configuration::default(), Registry::default(), Vec::new(), clock, 1).unwrap()
}

/// By plugin: kinds and changes. Plugins that are not listed reject no pod, or reject it for good.
const INTERESTS: &[(&str, &str)] = &[
    ("SchedulingGates", "TargetPod:PodGates"),
    ("NodeName", "Node:Add"),
    ("NodeUnschedulable", "Node:Add,NodeTaint TargetPod:PodToleration"),
    ("TaintToleration", "Node:Add,NodeTaint TargetPod:PodToleration"),
    ("NodeAffinity", "Node:Add,NodeLabel"),
    ("NodePorts", "AssignedPod:Delete Node:Add"),
    ("NodeResourcesFit", "AssignedPod:Delete,PodScaleDown Node:Add,NodeAllocatable TargetPod:PodScaleDown"),
    ("VolumeRestrictions", "AssignedPod:Delete Node:Add PersistentVolumeClaim:Add"),
    ("NodeVolumeLimits", "CSINode:Add,Update AssignedPod:Delete PersistentVolumeClaim:Add VolumeAttachment:Delete"),
    (
        "VolumeBinding",
        "storage.k8s.io/StorageClass:Add,Update PersistentVolumeClaim:Add,Update PersistentVolume:Add,Update \
         Node:Add,NodeLabel CSINode:Add,Update CSIDriver:Update CSIStorageCapacity:Add,Update",
    ),
    (
        "VolumeZone",
        "storage.k8s.io/StorageClass:Add Node:Add,NodeLabel PersistentVolumeClaim:Add,Update \
         PersistentVolume:Add,Update",
    ),
    (
        "PodTopologySpread",
        "AssignedPod:Add,PodLabel,Delete TargetPod:PodToleration,PodLabel Node:Add,Delete,NodeLabel,NodeTaint",
    ),
    ("InterPodAffinity", "AssignedPod:Add,PodLabel,Delete TargetPod:PodLabel Node:Add,NodeLabel"),
    ("DefaultPreemption", "AssignedPod:Delete"),
    ("NodeDeclaredFeatures", "Node:Add,NodeDeclaredFeature TargetPod:Update"),
];

#[test]
fn plugins_hear_of_what_upstreams_plugins_hear_of() {
    let resources = [
        Resource::AssignedPod,
        Resource::UnscheduledPod,
        Resource::TargetPod,
        Resource::Node,
        Resource::PersistentVolume,
        Resource::PersistentVolumeClaim,
        Resource::CsiNode,
        Resource::CsiDriver,
        Resource::CsiStorageCapacity,
        Resource::StorageClass,
        Resource::VolumeAttachment,
    ];
    let actions = [
        ("Add", Action::ADD),
        ("Delete", Action::DELETE),
        ("NodeAllocatable", Action::NODE_ALLOCATABLE),
        ("NodeLabel", Action::NODE_LABEL),
        ("NodeTaint", Action::NODE_TAINT),
        ("NodeCondition", Action::NODE_CONDITION),
        ("NodeAnnotation", Action::NODE_ANNOTATION),
        ("NodeDeclaredFeature", Action::NODE_DECLARED_FEATURE),
        ("PodLabel", Action::POD_LABEL),
        ("PodScaleDown", Action::POD_SCALE_DOWN),
        ("PodScaleUp", Action::POD_SCALE_UP),
        ("PodToleration", Action::POD_TOLERATION),
        ("PodGates", Action::POD_GATES_ELIMINATED),
        ("Other", Action::OTHER_UPDATE),
    ];
    let expected: BTreeMap<&str, Vec<(&str, Vec<&str>)>> = INTERESTS
        .iter()
        .map(|(plugin, text)| {
            let kinds = text.split_whitespace().filter_map(|part| part.rsplit_once(':'));
            (*plugin, kinds.map(|(kind, changes)| (kind, changes.split(',').collect())).collect())
        })
        .collect();
    let scheduler = scheduler();
    let mut checked = 0;
    for (_, interests, plugin) in &scheduler.profiles[0].interests {
        for resource in resources {
            for (name, action) in actions {
                let event = ClusterEvent::new(resource, action, None, None);
                let kind = resource.to_string();
                let is_listed = expected.get(plugin.name()).is_some_and(|kinds| {
                    let is_update = !matches!(name, "Add" | "Delete");
                    let is_named =
                        |changes: &[&str]| changes.contains(&name) || (is_update && changes.contains(&"Update"));
                    kinds.iter().any(|(listed, changes)| *listed == kind && is_named(changes))
                });
                let hears = interests.iter().any(|interest| interest.covers(&event));
                assert_eq!(hears, is_listed, "{} and {kind} {name}", plugin.name());
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 20 * resources.len() * actions.len(), "all plugins of the default profile");
}

#[test]
fn a_pod_wakes_when_something_relevant_changes_and_only_then() {
    let mut surprises = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        for name in case.wakes {
            assert!(EVENTS.iter().any(|(known, _)| known == name), "{name:?} is no event");
        }
        for (event, happen) in EVENTS {
            let mut world = World::new(case);
            assert_eq!(world.rejectors(), [case.plugin], "case {number}");
            assert!(world.is_waiting(), "{} has it waiting", case.plugin);
            happen(&mut world);
            let (woke, expected) = (!world.is_waiting(), case.wakes.contains(event));
            if woke != expected {
                surprises.push(format!("{} (case {number}): {event}: woke {woke}, expected {expected}", case.plugin));
            }
        }
    }
    assert!(surprises.is_empty(), "{surprises:#?}");
}
