//! What a table shows of RuntimeClasses.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, of, text};

pub static TABLE: Printer =
    Printer::new(&[NAME, text("Handler", of("io.k8s.api.node.v1.RuntimeClass", "handler")), AGE], |class, now| {
        vec![name(class), json!(value::text(class, "handler")), age(class, now)]
    });
