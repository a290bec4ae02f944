//! What a table shows of Ingresses.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{MOST, age, load_balancer, name, text_or};
use crate::table::{AGE, NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Class", own("The IngressClass that serves the ingress.")),
        text("Hosts", own("The hosts that the rules are for.")),
        text("Address", own("Where the load balancer is reached.")),
        text("Ports", own("The ports that are open, with and without TLS.")),
        AGE,
    ],
    |object, now| {
        let tls = !value::list(object, "spec.tls").is_empty();
        vec![
            name(object),
            json!(text_or(object, "spec.ingressClassName", "<none>")),
            json!(hosts(object)),
            json!(load_balancer(object)),
            json!(if tls { "80, 443" } else { "80" }),
            age(object, now),
        ]
    },
);

/// The first hosts. Rules without a host fill no place, but count among those left out.
fn hosts(object: &Value) -> String {
    let rules = value::list(object, "spec.rules");
    let named: Vec<usize> =
        (0..rules.len()).filter(|index| !value::text(&rules[*index], "host").is_empty()).take(MOST).collect();
    if named.is_empty() {
        return "*".to_owned();
    }
    let shown = named.iter().map(|index| value::text(&rules[*index], "host")).collect::<Vec<_>>().join(",");
    let more = named.len() == MOST && named.last().is_some_and(|last| last + 1 < rules.len());
    if more { format!("{shown} + {} more...", rules.len() - MOST) } else { shown }
}
