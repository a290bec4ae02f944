//! What a table shows of LeaseCandidates.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, of, text};

const CANDIDATE: &str = "io.k8s.api.coordination.v1beta1.LeaseCandidateSpec";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("LeaseName", of(CANDIDATE, "leaseName")),
        text("BinaryVersion", of(CANDIDATE, "binaryVersion")),
        text("EmulationVersion", of(CANDIDATE, "emulationVersion")),
        AGE,
    ],
    |candidate, now| {
        let field = |path| json!(value::text(candidate, path));
        vec![
            name(candidate),
            field("spec.leaseName"),
            field("spec.binaryVersion"),
            field("spec.emulationVersion"),
            age(candidate, now),
        ]
    },
);
