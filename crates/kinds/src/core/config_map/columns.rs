//! What a table shows of ConfigMaps.

use serde_json::json;

use crate::table::cells::{age, entries, name};
use crate::table::{AGE, NAME, Printer, of, text};

pub static TABLE: Printer =
    Printer::new(&[NAME, text("Data", of("io.k8s.api.core.v1.ConfigMap", "data")), AGE], |object, now| {
        vec![name(object), json!(entries(object, "data") + entries(object, "binaryData")), age(object, now)]
    });
