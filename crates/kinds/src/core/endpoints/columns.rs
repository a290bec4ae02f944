//! What a table shows of Endpoints.

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, name, number};
use crate::table::{AGE, NAME, Printer, of, text};

pub static TABLE: Printer = Printer::new(
    &[NAME, text("Endpoints", of("io.k8s.api.core.v1.Endpoints", "subsets")), AGE],
    |object, now: Timestamp| vec![name(object), json!(endpoints(object)), age(object, now)],
);

/// The first three addresses with their ports, and how many more there are.
fn endpoints(object: &Value) -> String {
    const MOST: usize = 3;
    let subsets = value::list(object, "subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || value::list(subset, "addresses").iter().map(|address| value::text(address, "ip"));
        let ports = value::list(subset, "ports");
        // A headless service may have no ports.
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let number = number(port, "port");
            all.extend(
                addresses()
                    .map(|ip| if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }),
            );
        }
    }
    match all.len() {
        count if count > MOST => format!("{} + {} more...", all[..MOST].join(","), count - MOST),
        _ => all.join(","),
    }
}
