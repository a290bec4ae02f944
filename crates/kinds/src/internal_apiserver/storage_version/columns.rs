//! What a table shows of StorageVersions.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, first, name, text_or};
use crate::table::{AGE, NAME, Printer, of, text};

const VERSION_STATUS: &str = "io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("CommonEncodingVersion", of(VERSION_STATUS, "commonEncodingVersion")),
        text("StorageVersions", of(VERSION_STATUS, "storageVersions")),
        AGE,
    ],
    |object, now| {
        let versions: Vec<String> = value::list(object, "status.storageVersions")
            .iter()
            .map(|version| {
                format!("{}={}", value::text(version, "apiServerID"), value::text(version, "encodingVersion"))
            })
            .collect();
        vec![
            name(object),
            json!(text_or(object, "status.commonEncodingVersion", "<unset>")),
            json!(first(&versions, 3)),
            age(object, now),
        ]
    },
);
