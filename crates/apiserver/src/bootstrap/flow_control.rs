//! The first priority levels and flow schemas, as objects that the server wants to be there.

pub use rules::flow_control::*;
use serde_json::{Value, json};

use super::{Repair, Wanted};

/// All of them. The mandatory ones are put right whatever anybody says.
pub(super) fn objects(now: &str) -> Vec<Wanted> {
    let wanted = |plural: &'static str, object: Value| {
        let repair = if is_mandatory(&object) { Repair::Mandatory } else { Repair::Suggested };
        Wanted { group: GROUP, plural, object, repair }
    };
    let levels = priority_levels().into_iter().map(|level| wanted("prioritylevelconfigurations", level));
    let schemas = flow_schemas().into_iter().map(|mut schema| {
        let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
        schema["status"] = json!({"conditions": [dangling(level, false, now)]});
        wanted("flowschemas", schema)
    });
    levels.chain(schemas).collect()
}
