//! Who rejects the pod, and what wakes it then.

use super::*;

/// A pod that exactly one plugin rejects, and what wakes it.
pub(super) struct Case {
    pub(super) plugin: &'static str,
    pub(super) node: fn(NodeBuilder) -> NodeBuilder,
    pub(super) neighbour: fn(PodBuilder) -> PodBuilder,
    pub(super) own: fn(PodBuilder) -> PodBuilder,
    /// How many volumes a node attaches.
    pub(super) limit: i32,
    /// Where the volume `data` is.
    pub(super) zone: &'static str,
    pub(super) wakes: &'static [&'static str],
}

pub(super) const PLAIN: Case =
    Case { plugin: "", node: |n| n, neighbour: |p| p, own: |p| p, limit: 9, zone: "", wakes: &[] };

pub(super) const CASES: &[Case] = &[
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
