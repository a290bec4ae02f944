//! ResourceClaims as pods use them: what they are called, whose they are, and for whom they are reserved.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};

use super::meta::MetaExt;
use super::pods;

/// What one of a pod's claims is called.
#[derive(Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// The pod names it; whoever made the pod also makes it.
    Given(&'a str),
    /// It was made for the pod from a template. An object of the name is it only if the pod controls that.
    Made(&'a str),
    /// It comes from a template, and was not made yet.
    NotMade,
    /// It turned out that none is needed.
    NotNeeded,
    /// The pod says neither a name nor a template.
    Unsupported,
}

/// What a pod's claim is called.
pub fn named<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> Named<'a> {
    if let Some(name) = &claim.resource_claim_name {
        return Named::Given(name);
    }
    if claim.resource_claim_template_name.is_none() {
        return Named::Unsupported;
    }
    let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    match statuses.into_iter().find(|status| status.name == claim.name) {
        None => Named::NotMade,
        Some(status) => status.resource_claim_name.as_deref().map_or(Named::NotNeeded, Named::Made),
    }
}

/// The claims of a pod's specification.
pub fn of_pod(pod: &Pod) -> &[PodResourceClaim] {
    pods::spec(pod).and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default()
}

/// The names of the claims that a pod has.
pub fn names(pod: &Pod) -> Vec<String> {
    let names = of_pod(pod).iter().filter_map(|claim| match named(pod, claim) {
        Named::Given(name) | Named::Made(name) => Some(name.to_owned()),
        Named::NotMade | Named::NotNeeded | Named::Unsupported => None,
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    names
}

/// Whether a claim was made for a pod.
pub fn is_for_pod(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.metadata.namespace() == pod.metadata.namespace()
        && claim.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid())
}

/// Whether a pod may use a claim.
pub fn is_reserved_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    let reserved = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    reserved.into_iter().any(|consumer| consumer.uid == pod.metadata.uid())
}

/// Whether a consumer of a claim is a pod.
pub fn is_pod(consumer: &ResourceClaimConsumerReference) -> bool {
    consumer.api_group.as_deref().unwrap_or_default().is_empty() && consumer.resource == "pods"
}
