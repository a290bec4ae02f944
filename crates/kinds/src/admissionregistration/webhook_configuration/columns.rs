//! What a table shows of MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, integer, own};

pub static TABLE: Printer =
    Printer::new(&[NAME, integer("Webhooks", own("How many webhooks the configuration has.")), AGE], |object, now| {
        vec![name(object), json!(value::list(object, "webhooks").len()), age(object, now)]
    });
