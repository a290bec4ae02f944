//! What a table shows of ReplicaSets.

use crate::table::cells::{replicas, selector};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, Printer, integer, of, text};

const REPLICA_SET_STATUS: &str = "io.k8s.api.apps.v1.ReplicaSetStatus";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        integer("Desired", of("io.k8s.api.apps.v1.ReplicaSetSpec", "replicas")),
        integer("Current", of(REPLICA_SET_STATUS, "replicas")),
        integer("Ready", of(REPLICA_SET_STATUS, "readyReplicas")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        text("Selector", of("io.k8s.api.apps.v1.ReplicaSetSpec", "selector")).wide(),
    ],
    |object, now| replicas(object, selector(object, "spec.selector"), now),
);
