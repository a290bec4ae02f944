//! Tables for the plugins that look at one node at a time: what passes, with which reason, how it scores, and what wakes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, CSIPersistentVolumeSource, GCEPersistentDiskVolumeSource, Node, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, Pod, Volume,
};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSIDriverSpec, CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::balanced_allocation::BalancedAllocation;
use super::image_locality::ImageLocality;
use super::node_affinity::NodeAffinity;
use super::node_declared_features::NodeDeclaredFeatures;
use super::node_name::NodeName;
use super::node_ports::NodePorts;
use super::node_resources_fit::NodeResourcesFit;
use super::node_unschedulable::NodeUnschedulable;
use super::node_volume_limits::NodeVolumeLimits;
use super::resource_score::{ResourceScorer, ScoredResource, Strategy, default_resources};
use super::taint_toleration::TaintToleration;
use super::testing::{cluster, filter, scores, with};
use super::volume_restrictions::VolumeRestrictions;
use super::volume_zone::VolumeZone;
use crate::framework::{Action, ClusterEvent, Hint, Plugin, Resource};
use crate::model::cluster::Cluster;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use crate::testing::{PodBuilder, container, node, pod};

/// What one plugin says of one node.
fn verdict(plugin: impl Plugin, node: Node, placed: Vec<Pod>, pod: PodBuilder) -> String {
    filter(plugin, cluster([node], placed), pod.build()).remove(0).1
}

fn score_values(plugin: impl Plugin, cluster: Cluster, pod: PodBuilder) -> Option<Vec<i64>> {
    scores(plugin, cluster, pod.build()).map(|scores| scores.into_iter().map(|(_, score)| score).collect())
}

#[test]
fn node_name() {
    const NO: &str = "node(s) didn't match the requested node name";
    for (named, expected) in [("n", ""), ("other", NO)] {
        assert_eq!(verdict(NodeName, node("n").build(), vec![], pod("p").on(named)), expected, "{named}");
    }
    assert_eq!(verdict(NodeName, node("n").build(), vec![], pod("p")), "");
}

#[test]
fn node_unschedulable() {
    let plugin = NodeUnschedulable::default;
    assert_eq!(verdict(plugin(), node("n").build(), vec![], pod("p")), "");
    assert_eq!(verdict(plugin(), node("n").unschedulable().build(), vec![], pod("p")), "node(s) were unschedulable");
    let tolerant = pod("p").tolerates("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule");
    assert_eq!(verdict(plugin(), node("n").unschedulable().build(), vec![], tolerant), "");
}

#[test]
fn taints_keep_off_and_discourage() {
    const NO: &str = "node(s) had untolerated taint(s)";
    let tainted = |effect: &str| node("n").taint("dedicated", "x", effect).build();
    for (effect, expected) in [("NoSchedule", NO), ("NoExecute", NO), ("PreferNoSchedule", "")] {
        assert_eq!(verdict(TaintToleration, tainted(effect), vec![], pod("p")), expected, "{effect}");
        let tolerant = pod("p").tolerates("dedicated", "Equal", "x", effect);
        assert_eq!(verdict(TaintToleration, tainted(effect), vec![], tolerant), "", "{effect} tolerated");
    }
    let world = || {
        let two = node("two").taint("a", "", "PreferNoSchedule").taint("b", "", "PreferNoSchedule").build();
        cluster([node("none").build(), node("one").taint("a", "", "PreferNoSchedule").build(), two], [])
    };
    assert_eq!(score_values(TaintToleration, world(), pod("p")), Some(vec![100, 50, 0]));
    let tolerant = pod("p").tolerates("a", "Exists", "", "PreferNoSchedule");
    assert_eq!(score_values(TaintToleration, world(), tolerant), Some(vec![100, 100, 0]));
}

#[test]
fn node_affinity_of_pods_and_profiles() {
    const NO: &str = "node(s) didn't match Pod's node affinity/selector";
    let labelled = || node("n").label("gpu", "a100").label("cores", "8").build();
    for (pod, expected) in [
        (pod("p"), ""),
        (pod("p").node_selector("gpu", "a100"), ""),
        (pod("p").node_selector("gpu", "h100"), NO),
        (pod("p").node_affinity("gpu", "In", &["h100", "a100"]), ""),
        (pod("p").node_affinity("gpu", "NotIn", &["a100"]), NO),
        (pod("p").node_affinity("gpu", "DoesNotExist", &[]), NO),
        (pod("p").node_affinity("cores", "Gt", &["4"]), ""),
        // Terms are alternatives; the node selector comes on top.
        (pod("p").node_affinity("gpu", "In", &["x"]).node_affinity("cores", "In", &["8"]), ""),
        (pod("p").node_affinity("gpu", "In", &["a100"]).node_selector("cores", "4"), NO),
        (pod("p").node_field("In", &["n"]), ""),
        (pod("p").node_field("In", &["other"]), NO),
    ] {
        assert_eq!(verdict(NodeAffinity::default(), labelled(), vec![], pod.clone()), expected, "{pod:?}");
    }
    let added = pod("x").node_affinity("gpu", "In", &["h100"]).build();
    let added = added.spec.and_then(|s| s.affinity).and_then(|a| a.node_affinity);
    let enforced = NodeAffinity::new(added.as_ref());
    assert_eq!(
        verdict(enforced, labelled(), vec![], pod("p")),
        "node(s) didn't match scheduler-enforced node affinity"
    );

    let world =
        || cluster([node("a").label("x", "1").build(), node("b").label("x", "2").build(), node("c").build()], []);
    let pod = pod("p").prefers_node(4, "x", "In", &["1"]).prefers_node(1, "x", "Exists", &[]);
    assert_eq!(score_values(NodeAffinity::default(), world(), pod), Some(vec![100, 20, 0]));
    assert_eq!(score_values(NodeAffinity::default(), world(), crate::testing::pod("p")), None);
}

#[test]
fn host_ports_are_taken_once() {
    const NO: &str = "node(s) didn't have free ports for the requested pod ports";
    let with_port =
        |name: &str, ip: &str, protocol: &str, port| pod(name).with(container("c").host_port(ip, protocol, port));
    for ((ip, protocol, port), (other_ip, other_protocol, other_port), expected) in [
        (("127.0.0.1", "UDP", 8080), ("127.0.0.1", "UDP", 9090), ""),
        (("127.0.0.1", "UDP", 8080), ("127.0.0.1", "UDP", 8080), NO),
        (("127.0.0.1", "TCP", 8080), ("127.0.0.1", "UDP", 8080), ""),
        (("127.0.0.1", "TCP", 8080), ("127.0.0.2", "TCP", 8080), ""),
        (("127.0.0.1", "TCP", 8001), ("0.0.0.0", "TCP", 8001), NO),
        (("0.0.0.0", "TCP", 8001), ("127.0.0.1", "TCP", 8001), NO),
        (("", "", 80), ("10.0.10.10", "TCP", 80), NO),
    ] {
        let placed = with_port("placed", other_ip, other_protocol, other_port).on("n").build();
        let incoming = with_port("p", ip, protocol, port);
        let about = format!("{ip} {protocol} {port}");
        assert_eq!(verdict(NodePorts, node("n").build(), vec![placed], incoming), expected, "{about}");
    }
}

#[test]
fn resources_must_fit() {
    let world = || {
        node("n")
            .cpu("10")
            .memory("20")
            .allocatable("example.com/gpu", "2")
            .allocatable("ephemeral-storage", "5")
            .pods(2)
    };
    let placed =
        |cpu: &str, memory: &str| vec![pod("placed").with(container("c").cpu(cpu).memory(memory)).on("n").build()];
    let wants = |cpu: &str, memory: &str| pod("p").with(container("c").cpu(cpu).memory(memory));
    let none = || placed("0", "0");
    for (about, placed, pod, expected) in [
        ("nothing requested", placed("10", "20"), pod("p"), ""),
        ("too much of both", placed("10", "20"), wants("1", "1"), "Insufficient cpu, Insufficient memory"),
        ("equal edge", placed("5", "19"), wants("5", "1"), ""),
        ("one resource fits", placed("5", "19"), wants("5", "2"), "Insufficient memory"),
        (
            "extended",
            none(),
            pod("p").with(container("c").request("example.com/gpu", "3")),
            "Insufficient example.com/gpu",
        ),
        (
            "unknown extended",
            none(),
            pod("p").with(container("c").request("example.com/fpga", "1")),
            "Insufficient example.com/fpga",
        ),
        ("unknown extended, zero", none(), pod("p").with(container("c").request("example.com/fpga", "0")), ""),
        (
            "storage",
            none(),
            pod("p").with(container("c").request("ephemeral-storage", "6")),
            "Insufficient ephemeral-storage",
        ),
        ("init container", none(), pod("p").cpu("1").with_init(container("i").cpu("11")), "Insufficient cpu"),
        ("overhead", placed("5", "0"), wants("5", "1").overhead("cpu", "1m"), "Insufficient cpu"),
    ] {
        assert_eq!(verdict(NodeResourcesFit::default(), world().build(), placed, pod), expected, "{about}");
    }
    let crowded = vec![pod("a").on("n").build(), pod("b").on("n").build()];
    assert_eq!(verdict(NodeResourcesFit::default(), world().build(), crowded, pod("p")), "Too many pods");
    let ignoring =
        NodeResourcesFit::new(vec!["example.com/fpga".into()], vec!["other.io".into()], ResourceScorer::default());
    let odd = pod("p").with(container("c").request("example.com/fpga", "1").request("other.io/x", "9"));
    assert_eq!(verdict(ignoring, world().build(), none(), odd), "");
}

#[test]
fn fit_scores_follow_the_strategy() {
    let world = || {
        let placed = pod("placed").with(container("c").cpu("3").memory("5000")).on("a").build();
        cluster([node("a").cpu("10").memory("10000").build(), node("b").cpu("6").memory("10000").build()], [placed])
    };
    let incoming = || pod("p").with(container("c").cpu("3").memory("5000"));
    let with = |strategy| NodeResourcesFit::new(vec![], vec![], ResourceScorer::new(strategy, default_resources()));
    // a: cpu (10-6)/10 = 40, memory 0; b: cpu (6-3)/6 = 50, memory 50.
    assert_eq!(score_values(with(Strategy::Least), world(), incoming()), Some(vec![20, 50]));
    assert_eq!(score_values(with(Strategy::Most), world(), incoming()), Some(vec![80, 50]));
    let shape = vec![(0, 100), (100, 0)];
    assert_eq!(score_values(with(Strategy::Ratio(shape)), world(), incoming()), Some(vec![40, 50]));
    let cpu_only = vec![ScoredResource { name: "cpu".into(), weight: 3 }];
    let weighted = NodeResourcesFit::new(vec![], vec![], ResourceScorer::new(Strategy::Least, cpu_only));
    assert_eq!(score_values(weighted, world(), incoming()), Some(vec![40, 50]));
}

#[test]
fn balance_prefers_nodes_that_the_pod_makes_even() {
    let world = || {
        let lopsided = pod("placed").with(container("c").cpu("5")).on("lopsided").build();
        cluster(
            [node("lopsided").cpu("10").memory("10000").build(), node("even").cpu("10").memory("10000").build()],
            [lopsided],
        )
    };
    // The pod needs memory only: it evens out the one node and unbalances the other.
    let incoming = pod("p").with(container("c").memory("5000"));
    // lopsided: 75 without, 100 with -> 50 + (50 + 25) / 2; even: 100 without, 75 with -> 50 + (50 - 25) / 2.
    assert_eq!(score_values(BalancedAllocation::default(), world(), incoming), Some(vec![87, 62]));
    assert_eq!(score_values(BalancedAllocation::default(), world(), pod("p")), None, "nothing to balance");
}

#[test]
fn images_attract_by_size_and_spread() {
    const MIB: i64 = 1024 * 1024;
    let world = || {
        let holds = |name: &str, size| node(name).image("gcr.io/large:latest", size).build();
        cluster([holds("a", 250 * MIB), node("b").image("gcr.io/small:v1", 10 * MIB).build()], [])
    };
    // 250 MiB on one of two nodes counts 125 MiB: 100 * (125 - 23) / (1000 - 23).
    let untagged = pod("p").with(container("c").image("gcr.io/large"));
    assert_eq!(score_values(ImageLocality, world(), untagged), Some(vec![10, 0]));
    assert_eq!(
        score_values(ImageLocality, world(), pod("p").with(container("c").image("gcr.io/small:v1"))),
        Some(vec![0, 0])
    );
    assert_eq!(score_values(ImageLocality, world(), pod("p").with(container("c").image("gcr.io/none"))), None);
}

fn claim(name: &str, volume: &str, mode: &str) -> Object {
    Object::PersistentVolumeClaim(Arc::new(PersistentVolumeClaim {
        metadata: ObjectMeta { name: Some(name.into()), namespace: Some("default".into()), ..Default::default() },
        spec: Some(PersistentVolumeClaimSpec {
            volume_name: Some(volume.into()),
            access_modes: Some(vec![mode.into()]),
            ..Default::default()
        }),
        ..Default::default()
    }))
}

fn volume(name: &str, zone: &str) -> Object {
    let labels = (!zone.is_empty()).then(|| [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())].into());
    let source = CSIPersistentVolumeSource {
        driver: "csi.example.com".into(),
        volume_handle: name.into(),
        ..Default::default()
    };
    Object::PersistentVolume(Arc::new(PersistentVolume {
        metadata: ObjectMeta { name: Some(name.into()), labels, ..Default::default() },
        spec: Some(PersistentVolumeSpec { csi: Some(source), ..Default::default() }),
        ..Default::default()
    }))
}

#[test]
fn volumes_of_a_zone_are_used_there() {
    const NO: &str = "node(s) had no available volume zone";
    let in_zone = |zone: &str| node("n").label("topology.kubernetes.io/zone", zone).build();
    let check = |node: Node, zone: &str| {
        let objects = [claim("c", "v", "ReadWriteOnce"), volume("v", zone)];
        filter(VolumeZone, with(cluster([node], []), objects), pod("p").claim("c").build()).remove(0).1
    };
    assert_eq!(check(in_zone("a"), "a"), "");
    assert_eq!(check(in_zone("a"), "b"), NO);
    assert_eq!(check(in_zone("a"), "b__a"), "");
    assert_eq!(check(in_zone("a"), ""), "");
    assert_eq!(check(node("n").build(), "a"), "", "a node without zone labels");
    let missing = filter(VolumeZone, cluster([in_zone("a")], []), pod("p").claim("c").build()).remove(0).1;
    assert_eq!(missing, "persistentvolumeclaim \"c\" not found");
}

#[test]
fn disks_and_exclusive_claims_are_used_by_one_pod() {
    let disk = |read_only| Volume {
        name: "d".into(),
        gce_persistent_disk: Some(GCEPersistentDiskVolumeSource {
            pd_name: "disk".into(),
            read_only: Some(read_only),
            ..Default::default()
        }),
        ..Default::default()
    };
    let block = || Volume {
        name: "b".into(),
        aws_elastic_block_store: Some(AWSElasticBlockStoreVolumeSource {
            volume_id: "vol".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    const NO: &str = "node(s) had no available disk";
    for (held, wanted, expected) in [
        (disk(false), disk(false), NO),
        (disk(true), disk(true), ""),
        (block(), block(), NO),
        (disk(false), block(), ""),
    ] {
        let placed = pod("placed").volume(held.clone()).on("n").build();
        assert_eq!(
            verdict(VolumeRestrictions, node("n").build(), vec![placed], pod("p").volume(wanted)),
            expected,
            "{held:?}"
        );
    }
    let check = |mode: &str| {
        let placed = pod("placed").claim("c").on("elsewhere").build();
        let world = with(cluster([node("n").build()], [placed]), [claim("c", "v", mode)]);
        filter(VolumeRestrictions, world, pod("p").claim("c").build()).remove(0).1
    };
    assert_eq!(check("ReadWriteOnce"), "");
    assert_eq!(
        check("ReadWriteOncePod"),
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    );
}

#[test]
fn drivers_attach_only_so_many_volumes() {
    let limit = |count| {
        let allocatable = Some(VolumeNodeResources { count });
        let driver =
            CSINodeDriver { name: "csi.example.com".into(), node_id: "n".into(), allocatable, topology_keys: None };
        Object::CsiNode(Arc::new(CSINode {
            metadata: ObjectMeta { name: Some("n".into()), ..Default::default() },
            spec: CSINodeSpec { drivers: vec![driver] },
            ..Default::default()
        }))
    };
    let check = |count, incoming: PodBuilder| {
        let objects =
            ["a", "b"].map(|n| claim(n, n, "ReadWriteOnce")).into_iter().chain(["a", "b"].map(|n| volume(n, "")));
        let world = with(
            cluster([node("n").build()], [pod("placed").claim("a").on("n").build()]),
            objects.chain([limit(count)]),
        );
        filter(NodeVolumeLimits, world, incoming.build()).remove(0).1
    };
    assert_eq!(check(Some(2), pod("p").claim("b")), "");
    assert_eq!(check(Some(1), pod("p").claim("b")), "node(s) exceed max volume count");
    assert_eq!(check(Some(1), pod("p").claim("a")), "", "a volume that is attached already counts once");
    assert_eq!(check(None, pod("p").claim("b")), "", "no limit");
}

#[test]
fn a_driver_may_insist_on_being_installed() {
    let driver = |insists| {
        Object::CsiDriver(Arc::new(CSIDriver {
            metadata: ObjectMeta { name: Some("csi.example.com".into()), ..Default::default() },
            spec: CSIDriverSpec { prevent_pod_scheduling_if_missing: Some(insists), ..Default::default() },
        }))
    };
    let check = |insists, installed: bool| {
        let drivers = CSINodeDriver { name: "csi.example.com".into(), node_id: "n".into(), ..Default::default() };
        let csi_node = Object::CsiNode(Arc::new(CSINode {
            metadata: ObjectMeta { name: Some("n".into()), ..Default::default() },
            spec: CSINodeSpec { drivers: if installed { vec![drivers] } else { Vec::new() } },
            ..Default::default()
        }));
        let objects = [claim("a", "a", "ReadWriteOnce"), volume("a", ""), driver(insists), csi_node];
        let world = with(cluster([node("n").build()], []), objects);
        filter(NodeVolumeLimits, world, pod("p").claim("a").build()).remove(0).1
    };
    assert_eq!(check(true, false), "csi.example.com CSI driver is not installed on the node");
    assert_eq!((check(true, true), check(false, false)), (String::new(), String::new()));
}

#[test]
fn nodes_declare_the_features_that_pods_rely_on() {
    let declaring = |features: &[&str]| {
        let mut node = node("n").build();
        let declared = features.iter().map(|f| (*f).to_owned()).collect();
        node.status.get_or_insert_default().declared_features = Some(declared);
        node
    };
    let isolated = || {
        let mut pod = pod("p").build();
        let spec = pod.spec.get_or_insert_default();
        (spec.host_network, spec.host_users) = (Some(true), Some(false));
        pod
    };
    let check =
        |features: &[&str], pod: Pod| filter(NodeDeclaredFeatures, cluster([declaring(features)], []), pod).remove(0).1;
    assert_eq!(check(&[], pod("p").build()), "");
    assert_eq!(check(&["Other"], isolated()), "node(s) didn't match Pod's required features");
    assert_eq!(check(&["UserNamespacesHostNetworkSupport"], isolated()), "");
    let changed = |old: &[&str], new: &[&str]| {
        ClusterEvent::new(
            Resource::Node,
            Action::NODE_DECLARED_FEATURE,
            Some(Object::Node(Arc::new(declaring(old)))),
            Some(Object::Node(Arc::new(declaring(new)))),
        )
    };
    let waiting = PodInfo::new(Arc::new(isolated()));
    assert_eq!(NodeDeclaredFeatures.hint(&waiting, &changed(&[], &["A"]), &Cluster::new()), Hint::Queue);
    assert_eq!(NodeDeclaredFeatures.hint(&waiting, &changed(&["A"], &["A"]), &Cluster::new()), Hint::Skip);
}

#[test]
fn only_what_may_help_wakes_a_pod() {
    let world = Cluster::new();
    let info = |pod: PodBuilder| PodInfo::new(Arc::new(pod.build()));
    let added = |n: Node| ClusterEvent::new(Resource::Node, Action::ADD, None, Some(Object::Node(Arc::new(n))));
    let changed = |old: Node, new: Node, action| {
        ClusterEvent::new(Resource::Node, action, Some(Object::Node(Arc::new(old))), Some(Object::Node(Arc::new(new))))
    };
    let deleted = |p: PodBuilder| ClusterEvent::assigned_pod_delete(p.info());
    let fit = NodeResourcesFit::default();
    let needs = info(pod("p").cpu("2"));
    let selecting = info(pod("p").node_selector("x", "1"));
    let with_port = |name: &str, port| pod(name).with(container("c").host_port("", "TCP", port));
    let porting = info(with_port("p", 80));
    for (about, hint, expected) in [
        ("room", fit.hint(&needs, &added(node("n").cpu("2").build()), &world), Hint::Queue),
        ("no room", fit.hint(&needs, &added(node("n").cpu("1").build()), &world), Hint::Skip),
        (
            "more of what is not needed",
            fit.hint(
                &needs,
                &changed(node("n").cpu("2").build(), node("n").cpu("2").memory("9").build(), Action::NODE_ALLOCATABLE),
                &world,
            ),
            Hint::Skip,
        ),
        (
            "more of what is needed",
            fit.hint(
                &needs,
                &changed(node("n").cpu("1").build(), node("n").cpu("2").build(), Action::NODE_ALLOCATABLE),
                &world,
            ),
            Hint::Queue,
        ),
        ("a pod is gone", fit.hint(&needs, &deleted(pod("x").on("n")), &world), Hint::Queue),
        (
            "the label",
            NodeAffinity::default().hint(&selecting, &added(node("n").label("x", "1").build()), &world),
            Hint::Queue,
        ),
        (
            "another label",
            NodeAffinity::default().hint(&selecting, &added(node("n").label("x", "2").build()), &world),
            Hint::Skip,
        ),
        (
            "the label was there already",
            NodeAffinity::default().hint(
                &selecting,
                &changed(
                    node("n").label("x", "1").build(),
                    node("n").label("x", "1").label("y", "1").build(),
                    Action::NODE_LABEL,
                ),
                &world,
            ),
            Hint::Skip,
        ),
        (
            "the taint is gone",
            TaintToleration.hint(
                &needs,
                &changed(node("n").taint("a", "", "NoSchedule").build(), node("n").build(), Action::NODE_TAINT),
                &world,
            ),
            Hint::Queue,
        ),
        (
            "a tainted node",
            TaintToleration.hint(&needs, &added(node("n").taint("a", "", "NoSchedule").build()), &world),
            Hint::Skip,
        ),
        ("the port is free", NodePorts.hint(&porting, &deleted(with_port("x", 80).on("n")), &world), Hint::Queue),
        ("another port is free", NodePorts.hint(&porting, &deleted(with_port("x", 81).on("n")), &world), Hint::Skip),
        (
            "uncordoned",
            NodeUnschedulable::default().hint(
                &needs,
                &changed(node("n").unschedulable().build(), node("n").build(), Action::NODE_TAINT),
                &world,
            ),
            Hint::Queue,
        ),
        (
            "cordoned",
            NodeUnschedulable::default().hint(&needs, &added(node("n").unschedulable().build()), &world),
            Hint::Skip,
        ),
    ] {
        assert_eq!(hint, expected, "{about}");
    }
}
