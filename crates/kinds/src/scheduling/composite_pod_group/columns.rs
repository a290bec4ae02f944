//! What a table shows of CompositePodGroups.

use serde_json::json;

use crate::scheduling::cells::{policy, workload};
use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, of, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Policy", of("io.k8s.api.scheduling.v1alpha3.CompositePodGroupSpec", "schedulingPolicy")),
        text("Workload", own("The workload that the group belongs to.")),
        AGE,
    ],
    |group, now| vec![name(group), json!(policy(group)), json!(workload(group)), age(group, now)],
);
