//! A cluster with one pod that one plugin rejects.

use super::*;

pub(super) fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), uid: Some(format!("uid-{name}")), ..Default::default() }
}

pub(super) fn annotated(mut meta: ObjectMeta, key: &str) -> ObjectMeta {
    meta.annotations.get_or_insert_default().insert(key.into(), "yes".into());
    meta
}

/// A claim of namespace `default`, bound to the volume of the same name unless it is `unbound`.
pub(super) fn claim(name: &str) -> PersistentVolumeClaim {
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

pub(super) fn volume(name: &str, zone: &str) -> PersistentVolume {
    let labels = (!zone.is_empty()).then(|| [(ZONE.to_owned(), zone.to_owned())].into());
    let source = CSIPersistentVolumeSource { driver: DRIVER.into(), volume_handle: name.into(), ..Default::default() };
    PersistentVolume {
        metadata: ObjectMeta { labels, ..meta(name) },
        spec: Some(PersistentVolumeSpec { csi: Some(source), ..Default::default() }),
        ..Default::default()
    }
}

pub(super) fn csi_node(name: &str, limit: i32) -> CSINode {
    let driver = CSINodeDriver {
        name: DRIVER.into(),
        node_id: name.into(),
        allocatable: Some(VolumeNodeResources { count: Some(limit) }),
        topology_keys: None,
    };
    CSINode { metadata: meta(name), spec: CSINodeSpec { drivers: vec![driver] }, ..Default::default() }
}

pub(super) fn class(name: &str, mode: &str) -> StorageClass {
    StorageClass {
        metadata: meta(name),
        provisioner: DRIVER.into(),
        volume_binding_mode: Some(mode.into()),
        ..Default::default()
    }
}

pub(super) fn driver(minds_capacity: bool) -> CSIDriver {
    let spec = CSIDriverSpec { storage_capacity: Some(minds_capacity), ..Default::default() };
    CSIDriver { metadata: meta(DRIVER), spec }
}

pub(super) fn capacity(amount: &str) -> CSIStorageCapacity {
    CSIStorageCapacity {
        metadata: ObjectMeta { namespace: Some("default".into()), ..meta("capacity") },
        capacity: Some(Quantity(amount.into())),
        storage_class_name: "slow".into(),
        ..Default::default()
    }
}

/// A pod that waits, and what is around it.
pub(super) struct World {
    pub(super) scheduler: Scheduler,
    pub(super) node: Node,
    pub(super) neighbour: Pod,
    pub(super) own: Pod,
}

impl World {
    pub(super) fn new(case: &Case) -> Self {
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

    pub(super) fn see(&mut self, old: Option<Object>, new: Option<Object>) {
        self.scheduler.observe(old, new);
    }

    pub(super) fn add_node(&mut self, builder: NodeBuilder) {
        self.see(None, Some(Object::Node(Arc::new(builder.build()))));
    }

    pub(super) fn change_node(&mut self, change: impl FnOnce(&mut Node)) {
        let mut new = self.node.clone();
        change(&mut new);
        self.see(Some(Object::Node(Arc::new(self.node.clone()))), Some(Object::Node(Arc::new(new))));
    }

    pub(super) fn label_node(&mut self, key: &str, value: &str) {
        self.change_node(|n| {
            n.metadata.labels.get_or_insert_default().insert(key.into(), value.into());
        });
    }

    pub(super) fn change_pod(&mut self, old: Pod, change: impl FnOnce(&mut Pod)) {
        let mut new = old.clone();
        new.metadata.resource_version = Some("2".into());
        change(&mut new);
        self.see(Some(seen(old)), Some(seen(new)));
    }

    pub(super) fn change_neighbour(&mut self, change: impl FnOnce(&mut Pod)) {
        self.change_pod(self.neighbour.clone(), change);
    }

    pub(super) fn change_own(&mut self, change: impl FnOnce(&mut Pod)) {
        self.change_pod(self.own.clone(), change);
    }

    /// Who rejected the pod.
    pub(super) fn rejectors(&self) -> Vec<&'static str> {
        let waiting = self.scheduler.queue.iter().find(|queued| queued.info.name() == "own");
        let rejectors = waiting.map(|queued| queued.rejectors.union(queued.pending)).unwrap_or_default();
        rejectors.iter().map(|id| self.scheduler.plugin_name(id)).collect()
    }

    pub(super) fn is_waiting(&self) -> bool {
        let pending = self.scheduler.pending();
        pending.unschedulable + pending.gated == 1
    }
}

pub(super) fn seen(pod: Pod) -> Object {
    Object::Pod(Arc::new(PodInfo::new(Arc::new(pod))))
}

pub(super) fn request(pod: &mut Pod, cpu: &str) {
    let main = pod.spec.as_mut().and_then(|spec| spec.containers.first_mut());
    if let Some(requests) = main.and_then(|c| c.resources.as_mut()?.requests.as_mut()) {
        requests.insert("cpu".into(), Quantity(cpu.into()));
    }
}

pub(super) fn relabel(pod: &mut Pod, key: &str, value: Option<&str>) {
    let labels = pod.metadata.labels.get_or_insert_default();
    match value {
        Some(value) => labels.insert(key.into(), value.into()),
        None => labels.remove(key),
    };
}
