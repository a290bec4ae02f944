//! flowcontrol.apiserver.k8s.io.

use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, condition, name, number, text_or};
use super::{AGE, NAME, Printer, of, own, text};

/// The printer of a kind of flow control.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    match kind {
        "FlowSchema" => Some(&FLOW_SCHEMA),
        "PriorityLevelConfiguration" => Some(&PRIORITY_LEVEL),
        _ => None,
    }
}

const SCHEMA: &str = "io.k8s.api.flowcontrol.v1.FlowSchemaSpec";
const QUEUING: &str = "io.k8s.api.flowcontrol.v1.QueuingConfiguration";

static FLOW_SCHEMA: Printer = Printer {
    list: by_precedence,
    ..Printer::new(
        &[
            NAME,
            text("PriorityLevel", of("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationReference", "name")),
            text("MatchingPrecedence", of(SCHEMA, "matchingPrecedence")),
            text("DistinguisherMethod", of(SCHEMA, "distinguisherMethod")),
            AGE,
            text("MissingPL", own("Whether its priority level does not exist.")),
        ],
        |schema, now| {
            let missing = condition(schema, "Dangling").map_or("?", |condition| value::text(condition, "status"));
            vec![
                name(schema),
                json!(value::text(schema, "spec.priorityLevelConfiguration.name")),
                json!(number(schema, "spec.matchingPrecedence")),
                json!(text_or(schema, "spec.distinguisherMethod.type", "<none>")),
                age(schema, now),
                json!(missing),
            ]
        },
    )
};

/// A list is in the order in which requests meet the schemas.
fn by_precedence(rows: &mut [(Value, Vec<Value>)]) {
    rows.sort_by_cached_key(|(schema, _)| {
        (number(schema, "spec.matchingPrecedence"), value::text(schema, "metadata.name").to_owned())
    });
}

static PRIORITY_LEVEL: Printer = Printer::new(
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
