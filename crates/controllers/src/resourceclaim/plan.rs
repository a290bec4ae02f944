//! What claims a pod needs, who still needs a claim, and what becomes of one that nobody needs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{
    AllocationResult, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::common::meta::MetaExt;
use crate::common::pods;
use crate::common::resource_claims::{self, is_pod};

/// Keeps a claim as long as it is allocated.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Which of its pod's claims a generated claim is.
pub(super) const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Which claims the scheduler made for extended resources.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";
/// The longest prefix that leaves room for five random characters in a name of 63.
const MAX_PREFIX: usize = 57;

/// A pod that is done would lose a claim as soon as it were made.
pub(super) fn wants_claims(pod: &Pod) -> bool {
    !pod.metadata.is_deleting() && !is_done(pod) && !resource_claims::of_pod(pod).is_empty()
}

/// No container of the pod runs or ever will.
pub(super) fn is_done(pod: &Pod) -> bool {
    pods::is_terminal(pod) || (pod.metadata.is_deleting() && pods::node_name(pod).is_none())
}

/// The claim for a pod, as its template says. The pod owns it.
pub(super) fn generated(pod: &Pod, claim: &PodResourceClaim, template: &ResourceClaimTemplate) -> ResourceClaim {
    let template = template.spec.clone().unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), claim.name.clone());
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(prefix(pod.metadata.name(), &claim.name)),
            namespace: pod.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod.metadata.name().to_owned(),
                uid: pod.metadata.uid().to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// `pod-claim-`, both parts cut in proportion where that is too long: the API server would only cut the end.
fn prefix(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= MAX_PREFIX {
        return whole;
    }
    let cut = |part: &str| part.chars().take(part.len() * MAX_PREFIX / whole.len()).collect::<String>();
    format!("{}-{}", cut(pod), cut(claim))
}

/// Whether this is what was made for one of a pod's claims, though the pod's status may not say so.
pub(super) fn is_made_for(made: &ResourceClaim, claim: &PodResourceClaim) -> bool {
    made.metadata.annotation(POD_CLAIM) == Some(claim.name.as_str())
}

/// The names of the pod's generated claims by the pod's own names for them, old and new.
pub(super) fn statuses(pod: &Pod, new: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let known = known.filter_map(|status| Some((status.name.clone(), status.resource_claim_name.clone()?)));
    let mut all: BTreeMap<String, String> = known.collect();
    all.extend(new);
    all
}

/// A pod as a consumer of claims.
pub(super) fn consumer(pod: &Pod) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: pod.metadata.name().to_owned(),
        uid: pod.metadata.uid().to_owned(),
    }
}

/// Whether a consumer still needs the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Keeps,
    Gone,
    /// A pod that is not in the cache: it may be new, or gone.
    Unknown,
}

/// Whether a consumer still needs a claim; `pod` is the pod of its name.
pub(super) fn need(consumer: &ResourceClaimConsumerReference, pod: Option<&Pod>) -> Need {
    if !is_pod(consumer) {
        // Somebody else's business.
        return Need::Keeps;
    }
    match pod {
        None => Need::Unknown,
        Some(pod) if pod.metadata.uid() != consumer.uid || is_done(pod) => Need::Gone,
        Some(_) => Need::Keeps,
    }
}

/// What to do to a claim, one write after the other.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// The status that it should have.
    pub(super) status: Option<Reservation>,
    /// Whether the finalizer goes.
    pub(super) release: bool,
    /// Whether nobody will ever use it.
    pub(super) delete: bool,
}

/// Who has a claim, and what it was given.
#[derive(Debug, PartialEq)]
pub(super) struct Reservation {
    pub(super) reserved_for: Vec<ResourceClaimConsumerReference>,
    pub(super) allocation: Option<AllocationResult>,
}

/// What to do to a claim of which these consumers remain; `owner` is the pod of the name that the claim's controller has.
///
/// What was used and no longer is, is deallocated: the next user may want it on another node, and meanwhile others may have the devices. What was
/// never used is not: a driver may have allocated it in advance.
pub(super) fn plan(claim: &ResourceClaim, remaining: Vec<ResourceClaimConsumerReference>, owner: Option<&Pod>) -> Plan {
    let status = claim.status.clone().unwrap_or_default();
    let held = claim.metadata.has_finalizer(FINALIZER);
    let unused = remaining.is_empty();
    let fewer = remaining.len() < status.reserved_for.as_ref().map_or(0, Vec::len);
    let ends = held && unused && claim.metadata.is_deleting();
    let deallocates = held && unused && (fewer || ends);
    let allocation = status.allocation.filter(|_| !deallocates);
    let was_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    let release = held && allocation.is_none() && (fewer || ends);
    Plan {
        status: (fewer || (ends && was_allocated)).then_some(Reservation { reserved_for: remaining, allocation }),
        release,
        delete: unused && owner.is_some_and(|pod| !is_owned_by(claim, pod) || is_done(pod)),
    }
}

/// The name of the pod that a claim was made for.
pub(super) fn owning_pod(claim: &ResourceClaim) -> Option<&str> {
    let owner = claim.metadata.controller()?;
    (owner.api_version == "v1" && owner.kind == "Pod").then_some(owner.name.as_str())
}

fn is_owned_by(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid())
}

/// Where a claim comes from, as metrics say it.
pub(super) fn source(claim: &ResourceClaim) -> &'static str {
    if claim.metadata.annotation(EXTENDED) == Some("true") {
        "extended_resource"
    } else if claim.metadata.annotation(POD_CLAIM).is_some_and(|name| !name.is_empty()) {
        "resource_claim_template"
    } else {
        ""
    }
}

/// Whether a claim asks for access to devices that others use, as metrics say it.
pub(super) fn admin_access(claim: &ResourceClaim) -> &'static str {
    let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    let requests = devices.into_iter().flat_map(|devices| devices.requests.iter().flatten());
    let admin = requests.filter_map(|request| request.exactly.as_ref()?.admin_access).any(|admin| admin);
    if admin { "true" } else { "false" }
}
