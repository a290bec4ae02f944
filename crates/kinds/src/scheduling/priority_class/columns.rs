//! What a table shows of PriorityClasses.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name, number};
use crate::table::{AGE, NAME, Printer, boolean, integer, of, text};

const PRIORITY: &str = "io.k8s.api.scheduling.v1.PriorityClass";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        integer("Value", of(PRIORITY, "value")),
        boolean("Global-Default", of(PRIORITY, "globalDefault")),
        AGE,
        text("PreemptionPolicy", of(PRIORITY, "preemptionPolicy")),
    ],
    |class, now| {
        vec![
            name(class),
            json!(number(class, "value")),
            json!(value::flag(class, "globalDefault")),
            age(class, now),
            json!(value::text(class, "preemptionPolicy")),
        ]
    },
);
