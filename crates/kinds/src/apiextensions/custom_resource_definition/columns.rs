//! What a table shows of CustomResourceDefinitions.

use machinery::value;
use serde_json::json;

use crate::table::cells::{is_true, joined, name};
use crate::table::{CREATED, NAME, Printer, boolean, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Scope", own("Cluster or Namespaced.")),
        text("Versions", own("The versions that are served.")),
        CREATED,
        text("Group", own("The API group.")).wide(),
        text("Kind", own("The kind of the custom resource.")).wide(),
        text("ShortNames", own("Its short names.")).wide(),
        boolean("Established", own("Whether it is served.")).wide(),
    ],
    |definition, _| {
        let served = value::list(definition, "spec.versions").iter().filter(|version| value::flag(version, "served"));
        let mut versions: Vec<String> = served
            .map(|version| {
                let stored = if value::flag(version, "storage") { "(storage)" } else { "" };
                format!("{}{stored}", value::text(version, "name"))
            })
            .collect();
        versions.sort_unstable();
        let field = |path| json!(value::text(definition, path));
        vec![
            name(definition),
            field("spec.scope"),
            json!(versions.join(",")),
            field("metadata.creationTimestamp"),
            field("spec.group"),
            field("spec.names.kind"),
            json!(joined(definition, "spec.names.shortNames", ",")),
            json!(is_true(definition, "Established")),
        ]
    },
);
