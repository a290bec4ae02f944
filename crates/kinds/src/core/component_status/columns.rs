//! What a table shows of ComponentStatuses.

use machinery::value;
use serde_json::json;

use crate::table::cells::name;
use crate::table::{NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Status", own("Whether the component is healthy.")),
        text("Message", own("What it says about itself.")),
        text("Error", own("Why it could not be asked.")),
    ],
    |object, _| {
        let mut conditions = value::list(object, "conditions").iter();
        let healthy = conditions.find(|condition| value::text(condition, "type") == "Healthy");
        let status = match healthy.map(|condition| value::text(condition, "status")) {
            None => "Unknown",
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
        };
        let text = |field| healthy.map_or("", |condition| value::text(condition, field));
        vec![name(object), json!(status), json!(text("message")), json!(text("error"))]
    },
);
