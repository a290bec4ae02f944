//! Which requests are fine, and for how long they are kept.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::config::CertificateRequest;

const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const LEGACY: &str = "kubernetes.io/legacy-unknown";

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const MINUTE: u64 = 60;

fn condition<'a>(
    request: &'a CertificateSigningRequest,
    type_: &str,
) -> Option<&'a CertificateSigningRequestCondition> {
    request.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

fn certificate(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().and_then(|status| status.certificate.as_ref()).is_some_and(|bytes| !bytes.0.is_empty())
}

/// Nobody decided on it yet.
pub(super) fn is_pending(request: &CertificateSigningRequest) -> bool {
    !certificate(request) && condition(request, "Approved").is_none() && condition(request, "Denied").is_none()
}

/// It is approved, not failed, not signed, and for a signer of the cluster's own.
pub(super) fn wants_signature(request: &CertificateSigningRequest) -> bool {
    let own = [KUBELET_CLIENT, KUBELET_SERVING, CLIENT, LEGACY].contains(&request.spec.signer_name.as_str());
    own && !certificate(request) && condition(request, "Approved").is_some() && condition(request, "Failed").is_none()
}

/// A kubelet asks for its client certificate.
pub(super) fn is_kubelet_client(request: &CertificateSigningRequest, content: &CertificateRequest) -> bool {
    request.spec.signer_name == KUBELET_CLIENT && judge_kubelet_client(request, content).is_ok()
}

const NODE_USER: &str = "system:node:";

/// The user that a node is.
pub(super) fn node_user(name: &str) -> String {
    format!("{NODE_USER}{name}")
}

/// The node that asks for a serving certificate in its own name, if that is what the request is.
pub(super) fn serving_node<'a>(
    request: &CertificateSigningRequest,
    content: &'a CertificateRequest,
) -> Option<&'a str> {
    let own = request.spec.username.as_deref() == Some(content.common_name.as_str());
    let node = request.spec.groups.iter().flatten().any(|group| group == "system:nodes");
    let sound = request.spec.signer_name == KUBELET_SERVING && judge_kubelet_serving(request, content).is_ok();
    content.common_name.strip_prefix(NODE_USER).filter(|name| own && node && sound && !name.is_empty())
}

/// Whether a request names nothing but the node and the addresses that its Node has.
pub(super) fn names_only_its_own(content: &CertificateRequest, node: &Node) -> bool {
    let addresses: Vec<_> = node.status.iter().flat_map(|status| &status.addresses).flatten().collect();
    let has = |text: &String, kinds: [&str; 3]| {
        addresses.iter().any(|address| address.address == *text && kinds.contains(&address.type_.as_str()))
    };
    let own = |name: &String| node.metadata.name.as_ref() == Some(name);
    let by_name = |name: &String| own(name) || has(name, ["Hostname", "InternalDNS", "ExternalDNS"]);
    content.dns_names.iter().all(by_name)
        && content.addresses.iter().all(|ip| has(ip, ["InternalIP", "ExternalIP", "Hostname"]))
}

/// Whether the signer may sign what is asked for; the error is what its condition says.
pub(super) fn judge(request: &CertificateSigningRequest, content: &CertificateRequest) -> Result<(), String> {
    match request.spec.signer_name.as_str() {
        KUBELET_CLIENT => judge_kubelet_client(request, content),
        KUBELET_SERVING => judge_kubelet_serving(request, content),
        CLIENT => {
            let allowed = ["client auth", "digital signature", "key encipherment"];
            let usages = usages(request);
            if !usages.contains(&"client auth") || usages.iter().any(|usage| !allowed.contains(usage)) {
                return Err("usages did not match [client auth digital signature key encipherment]".to_owned());
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn usages(request: &CertificateSigningRequest) -> Vec<&str> {
    request.spec.usages.iter().flatten().map(String::as_str).collect()
}

fn judge_kubelet_client(request: &CertificateSigningRequest, content: &CertificateRequest) -> Result<(), String> {
    if content.organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    if !content.dns_names.is_empty() {
        return Err("DNS subjectAltNames are not allowed".to_owned());
    }
    if !content.emails.is_empty() {
        return Err("Email subjectAltNames are not allowed".to_owned());
    }
    if !content.addresses.is_empty() {
        return Err("IP subjectAltNames are not allowed".to_owned());
    }
    if !content.uris.is_empty() {
        return Err("URI subjectAltNames are not allowed".to_owned());
    }
    if !content.common_name.starts_with("system:node:") {
        return Err("subject common name does not begin with system:node: ".to_owned());
    }
    has_exactly(request, "client auth")
}

fn judge_kubelet_serving(request: &CertificateSigningRequest, content: &CertificateRequest) -> Result<(), String> {
    if content.organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    if content.dns_names.is_empty() && content.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    if !content.emails.is_empty() {
        return Err("Email subjectAltNames are not allowed".to_owned());
    }
    if !content.uris.is_empty() {
        return Err("URI subjectAltNames are not allowed".to_owned());
    }
    if !content.common_name.starts_with("system:node:") {
        return Err("subject common name does not begin with system:node: ".to_owned());
    }
    has_exactly(request, "server auth")
}

/// The usage and a digital signature, with or without key encipherment (which only RSA keys can do).
fn has_exactly(request: &CertificateSigningRequest, usage: &str) -> Result<(), String> {
    let mut given = usages(request);
    given.sort_unstable();
    let without = ["digital signature", usage];
    let with = ["digital signature", "key encipherment", usage];
    let same = |wanted: &[&str]| {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        wanted == given
    };
    if same(&without) || same(&with) { Ok(()) } else { Err(format!("usages did not match {with:?}")) }
}

/// What was asked for, between ten minutes and a year.
pub(super) fn lifetime(request: &CertificateSigningRequest) -> Duration {
    let asked =
        request.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    asked.map_or(YEAR, |asked| asked.clamp(Duration::from_secs(10 * MINUTE), YEAR))
}

fn push(request: &mut CertificateSigningRequest, type_: &str, reason: &str, message: &str, now: Timestamp) {
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
}

pub(super) fn approved(
    request: &CertificateSigningRequest,
    message: &str,
    now: Timestamp,
) -> CertificateSigningRequest {
    let mut approved = request.clone();
    push(&mut approved, "Approved", "AutoApproved", message, now);
    approved
}

pub(super) fn fail(request: &mut CertificateSigningRequest, reason: &str, message: &str, now: Timestamp) {
    push(request, "Failed", reason, message, now);
}

/// When the request is of no more use: approved, denied and failed ones after an hour, unanswered ones after a day.
pub(super) fn useless_at(request: &CertificateSigningRequest) -> Timestamp {
    let created = request.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let decided = ["Approved", "Denied", "Failed"].iter().filter_map(|type_| condition(request, type_));
    let last =
        decided.filter_map(|condition| condition.last_update_time.as_ref().or(condition.last_transition_time.as_ref()));
    match last.map(|time| time.0).max() {
        Some(at) => clock::add(at, Duration::from_secs(60 * MINUTE)),
        None => clock::add(created, Duration::from_secs(24 * 60 * MINUTE)),
    }
}
