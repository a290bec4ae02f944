//! What wakes a pod that a plugin rejected, and what does not: every plugin against every kind of event.
//!
//! The first table is which events each plugin registers for, the second runs the whole machine: a pod that exactly one plugin
//! rejects, then each event of one catalogue, and whether the pod is still waiting. Both tables are upstream's: its
//! `EventsToRegister` and its queueing hints.

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

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), uid: Some(format!("uid-{name}")), ..Default::default() }
}

fn annotated(mut meta: ObjectMeta, key: &str) -> ObjectMeta {
    meta.annotations.get_or_insert_default().insert(key.into(), "yes".into());
    meta
}

/// A claim of namespace `default`, bound to the volume of the same name unless it is `unbound`.
fn claim(name: &str) -> PersistentVolumeClaim {
    let metadata = ObjectMeta { namespace: Some("default".into()), ..meta(name) };
    let is_bound = name != "unbound";
    PersistentVolumeClaim {
        metadata: if is_bound { annotated(metadata, "pv.kubernetes.io/bind-completed") } else { metadata },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![if name == "exclusive" { "ReadWriteOncePod" } else { "ReadWriteMany" }.into()]),
            storage_class_name: Some(String::new()),
            volume_name: is_bound.then(|| name.into()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn volume(name: &str, zone: &str) -> PersistentVolume {
    let labels = (!zone.is_empty()).then(|| [(ZONE.to_owned(), zone.to_owned())].into());
    let source = CSIPersistentVolumeSource { driver: DRIVER.into(), volume_handle: name.into(), ..Default::default() };
    PersistentVolume {
        metadata: ObjectMeta { labels, ..meta(name) },
        spec: Some(PersistentVolumeSpec { csi: Some(source), ..Default::default() }),
        ..Default::default()
    }
}

fn csi_node(name: &str, limit: i32) -> CSINode {
    let driver = CSINodeDriver {
        name: DRIVER.into(),
        node_id: name.into(),
        allocatable: Some(VolumeNodeResources { count: Some(limit) }),
        topology_keys: None,
    };
    CSINode { metadata: meta(name), spec: CSINodeSpec { drivers: vec![driver] }, ..Default::default() }
}

fn class(name: &str, mode: &str) -> StorageClass {
    StorageClass {
        metadata: meta(name),
        provisioner: DRIVER.into(),
        volume_binding_mode: Some(mode.into()),
        ..Default::default()
    }
}

fn driver(minds_capacity: bool) -> CSIDriver {
    let spec = CSIDriverSpec { storage_capacity: Some(minds_capacity), ..Default::default() };
    CSIDriver { metadata: meta(DRIVER), spec }
}

fn capacity(amount: &str) -> CSIStorageCapacity {
    CSIStorageCapacity {
        metadata: ObjectMeta { namespace: Some("default".into()), ..meta("capacity") },
        capacity: Some(Quantity(amount.into())),
        storage_class_name: "slow".into(),
        ..Default::default()
    }
}

/// A pod that waits, and what is around it.
struct World {
    scheduler: Scheduler,
    node: Node,
    neighbour: Pod,
    own: Pod,
}

impl World {
    fn new(case: &Case) -> Self {
        let both = |name: &str| (case.node)(node(name).cpu("4").memory("8Gi").label(ZONE, "a")).build();
        let placed = |name: &str, on: &str| (case.neighbour)(pod(name).cpu("1").on(on)).build();
        let mut world = Self {
            scheduler: scheduler(),
            node: both("n"),
            neighbour: placed("neighbour", "n"),
            own: (case.own)(pod("own")).build(),
        };
        for (name, minds) in [("n", case.limit), ("m", case.limit)] {
            world.see(None, Some(Object::CsiNode(Arc::new(csi_node(name, minds)))));
        }
        for name in ["data", "taken", "exclusive"] {
            let zone = if name == "data" { case.zone } else { "" };
            world.see(None, Some(Object::PersistentVolume(Arc::new(volume(name, zone)))));
            world.see(None, Some(Object::PersistentVolumeClaim(Arc::new(claim(name)))));
        }
        world.see(None, Some(Object::PersistentVolumeClaim(Arc::new(claim("unbound")))));
        world.see(None, Some(Object::Node(Arc::new(world.node.clone()))));
        world.see(None, Some(Object::Node(Arc::new(both("m")))));
        world.see(None, Some(seen(world.neighbour.clone())));
        world.see(None, Some(seen(placed("twin", "m"))));
        world.see(None, Some(seen(pod("bystander").on("n").build())));
        world.see(None, Some(seen(world.own.clone())));
        while world.scheduler.schedule_one() {}
        world.scheduler.take_effects();
        world
    }

    fn see(&mut self, old: Option<Object>, new: Option<Object>) {
        self.scheduler.observe(old, new);
    }

    fn add_node(&mut self, builder: NodeBuilder) {
        self.see(None, Some(Object::Node(Arc::new(builder.build()))));
    }

    fn change_node(&mut self, change: impl FnOnce(&mut Node)) {
        let mut new = self.node.clone();
        change(&mut new);
        self.see(Some(Object::Node(Arc::new(self.node.clone()))), Some(Object::Node(Arc::new(new))));
    }

    fn label_node(&mut self, key: &str, value: &str) {
        self.change_node(|n| {
            n.metadata.labels.get_or_insert_default().insert(key.into(), value.into());
        });
    }

    fn change_pod(&mut self, old: Pod, change: impl FnOnce(&mut Pod)) {
        let mut new = old.clone();
        new.metadata.resource_version = Some("2".into());
        change(&mut new);
        self.see(Some(seen(old)), Some(seen(new)));
    }

    fn change_neighbour(&mut self, change: impl FnOnce(&mut Pod)) {
        self.change_pod(self.neighbour.clone(), change);
    }

    fn change_own(&mut self, change: impl FnOnce(&mut Pod)) {
        self.change_pod(self.own.clone(), change);
    }

    /// Who rejected the pod.
    fn rejectors(&self) -> Vec<&'static str> {
        let waiting = self.scheduler.queue.iter().find(|queued| queued.info.name() == "own");
        let rejectors = waiting.map(|queued| queued.rejectors.union(queued.pending)).unwrap_or_default();
        rejectors.iter().map(|id| self.scheduler.plugin_name(id)).collect()
    }

    fn is_waiting(&self) -> bool {
        let pending = self.scheduler.pending();
        pending.unschedulable + pending.gated == 1
    }
}

fn seen(pod: Pod) -> Object {
    Object::Pod(Arc::new(PodInfo::new(Arc::new(pod))))
}

fn request(pod: &mut Pod, cpu: &str) {
    let main = pod.spec.as_mut().and_then(|spec| spec.containers.first_mut());
    if let Some(requests) = main.and_then(|c| c.resources.as_mut()?.requests.as_mut()) {
        requests.insert("cpu".into(), Quantity(cpu.into()));
    }
}

fn relabel(pod: &mut Pod, key: &str, value: Option<&str>) {
    let labels = pod.metadata.labels.get_or_insert_default();
    match value {
        Some(value) => labels.insert(key.into(), value.into()),
        None => labels.remove(key),
    };
}

type Event = (&'static str, fn(&mut World));

/// Everything that can happen.
const EVENTS: &[Event] = &[
    ("a node comes", |w| w.add_node(node("new").cpu("4").memory("8Gi"))),
    ("a useless node comes", |w| {
        let useless = node("new").cpu("1m").without_label("kubernetes.io/hostname").unschedulable();
        w.add_node(useless.taint("other", "", "NoSchedule"));
    }),
    ("a node in another zone comes", |w| w.add_node(node("new").cpu("4").memory("8Gi").label(ZONE, "b"))),
    ("a node with a disk comes", |w| w.add_node(node("new").cpu("4").memory("8Gi").label("disk", "ssd"))),
    ("a node goes", |w| {
        let gone = node("m").label(ZONE, "a").build();
        w.see(Some(Object::Node(Arc::new(gone))), None);
    }),
    ("a node grows", |w| {
        w.change_node(|n| {
            let status = n.status.get_or_insert_default();
            status.allocatable.get_or_insert_default().insert("cpu".into(), Quantity("16".into()));
        });
    }),
    ("a node shrinks", |w| {
        w.change_node(|n| {
            let status = n.status.get_or_insert_default();
            status.allocatable.get_or_insert_default().insert("cpu".into(), Quantity("3".into()));
        });
    }),
    ("a node gets a label", |w| w.label_node("x", "y")),
    ("a node gets a disk", |w| w.label_node("disk", "ssd")),
    ("a node moves to another zone", |w| w.label_node(ZONE, "b")),
    ("a node gets a taint", |w| {
        let tainted = node("x").taint("other", "", "NoSchedule").build().spec.and_then(|s| s.taints);
        w.change_node(|n| {
            n.spec.get_or_insert_default().taints.get_or_insert_default().extend(tainted.unwrap_or_default())
        });
    }),
    ("a node loses its taints", |w| w.change_node(|n| n.spec.get_or_insert_default().taints = None)),
    ("a node is uncordoned", |w| w.change_node(|n| n.spec.get_or_insert_default().unschedulable = None)),
    ("a node's condition changes", |w| {
        w.change_node(|n| {
            let ready = NodeCondition { type_: "Ready".into(), status: "True".into(), ..Default::default() };
            n.status.get_or_insert_default().conditions = Some(vec![ready]);
        });
    }),
    ("a node is annotated", |w| w.change_node(|n| n.metadata = annotated(n.metadata.clone(), "x"))),
    ("a node declares a feature", |w| {
        w.change_node(|n| {
            let declared = vec!["UserNamespacesHostNetworkSupport".to_owned()];
            n.status.get_or_insert_default().declared_features = Some(declared);
        });
    }),
    ("a node says nothing new", |w| w.change_node(|n| n.metadata.resource_version = Some("2".into()))),
    ("a pod comes to a node", |w| w.see(None, Some(seen(pod("x").on("n").build())))),
    ("a pod of the app comes to a node", |w| w.see(None, Some(seen(pod("x").label("app", "db").on("n").build())))),
    ("the neighbour is labelled", |w| w.change_neighbour(|p| relabel(p, "z", Some("1")))),
    ("the neighbour joins the app", |w| w.change_neighbour(|p| relabel(p, "app", Some("db")))),
    ("the neighbour leaves the app", |w| w.change_neighbour(|p| relabel(p, "app", None))),
    ("the neighbour shrinks", |w| w.change_neighbour(|p| request(p, "500m"))),
    ("the neighbour grows", |w| w.change_neighbour(|p| request(p, "2"))),
    ("the neighbour is annotated", |w| w.change_neighbour(|p| p.metadata = annotated(p.metadata.clone(), "x"))),
    ("the neighbour goes", |w| w.see(Some(seen(w.neighbour.clone())), None)),
    ("a bystander goes", |w| w.see(Some(seen(pod("bystander").on("n").build())), None)),
    ("another pod waits", |w| w.see(None, Some(seen(pod("x").build())))),
    ("it is labelled", |w| w.change_own(|p| relabel(p, "z", Some("1")))),
    ("it tolerates everything", |w| {
        w.change_own(|p| {
            let all = Toleration { operator: Some("Exists".into()), ..Default::default() };
            p.spec.get_or_insert_default().tolerations.get_or_insert_default().push(all);
        });
    }),
    ("it shrinks", |w| w.change_own(|p| request(p, "1m"))),
    ("its gates are lifted", |w| w.change_own(|p| p.spec.get_or_insert_default().scheduling_gates = None)),
    ("it is annotated", |w| w.change_own(|p| p.metadata = annotated(p.metadata.clone(), "x"))),
    ("a late class comes", |w| {
        w.see(None, Some(Object::StorageClass(Arc::new(class("late", "WaitForFirstConsumer")))));
    }),
    ("an early class comes", |w| w.see(None, Some(Object::StorageClass(Arc::new(class("early", "Immediate")))))),
    ("a class changes its topologies", |w| {
        let (old, mut new) = (class("slow", "Immediate"), class("slow", "Immediate"));
        new.allowed_topologies = Some(vec![TopologySelectorTerm::default()]);
        w.see(Some(Object::StorageClass(Arc::new(old))), Some(Object::StorageClass(Arc::new(new))));
    }),
    ("a class is annotated", |w| {
        let (old, mut new) = (class("slow", "Immediate"), class("slow", "Immediate"));
        new.metadata = annotated(new.metadata, "x");
        w.see(Some(Object::StorageClass(Arc::new(old))), Some(Object::StorageClass(Arc::new(new))));
    }),
    ("a class goes", |w| w.see(Some(Object::StorageClass(Arc::new(class("slow", "Immediate")))), None)),
    ("its claim comes", |w| {
        for name in ["data", "exclusive", "unbound"] {
            w.see(None, Some(Object::PersistentVolumeClaim(Arc::new(claim(name)))));
        }
    }),
    ("another claim comes", |w| w.see(None, Some(Object::PersistentVolumeClaim(Arc::new(claim("idle")))))),
    ("its claim changes", |w| {
        for name in ["data", "exclusive", "unbound"] {
            let (old, mut new) = (claim(name), claim(name));
            new.metadata = annotated(new.metadata, "x");
            let new = Some(Object::PersistentVolumeClaim(Arc::new(new)));
            w.see(Some(Object::PersistentVolumeClaim(Arc::new(old))), new);
        }
    }),
    ("another claim changes", |w| {
        let (old, mut new) = (claim("taken"), claim("taken"));
        new.metadata = annotated(new.metadata, "x");
        let new = Some(Object::PersistentVolumeClaim(Arc::new(new)));
        w.see(Some(Object::PersistentVolumeClaim(Arc::new(old))), new);
    }),
    ("its claim goes", |w| {
        for name in ["data", "exclusive", "unbound"] {
            w.see(Some(Object::PersistentVolumeClaim(Arc::new(claim(name)))), None);
        }
    }),
    ("a volume comes", |w| w.see(None, Some(Object::PersistentVolume(Arc::new(volume("idle", "")))))),
    ("a volume moves to another zone", |w| {
        let (old, new) = (volume("data", "b"), volume("data", "a"));
        w.see(Some(Object::PersistentVolume(Arc::new(old))), Some(Object::PersistentVolume(Arc::new(new))));
    }),
    ("a volume is annotated", |w| {
        let (old, mut new) = (volume("data", "b"), volume("data", "b"));
        new.metadata = annotated(new.metadata, "x");
        w.see(Some(Object::PersistentVolume(Arc::new(old))), Some(Object::PersistentVolume(Arc::new(new))));
    }),
    ("a volume goes", |w| w.see(Some(Object::PersistentVolume(Arc::new(volume("taken", "")))), None)),
    ("a CSINode comes", |w| w.see(None, Some(Object::CsiNode(Arc::new(csi_node("new", 1)))))),
    ("a CSINode's limit grows", |w| {
        w.see(Some(Object::CsiNode(Arc::new(csi_node("n", 1)))), Some(Object::CsiNode(Arc::new(csi_node("n", 9)))));
    }),
    ("a CSINode's limit shrinks", |w| {
        w.see(Some(Object::CsiNode(Arc::new(csi_node("n", 9)))), Some(Object::CsiNode(Arc::new(csi_node("n", 1)))));
    }),
    ("a CSINode's plugins migrate", |w| {
        let (old, mut new) = (csi_node("n", 1), csi_node("n", 1));
        new.metadata = annotated(new.metadata, "storage.alpha.kubernetes.io/migrated-plugins");
        w.see(Some(Object::CsiNode(Arc::new(old))), Some(Object::CsiNode(Arc::new(new))));
    }),
    ("a CSINode goes", |w| w.see(Some(Object::CsiNode(Arc::new(csi_node("m", 1)))), None)),
    ("a driver comes", |w| w.see(None, Some(Object::CsiDriver(Arc::new(driver(true)))))),
    ("a driver stops minding capacity", |w| {
        w.see(Some(Object::CsiDriver(Arc::new(driver(true)))), Some(Object::CsiDriver(Arc::new(driver(false)))));
    }),
    ("a driver starts minding capacity", |w| {
        w.see(Some(Object::CsiDriver(Arc::new(driver(false)))), Some(Object::CsiDriver(Arc::new(driver(true)))));
    }),
    ("a driver goes", |w| w.see(Some(Object::CsiDriver(Arc::new(driver(true)))), None)),
    ("capacity comes", |w| w.see(None, Some(Object::CsiStorageCapacity(Arc::new(capacity("1Gi")))))),
    ("capacity grows", |w| {
        let (old, new) = (capacity("1Gi"), capacity("2Gi"));
        w.see(Some(Object::CsiStorageCapacity(Arc::new(old))), Some(Object::CsiStorageCapacity(Arc::new(new))));
    }),
    ("capacity shrinks", |w| {
        let (old, new) = (capacity("2Gi"), capacity("1Gi"));
        w.see(Some(Object::CsiStorageCapacity(Arc::new(old))), Some(Object::CsiStorageCapacity(Arc::new(new))));
    }),
    ("capacity goes", |w| w.see(Some(Object::CsiStorageCapacity(Arc::new(capacity("1Gi")))), None)),
    ("an attachment comes", |w| w.see(None, Some(Object::VolumeAttachment(Arc::new(attachment()))))),
    ("an attachment changes", |w| {
        let (old, mut new) = (attachment(), attachment());
        new.metadata = annotated(new.metadata, "x");
        w.see(Some(Object::VolumeAttachment(Arc::new(old))), Some(Object::VolumeAttachment(Arc::new(new))));
    }),
    ("an attachment goes", |w| w.see(Some(Object::VolumeAttachment(Arc::new(attachment()))), None)),
];

fn attachment() -> VolumeAttachment {
    VolumeAttachment { metadata: meta("attachment"), ..Default::default() }
}

/// A pod that exactly one plugin rejects, and what wakes it.
struct Case {
    plugin: &'static str,
    node: fn(NodeBuilder) -> NodeBuilder,
    neighbour: fn(PodBuilder) -> PodBuilder,
    own: fn(PodBuilder) -> PodBuilder,
    /// How many volumes a node attaches.
    limit: i32,
    /// Where the volume `data` is.
    zone: &'static str,
    wakes: &'static [&'static str],
}

const PLAIN: Case = Case { plugin: "", node: |n| n, neighbour: |p| p, own: |p| p, limit: 9, zone: "", wakes: &[] };

const CASES: &[Case] = &[
    Case {
        plugin: "NodeUnschedulable",
        node: |n| n.unschedulable(),
        wakes: &[
            "a node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "a node is uncordoned",
            "it tolerates everything",
        ],
        ..PLAIN
    },
    Case {
        plugin: "TaintToleration",
        node: |n| n.taint("dedicated", "x", "NoSchedule"),
        wakes: &[
            "a node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "a node loses its taints",
            "it tolerates everything",
        ],
        ..PLAIN
    },
    Case {
        plugin: "NodeAffinity",
        own: |p| p.node_selector("disk", "ssd"),
        wakes: &["a node with a disk comes", "a node gets a disk"],
        ..PLAIN
    },
    Case {
        plugin: "NodePorts",
        neighbour: |p| p.with(container("c").host_port("", "TCP", 8080)),
        own: |p| p.with(container("c").host_port("", "TCP", 8080)),
        wakes: &[
            "a node comes",
            "a useless node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "the neighbour goes",
        ],
        ..PLAIN
    },
    Case {
        plugin: "NodeResourcesFit",
        own: |p| p.cpu("4"),
        wakes: &[
            "a node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "a node grows",
            "the neighbour shrinks",
            "the neighbour goes",
            "a bystander goes",
            "it shrinks",
        ],
        ..PLAIN
    },
    Case {
        plugin: "PodTopologySpread",
        neighbour: |p| p.label("app", "db"),
        own: |p| {
            let spread = p.label("app", "db").spread(1, ZONE, "DoNotSchedule", "app", "db");
            spread.last_spread(|constraint| constraint.min_domains = Some(2))
        },
        wakes: &[
            "a node in another zone comes",
            "a node goes",
            "a node moves to another zone",
            "a node gets a taint",
            "a pod of the app comes to a node",
            "the neighbour leaves the app",
            "the neighbour goes",
        ],
        ..PLAIN
    },
    Case {
        plugin: "InterPodAffinity",
        own: |p| p.affinity_to("app", "db", ZONE),
        wakes: &[
            "a node in another zone comes",
            "a node moves to another zone",
            "a pod of the app comes to a node",
            "the neighbour joins the app",
            "it is labelled",
        ],
        ..PLAIN
    },
    Case {
        plugin: "InterPodAffinity",
        neighbour: |p| p.label("app", "db"),
        own: |p| p.anti_affinity("app", "db", ZONE),
        wakes: &[
            "a node comes",
            "a useless node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "a node moves to another zone",
            "the neighbour leaves the app",
            "the neighbour goes",
            "it is labelled",
        ],
        ..PLAIN
    },
    Case {
        plugin: "VolumeRestrictions",
        neighbour: |p| p.claim("exclusive"),
        own: |p| p.claim("exclusive"),
        wakes: &[
            "a node comes",
            "a useless node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "the neighbour goes",
            "its claim comes",
        ],
        ..PLAIN
    },
    Case {
        plugin: "NodeVolumeLimits",
        neighbour: |p| p.claim("taken"),
        own: |p| p.claim("data"),
        limit: 1,
        wakes: &[
            "the neighbour goes",
            "its claim comes",
            "a CSINode comes",
            "a CSINode's limit grows",
            "an attachment goes",
        ],
        ..PLAIN
    },
    Case {
        plugin: "VolumeBinding",
        own: |p| p.claim("unbound"),
        wakes: &[
            "a node comes",
            "a useless node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "a node gets a label",
            "a node gets a disk",
            "a node moves to another zone",
            "a late class comes",
            "an early class comes",
            "a class changes its topologies",
            "its claim comes",
            "its claim changes",
            "a volume comes",
            "a volume moves to another zone",
            "a volume is annotated",
            "a CSINode comes",
            "a CSINode's plugins migrate",
            // Upstream asks only about volumes within the pod; but a claim's provisioning waits for capacity just as well.
            "a driver stops minding capacity",
            "capacity comes",
            "capacity grows",
        ],
        ..PLAIN
    },
    Case {
        plugin: "VolumeZone",
        own: |p| p.claim("data"),
        zone: "b",
        wakes: &[
            "a node comes",
            "a useless node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "a node gets a label",
            "a node gets a disk",
            "a node moves to another zone",
            "a late class comes",
            "its claim comes",
            "its claim changes",
            "a volume comes",
            "a volume moves to another zone",
        ],
        ..PLAIN
    },
    Case { plugin: "SchedulingGates", own: |p| p.gate("x"), wakes: &["its gates are lifted"], ..PLAIN },
    Case {
        plugin: "NodeDeclaredFeatures",
        own: |p| p.isolated_on_host_network(),
        wakes: &[
            "a node comes",
            "a useless node comes",
            "a node in another zone comes",
            "a node with a disk comes",
            "a node declares a feature",
        ],
        ..PLAIN
    },
];

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
