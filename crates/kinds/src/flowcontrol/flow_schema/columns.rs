//! What a table shows of FlowSchemas.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, condition, name, number, text_or};
use crate::table::{AGE, NAME, Printer, of, own, text};

const SCHEMA: &str = "io.k8s.api.flowcontrol.v1.FlowSchemaSpec";

pub static TABLE: Printer = Printer {
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
