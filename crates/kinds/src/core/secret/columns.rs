//! What a table shows of Secrets.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, entries, name};
use crate::table::{AGE, NAME, Printer, of, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Type", of("io.k8s.api.core.v1.Secret", "type")),
        text("Data", of("io.k8s.api.core.v1.Secret", "data")),
        AGE,
    ],
    |object, now| {
        vec![name(object), json!(value::text(object, "type")), json!(entries(object, "data")), age(object, now)]
    },
);
