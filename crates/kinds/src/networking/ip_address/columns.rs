//! What a table shows of IPAddresses.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{NAME, Printer, of, text};

/// Upstream fills a third cell that has no column; clients that count cells see the same here.
pub static TABLE: Printer = Printer::new(
    &[NAME, text("ParentRef", of("io.k8s.api.networking.v1.IPAddressSpec", "parentRef"))],
    |object, now| {
        let parent = match value::at(object, "spec.parentRef").filter(|parent| parent.is_object()) {
            None => "<none>".to_owned(),
            Some(parent) => {
                let (group, resource) = (value::text(parent, "group"), value::text(parent, "resource"));
                let mut shown = if group.is_empty() {
                    resource.to_lowercase()
                } else {
                    format!("{resource}.{group}").to_lowercase()
                };
                for part in ["namespace", "name"] {
                    let text = value::text(parent, part);
                    if part == "name" || !text.is_empty() {
                        shown.push('/');
                        shown.push_str(text);
                    }
                }
                shown
            }
        };
        vec![name(object), json!(parent), age(object, now)]
    },
);
