//! What a table shows of ServiceCIDRs.

use serde_json::json;

use crate::table::cells::{age, joined, name};
use crate::table::{AGE, NAME, Printer, of, text};

pub static TABLE: Printer = Printer::new(
    &[NAME, text("CIDRs", of("io.k8s.api.networking.v1.ServiceCIDRSpec", "cidrs")), AGE],
    |object, now| vec![name(object), json!(joined(object, "spec.cidrs", ",")), age(object, now)],
);
