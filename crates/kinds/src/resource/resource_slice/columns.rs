//! What a table shows of ResourceSlices.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, of, text};

const SLICE_SPEC: &str = "io.k8s.api.resource.v1.ResourceSliceSpec";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Node", of(SLICE_SPEC, "nodeName")),
        text("Driver", of(SLICE_SPEC, "driver")),
        text("Pool", of("io.k8s.api.resource.v1.ResourcePool", "name")),
        AGE,
    ],
    |slice, now| {
        let field = |path| json!(value::text(slice, path));
        vec![name(slice), field("spec.nodeName"), field("spec.driver"), field("spec.pool.name"), age(slice, now)]
    },
);
