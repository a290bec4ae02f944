//! What a table shows of Leases.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, of, text};

pub static TABLE: Printer = Printer::new(
    &[NAME, text("Holder", of("io.k8s.api.coordination.v1.LeaseSpec", "holderIdentity")), AGE],
    |lease, now| vec![name(lease), json!(value::text(lease, "spec.holderIdentity")), age(lease, now)],
);
