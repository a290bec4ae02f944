//! What a table shows of PodGroups.

use machinery::value;
use serde_json::json;

use crate::scheduling::cells::{policy, workload};
use crate::table::cells::{age, condition, name};
use crate::table::{AGE, NAME, Printer, of, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Policy", of("io.k8s.api.scheduling.v1beta1.PodGroupSpec", "schedulingPolicy")),
        text("Workload", own("The workload that the group belongs to.")),
        text("Status", own("Whether the group is scheduled.")),
        AGE,
    ],
    |group, now| {
        let mut status =
            match condition(group, "PodGroupInitiallyScheduled").map(|condition| value::text(condition, "status")) {
                None => "Pending",
                Some("True") => "Scheduled",
                Some(_) => "Unschedulable",
            };
        if let Some(condition) = condition(group, "DisruptionTarget") {
            status = value::text(condition, "reason");
        }
        vec![name(group), json!(policy(group)), json!(workload(group)), json!(status), age(group, now)]
    },
);
