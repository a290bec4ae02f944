//! scheduling.k8s.io.

use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, condition, is_set, name, number, text_or};
use super::{AGE, NAME, Printer, boolean, integer, of, own, text};

/// The printer of a kind of scheduling.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "CompositePodGroup" => &COMPOSITE_POD_GROUP,
        "PodGroup" => &POD_GROUP,
        "PriorityClass" => &PRIORITY_CLASS,
        "Workload" => &WORKLOAD,
        _ => return None,
    })
}

const PRIORITY: &str = "io.k8s.api.scheduling.v1.PriorityClass";

static PRIORITY_CLASS: Printer = Printer::new(
    &[
        NAME,
        integer("Value", of(PRIORITY, "value")),
        boolean("Global-Default", of(PRIORITY, "globalDefault")),
        AGE,
        text("PreemptionPolicy", of(PRIORITY, "preemptionPolicy")),
    ],
    |class, now| {
        vec![
            name(class),
            json!(number(class, "value")),
            json!(value::flag(class, "globalDefault")),
            age(class, now),
            json!(value::text(class, "preemptionPolicy")),
        ]
    },
);

static WORKLOAD: Printer = Printer::new(&[NAME, AGE], |object, now| vec![name(object), age(object, now)]);

static POD_GROUP: Printer = Printer::new(
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

static COMPOSITE_POD_GROUP: Printer = Printer::new(
    &[
        NAME,
        text("Policy", of("io.k8s.api.scheduling.v1alpha3.CompositePodGroupSpec", "schedulingPolicy")),
        text("Workload", own("The workload that the group belongs to.")),
        AGE,
    ],
    |group, now| vec![name(group), json!(policy(group)), json!(workload(group)), age(group, now)],
);

fn policy(group: &Value) -> &'static str {
    if is_set(group, "spec.schedulingPolicy.gang") { "Gang" } else { "Basic" }
}

fn workload(group: &Value) -> String {
    text_or(group, "spec.workloadRef.workloadName", "<none>")
}
