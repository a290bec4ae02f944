//! What a table shows of DeviceTaintRules.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, is_set, name, since};
use crate::table::{AGE, NAME, Printer, of, text};

const TAINT: &str = "io.k8s.api.resource.v1.DeviceTaint";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Key", of(TAINT, "key")),
        text("Value", of(TAINT, "value")),
        text("Effect", of(TAINT, "effect")),
        text("TimeAdded", of(TAINT, "timeAdded")),
        AGE,
    ],
    |rule, now| {
        let field = |path| json!(value::text(rule, path));
        let added = "spec.taint.timeAdded";
        vec![
            name(rule),
            field("spec.taint.key"),
            field("spec.taint.value"),
            field("spec.taint.effect"),
            json!(if is_set(rule, added) { since(rule, added, now) } else { String::new() }),
            age(rule, now),
        ]
    },
);
