//! What is counted of claims: how many were made, and how many there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use figures::{Family, Gauge};
use informer::Informer;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::plan::{admin_access, source};
use crate::metrics::{self, Collect};

/// Somebody tried to make a claim for a pod.
pub(super) fn created(claim: &ResourceClaim, succeeded: bool) {
    let status = if succeeded { "success" } else { "failure" };
    metrics::RESOURCE_CLAIMS_CREATED.increment(&[status, admin_access(claim), "", "Pod"]);
}

/// Counts the claims whenever somebody looks.
pub(super) fn collect(claims: &Informer<ResourceClaim>) -> Arc<dyn Collect> {
    metrics::collected(Collector(claims.clone()))
}

struct Collector(Informer<ResourceClaim>);

impl Collect for Collector {
    fn collect(&self, text: &mut String) {
        let mut counts: BTreeMap<[&str; 3], f64> = BTreeMap::new();
        for claim in self.0.list() {
            let allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
            let labels = [if allocated { "true" } else { "false" }, admin_access(&claim), source(&claim)];
            *counts.entry(labels).or_default() += 1.0;
        }
        let family = Gauge::new(
            "dynamic_resource_allocation_resource_claims",
            "[ALPHA] Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be 'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty (manually created by a user).",
            &["allocated", "admin_access", "source"],
        );
        counts.iter().for_each(|(labels, count)| family.set(labels, *count));
        family.write(text);
    }
}
