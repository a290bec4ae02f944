//! What a table shows of EvictionRequests.

use machinery::value;
use serde_json::json;

use crate::lifecycle::targets::{status, target};
use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, of, text};

const REQUEST_SPEC: &str = "io.k8s.api.lifecycle.v1alpha1.EvictionRequestSpec";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Target", of(REQUEST_SPEC, "target")),
        text("Target Type", of(REQUEST_SPEC, "target")),
        text("Status", of("io.k8s.api.lifecycle.v1alpha1.EvictionRequestStatus", "conditions")),
        text("Requester", of(REQUEST_SPEC, "requester")),
        text("Intent", of(REQUEST_SPEC, "intent")),
        AGE,
    ],
    |request, now| {
        let [target, kind] = target(request);
        vec![
            name(request),
            target,
            kind,
            json!(status(request)),
            json!(value::text(request, "spec.requester")),
            json!(value::text(request, "spec.intent")),
            age(request, now),
        ]
    },
);
