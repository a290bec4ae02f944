//! What a table shows of Namespaces.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, own, text};

pub static TABLE: Printer =
    Printer::new(&[NAME, text("Status", own("Whether the namespace is in use or going.")), AGE], |object, now| {
        vec![name(object), json!(value::text(object, "status.phase")), age(object, now)]
    });
