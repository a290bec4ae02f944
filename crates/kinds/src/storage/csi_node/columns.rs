//! What a table shows of CSINodes.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, integer, own};

pub static TABLE: Printer =
    Printer::new(&[NAME, integer("Drivers", own("How many CSI drivers the node has.")), AGE], |node, now| {
        vec![name(node), json!(value::list(node, "spec.drivers").len()), age(node, now)]
    });
