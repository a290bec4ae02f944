//! What a table shows of PodCertificateRequests.

use machinery::value;
use serde_json::json;

use crate::table::cells::{labels, name};
use crate::table::{NAME, Printer, of, own, text};

const POD_SPEC: &str = "io.k8s.api.certificates.v1beta1.PodCertificateRequestSpec";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("PodName", of(POD_SPEC, "podName")),
        text("ServiceAccountName", of(POD_SPEC, "serviceAccountName")),
        text("NodeName", of(POD_SPEC, "nodeName")),
        text("SignerName", of(POD_SPEC, "signerName")),
        text("State", own("Whether the request waits, was granted, was refused, or failed.")),
        text("UnverifiedUserAnnotations", of(POD_SPEC, "unverifiedUserAnnotations")),
    ],
    |request, _| {
        let kinds = value::list(request, "status.conditions").iter().map(|condition| value::text(condition, "type"));
        let state = kinds.rev().find(|kind| matches!(*kind, "Issued" | "Denied" | "Failed")).unwrap_or("Pending");
        vec![
            name(request),
            json!(value::text(request, "spec.podName")),
            json!(value::text(request, "spec.serviceAccountName")),
            json!(value::text(request, "spec.nodeName")),
            json!(value::text(request, "spec.signerName")),
            json!(state),
            json!(labels(request, "spec.unverifiedUserAnnotations")),
        ]
    },
);
