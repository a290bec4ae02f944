//! What a table shows of PriorityLevelConfigurations.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, name, number};
use crate::table::{AGE, NAME, Printer, of, text};

const QUEUING: &str = "io.k8s.api.flowcontrol.v1.QueuingConfiguration";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Type", of("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec", "type")),
        text(
            "NominalConcurrencyShares",
            of("io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration", "nominalConcurrencyShares"),
        ),
        text("Queues", of(QUEUING, "queues")),
        text("HandSize", of(QUEUING, "handSize")),
        text("QueueLengthLimit", of(QUEUING, "queueLengthLimit")),
        AGE,
    ],
    |level, now| {
        let limited = value::at(level, "spec.limited").filter(|limited| limited.is_object());
        let queuing = limited
            .and_then(|limited| value::at(limited, "limitResponse.queuing"))
            .filter(|queuing| queuing.is_object());
        let of =
            |part: Option<&Value>, field: &str| part.map_or_else(|| json!("<none>"), |part| json!(number(part, field)));
        vec![
            name(level),
            json!(value::text(level, "spec.type")),
            of(limited, "nominalConcurrencyShares"),
            of(queuing, "queues"),
            of(queuing, "handSize"),
            of(queuing, "queueLengthLimit"),
            age(level, now),
        ]
    },
);
