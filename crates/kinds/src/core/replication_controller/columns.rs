//! What a table shows of ReplicationControllers.

use crate::table::cells::{labels, replicas};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, Printer, integer, of, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        integer("Desired", of("io.k8s.api.core.v1.ReplicationControllerSpec", "replicas")),
        integer("Current", of("io.k8s.api.core.v1.ReplicationControllerStatus", "replicas")),
        integer("Ready", of("io.k8s.api.core.v1.ReplicationControllerStatus", "readyReplicas")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        text("Selector", of("io.k8s.api.core.v1.ReplicationControllerSpec", "selector")).wide(),
    ],
    |object, now| replicas(object, labels(object, "spec.selector"), now),
);
