//! What a table shows of StorageVersionMigrations.

use machinery::value;
use serde_json::json;

use crate::table::cells::name;
use crate::table::{Column, NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        Column { format: "", ..NAME },
        text("Resource", own("The resource that is migrated.")),
        text("Status", own("How far the migration is.")),
    ],
    |object, _| {
        let (group, resource) =
            (value::text(object, "spec.resource.group"), value::text(object, "spec.resource.resource"));
        let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let met = value::list(object, "status.conditions")
            .iter()
            .filter(|condition| value::text(condition, "status") == "True");
        let kinds = met.map(|condition| value::text(condition, "type"));
        let status = kinds.rev().find(|kind| matches!(*kind, "Running" | "Failed" | "Succeeded")).unwrap_or("Unknown");
        vec![name(object), json!(resource), json!(status)]
    },
);
