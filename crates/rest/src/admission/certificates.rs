//! Certificate requests: who may approve and sign for a signer, and what nobody may ask for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gates::authorization::Authorizers;
use machinery::status::ApiError;
use machinery::{Value, value};

use super::rbac_escalation::only_owners_and_finalizers_differ;
use super::{Operation, Request};
use crate::verbs::Api;

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
    check(authorizers, request, old, "approve", "approve requests with").await
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
    check(authorizers, request, old, "sign", "sign requests with").await
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

/// ClusterTrustBundleAttest: who may say whom to trust for a signer. Bundles of no signer are for whoever may write them.
pub async fn attest(
    authorizers: &Authorizers,
    request: &Request<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let written = matches!(request.operation, Operation::Create | Operation::Update)
        && request.resource.name.group == GROUP
        && request.resource.name.resource == "clustertrustbundles";
    let Some(bundle) = new.filter(|_| written) else { return Ok(()) };
    let unchanged = old.is_some_and(|old| only_owners_and_finalizers_differ(bundle, old));
    if value::text(bundle, "spec.signerName").is_empty() || unchanged {
        return Ok(());
    }
    check(authorizers, request, bundle, "attest", "attest for").await
}

/// When conditions were set, where whoever set them did not say: upstream's server knows it best.
pub fn stamp(api: &Api, request: &Request<'_>, new: &mut Value, old: Option<&Value>) {
    let decides = is_csr(request) && matches!(request.info.subresource.as_str(), "approval" | "status");
    if let Some(old) = old.filter(|_| decides) {
        stamp_conditions(new, old, &api.now());
    }
}

fn stamp_conditions(new: &mut Value, old: &Value, now: &str) {
    for condition in value::list_mut(new, "status.conditions") {
        value::set_default(condition, "lastUpdateTime", now);
        let same = |other: &&Value| ["type", "status"].iter().all(|field| other.get(field) == condition.get(field));
        let since = value::list(old, "status.conditions").iter().find(same);
        let since = since.map_or("", |since| value::text(since, "lastTransitionTime"));
        value::set_default(condition, "lastTransitionTime", if since.is_empty() { now } else { since });
    }
}

async fn check(
    authorizers: &Authorizers,
    request: &Request<'_>,
    csr: &Value,
    verb: &str,
    what: &str,
) -> Result<(), ApiError> {
    let signer = value::text(csr, "spec.signerName");
    // By the signer's own name, or by its whole domain.
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        if authorizers.allows(&request.question(verb, GROUP, "signers", name)).await {
            return Ok(());
        }
    }
    Err(request.forbid(csr, &format!("user not permitted to {what} signerName {signer:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_say_when_they_were_set() {
        let with = |conditions: Value| json!({"status": {"conditions": conditions}});
        let old =
            with(json!([{"type": "Approved", "status": "True", "lastUpdateTime": "a", "lastTransitionTime": "b"}]));
        let mut new = with(json!([
            {"type": "Approved", "status": "True", "lastUpdateTime": "c", "lastTransitionTime": null},
            {"type": "Failed", "status": "True"}]));
        stamp_conditions(&mut new, &old, "now");
        let expect = with(json!([
            {"type": "Approved", "status": "True", "lastUpdateTime": "c", "lastTransitionTime": "b"},
            {"type": "Failed", "status": "True", "lastUpdateTime": "now", "lastTransitionTime": "now"}]));
        assert_eq!(new, expect);
    }
}
