//! What a table shows of ControllerRevisions.

use machinery::gvk::GroupVersion;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, name, number};
use crate::table::{AGE, NAME, Printer, of, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Controller", own("What the revision is one of.")),
        text("Revision", of("io.k8s.api.apps.v1.ControllerRevision", "revision")),
        AGE,
    ],
    |object, now| {
        let controller = rules::owners::controller_in(object).map_or_else(|| "<none>".to_owned(), controller);
        vec![name(object), json!(controller), json!(number(object, "revision")), age(object, now)]
    },
);

/// `statefulset.apps/web`.
fn controller(owner: &Value) -> String {
    let group = GroupVersion::parse(value::text(owner, "apiVersion")).map_or_else(String::new, |version| version.group);
    let kind = value::text(owner, "kind");
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    format!("{}/{}", kind.to_lowercase(), value::text(owner, "name"))
}
