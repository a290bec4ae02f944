//! What a table shows of CertificateSigningRequests.

use machinery::duration::human;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, name, text_or};
use crate::table::{AGE, NAME, Printer, of, text};

const SPEC: &str = "io.k8s.api.certificates.v1.CertificateSigningRequestSpec";

pub static TABLE: Printer = Printer::new(
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

pub fn condition(request: &Value) -> String {
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
