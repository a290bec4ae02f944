//! What a table shows of PodDisruptionBudgets.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name, number, plain};
use crate::table::{AGE, NAME, Printer, integer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Min Available", own("How many pods must be available at least.")),
        text("Max Unavailable", own("How many pods may be unavailable at most.")),
        integer("Allowed Disruptions", own("How many pods may be disrupted now.")),
        AGE,
    ],
    |budget, now| {
        let bound = |path: &str| {
            let given = value::at(budget, path).filter(|given| !given.is_null());
            json!(given.map_or_else(|| "N/A".to_owned(), plain))
        };
        vec![
            name(budget),
            bound("spec.minAvailable"),
            bound("spec.maxUnavailable"),
            json!(number(budget, "status.disruptionsAllowed")),
            age(budget, now),
        ]
    },
);
