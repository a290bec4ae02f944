//! What a table shows of EndpointSlices.

use machinery::value;
use serde_json::json;

use crate::table::cells::{MOST, age, first, is_set, name};
use crate::table::{AGE, NAME, Printer, of, text};

const SLICE: &str = "io.k8s.api.discovery.v1.EndpointSlice";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("AddressType", of(SLICE, "addressType")),
        text("Ports", of(SLICE, "ports")),
        text("Endpoints", of(SLICE, "endpoints")),
        AGE,
    ],
    |object, now| {
        let ports: Vec<String> = value::list(object, "ports")
            .iter()
            .map(|port| match value::int(port, "port") {
                Some(number) => number.to_string(),
                None if is_set(port, "name") => value::text(port, "name").to_owned(),
                None => "*".to_owned(),
            })
            .collect();
        let addresses: Vec<String> = value::list(object, "endpoints")
            .iter()
            .flat_map(|endpoint| value::list(endpoint, "addresses"))
            .filter_map(|address| address.as_str().map(str::to_owned))
            .collect();
        vec![
            name(object),
            json!(value::text(object, "addressType")),
            json!(first(&ports, MOST)),
            json!(first(&addresses, MOST)),
            age(object, now),
        ]
    },
);
