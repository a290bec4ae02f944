//! What a table shows of APIServices.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, condition, is_set, name};
use crate::table::{AGE, NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Service", own("The reference to the service that hosts this API endpoint.")),
        text("Available", own("Whether this service is available.")),
        AGE,
    ],
    |object, now| {
        let service = if is_set(object, "spec.service") {
            format!("{}/{}", value::text(object, "spec.service.namespace"), value::text(object, "spec.service.name"))
        } else {
            "Local".to_owned()
        };
        let available = match condition(object, "Available") {
            None => "Unknown".to_owned(),
            Some(condition) => match (value::text(condition, "status"), value::text(condition, "reason")) {
                (status @ "True", _) | (status, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        };
        vec![name(object), json!(service), json!(available), age(object, now)]
    },
);
