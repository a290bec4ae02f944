//! Certificate requests: who may approve and sign for a signer, and what nobody may ask for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::status::ApiError;
use machinery::{Value, value};

use super::{Operation, Request};
use crate::gates::authorization::{Attributes, Authorizers};

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

fn is_csr(request: &Request<'_>) -> bool {
    request.resource.name.group == GROUP && request.resource.name.resource == "certificatesigningrequests"
}

/// The certificate request inside an object.
pub fn request_in(csr: &Value) -> Result<pki::Request, String> {
    let bytes = STANDARD.decode(value::text(csr, "spec.request")).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
    pki::Request::from_pem(&text).map_err(|error| error.to_string())
}

/// CertificateApproval: decided by the signer of the request as it is stored.
pub async fn approval(authorizers: &Authorizers, request: &Request<'_>, old: Option<&Value>) -> Result<(), ApiError> {
    let Some(old) = old.filter(|_| is_csr(request) && request.info.subresource == "approval") else { return Ok(()) };
    check(authorizers, request, old, "approve").await
}

/// CertificateSigning: whoever puts a certificate or a condition into the status.
pub async fn signing(
    authorizers: &Authorizers,
    request: &Request<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let (Some(new), Some(old)) = (new, old) else { return Ok(()) };
    if !is_csr(request) || request.info.subresource != "status" {
        return Ok(());
    }
    let same = |path: &str| value::at(new, path) == value::at(old, path);
    if same("status.certificate") && same("status.conditions") {
        return Ok(());
    }
    check(authorizers, request, old, "sign").await
}

/// CertificateSubjectRestriction: masters are made by whoever holds the authority's key, and by nobody else.
pub fn subject(request: &Request<'_>, new: Option<&Value>) -> Result<(), ApiError> {
    let wanted = request.operation == Operation::Create && is_csr(request) && request.info.subresource.is_empty();
    let Some(csr) = new.filter(|_| wanted) else { return Ok(()) };
    if value::text(csr, "spec.signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let parsed = request_in(csr).map_err(|error| request.forbid(csr, &format!("failed to parse CSR: {error}")))?;
    if parsed.subject.organizations.iter().any(|group| group == "system:masters") {
        let why = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
        return Err(request.forbid(csr, &why));
    }
    Ok(())
}

async fn check(authorizers: &Authorizers, request: &Request<'_>, csr: &Value, verb: &str) -> Result<(), ApiError> {
    let signer = value::text(csr, "spec.signerName");
    // By the signer's own name, or by its whole domain.
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        if authorizers.allows(&Attributes::question(request.user, verb, GROUP, "signers", name)).await {
            return Ok(());
        }
    }
    Err(request.forbid(csr, &format!("user not permitted to {verb} requests with signerName {signer:?}")))
}
