//! Everything that may happen in that cluster, one after the other.

use super::*;

pub(super) type Event = (&'static str, fn(&mut World));

/// Everything that can happen.
pub(super) const EVENTS: &[Event] = &[
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

pub(super) fn attachment() -> VolumeAttachment {
    VolumeAttachment { metadata: meta("attachment"), ..Default::default() }
}
