//! What a table shows of CSIDrivers.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, is_set, name};
use crate::table::{AGE, NAME, Printer, boolean, of, text};

const DRIVER: &str = "io.k8s.api.storage.v1.CSIDriverSpec";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        boolean("AttachRequired", of(DRIVER, "attachRequired")),
        boolean("PodInfoOnMount", of(DRIVER, "podInfoOnMount")),
        boolean("StorageCapacity", of(DRIVER, "storageCapacity")),
        text("TokenRequests", of(DRIVER, "tokenRequests")),
        boolean("RequiresRepublish", of(DRIVER, "requiresRepublish")),
        text("Modes", of(DRIVER, "volumeLifecycleModes")),
        AGE,
    ],
    |driver, now| {
        let names = |path: &str, field: Option<&str>| {
            let items = value::list(driver, path).iter();
            let texts = items
                .map(|item| field.map_or_else(|| item.as_str().unwrap_or_default(), |field| value::text(item, field)));
            texts.collect::<Vec<_>>().join(",")
        };
        let tokens = if is_set(driver, "spec.tokenRequests") {
            names("spec.tokenRequests", Some("audience"))
        } else {
            "<unset>".to_owned()
        };
        let modes = names("spec.volumeLifecycleModes", None);
        vec![
            name(driver),
            json!(value::at(driver, "spec.attachRequired").and_then(Value::as_bool).unwrap_or(true)),
            json!(value::flag(driver, "spec.podInfoOnMount")),
            json!(value::flag(driver, "spec.storageCapacity")),
            json!(tokens),
            json!(value::flag(driver, "spec.requiresRepublish")),
            json!(if modes.is_empty() { "<none>".to_owned() } else { modes }),
            age(driver, now),
        ]
    },
);
