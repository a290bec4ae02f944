//! What a table shows of ResourceQuotas.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, name, plain};
use crate::table::{AGE, NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Request", own("What is used of what may be asked for.")),
        text("Limit", own("What is used of what may be allowed at most.")),
        AGE,
    ],
    |object, now| {
        let quantity = |map: &str, resource: &str| {
            let found = value::at(object, map).and_then(|map| map.get(resource));
            found.map_or_else(|| "0".to_owned(), plain)
        };
        let mut resources: Vec<&String> = value::at(object, "status.hard")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|hard| hard.keys())
            .collect();
        resources.sort_unstable();
        let (limits, requests): (Vec<&String>, Vec<&String>) =
            resources.into_iter().partition(|resource| resource.starts_with("limits."));
        let shown = |resources: Vec<&String>| {
            let each = resources.iter().map(|resource| {
                format!("{resource}: {}/{}", quantity("status.used", resource), quantity("status.hard", resource))
            });
            each.collect::<Vec<_>>().join(", ")
        };
        vec![name(object), json!(shown(requests)), json!(shown(limits)), age(object, now)]
    },
);
