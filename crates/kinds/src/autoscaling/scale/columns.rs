//! What a table shows of Scales.

use serde_json::json;

use crate::table::cells::{age, name, number};
use crate::table::{AGE, Column, NAME, Printer, integer, of};

pub static TABLE: Printer = Printer::new(
    &[
        Column { format: "", ..NAME },
        integer("Desired", of("io.k8s.api.autoscaling.v1.ScaleSpec", "replicas")),
        integer("Available", of("io.k8s.api.autoscaling.v1.ScaleStatus", "replicas")),
        AGE,
    ],
    |object, now| {
        vec![
            name(object),
            json!(number(object, "spec.replicas")),
            json!(number(object, "status.replicas")),
            age(object, now),
        ]
    },
);
