//! certificates.k8s.io.

use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, human, labels, name, text_or};
use super::{AGE, NAME, Printer, of, own, text};

/// The printer of a kind of certificates.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "CertificateSigningRequest" => &SIGNING_REQUEST,
        "ClusterTrustBundle" => &TRUST_BUNDLE,
        "PodCertificateRequest" => &POD_REQUEST,
        _ => return None,
    })
}

const SPEC: &str = "io.k8s.api.certificates.v1.CertificateSigningRequestSpec";
const POD_SPEC: &str = "io.k8s.api.certificates.v1beta1.PodCertificateRequestSpec";

static SIGNING_REQUEST: Printer = Printer::new(
    &[
        NAME,
        AGE,
        text("SignerName", of(SPEC, "signerName")),
        text("Requestor", of(SPEC, "request")),
        text("RequestedDuration", of(SPEC, "expirationSeconds")),
        text("Condition", of("io.k8s.api.certificates.v1.CertificateSigningRequestStatus", "conditions")),
    ],
    |request, now| {
        let duration = value::int(request, "spec.expirationSeconds").map_or_else(|| "<none>".to_owned(), human);
        vec![
            name(request),
            age(request, now),
            json!(text_or(request, "spec.signerName", "<none>")),
            json!(value::text(request, "spec.username")),
            json!(duration),
            json!(condition(request)),
        ]
    },
);

fn condition(request: &Value) -> String {
    let has = |kind: &str| {
        value::list(request, "status.conditions").iter().any(|condition| value::text(condition, "type") == kind)
    };
    let mut shown = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        shown.push_str(",Failed");
    }
    if !value::text(request, "status.certificate").is_empty() {
        shown.push_str(",Issued");
    }
    shown
}

static TRUST_BUNDLE: Printer = Printer::new(
    &[NAME, text("SignerName", of("io.k8s.api.certificates.v1beta1.ClusterTrustBundleSpec", "signerName"))],
    |bundle, _| vec![name(bundle), json!(text_or(bundle, "spec.signerName", "<none>"))],
);

static POD_REQUEST: Printer = Printer::new(
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
