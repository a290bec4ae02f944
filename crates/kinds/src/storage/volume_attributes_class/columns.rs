//! What a table shows of VolumeAttributesClasses.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, of, text};

pub static TABLE: Printer = Printer::new(
    &[NAME, text("DriverName", of("io.k8s.api.storage.v1.VolumeAttributesClass", "driverName")), AGE],
    |class, now| vec![name(class), json!(value::text(class, "driverName")), age(class, now)],
);
