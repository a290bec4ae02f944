//! Pods: each gets the claims that its templates promise, and a reservation of those that were allocated before it was bound.

use std::collections::BTreeMap;

use client::Patch;
use informer::{Action, Echoes, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use serde_json::{Value, json};

use super::plan::wants_claims;
use super::{figures, plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pods;
use crate::common::resource_claims::{self, Named};
use crate::context::Tools;

/// The manager of the fields of a pod's status.
const MANAGER: &str = "ResourceClaimController";

pub(super) struct Pods {
    pub(super) tools: Tools,
    /// A claim has a random name: one that was made and is not seen yet would be made again.
    pub(super) echoes: Echoes<ResourceClaim>,
    pub(super) pods: Informer<Pod>,
    pub(super) claims: Informer<ResourceClaim>,
    pub(super) templates: Informer<ResourceClaimTemplate>,
}

impl Reconciler for Pods {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| wants_claims(pod)) else { return Ok(Action::Done) };
        if !self.echoes.observed(key) {
            return Ok(Action::After(informer::UNOBSERVED));
        }
        let mut made = BTreeMap::new();
        for claim in resource_claims::of_pod(&pod) {
            match self.ensure(key, &pod, claim).await {
                Ok(name) => made.extend(name.map(|name| (claim.name.clone(), name))),
                Err(reason) => {
                    let message = format!("PodResourceClaim {}: {reason}", claim.name);
                    self.tools.recorder.event(
                        &*pod,
                        EventType::Warning,
                        "FailedResourceClaimCreation",
                        message.clone(),
                    );
                    return Err(Error::Waiting(format!("pod {key}, {message}")));
                }
            }
        }
        if !made.is_empty() {
            self.write_names(key, plan::statuses(&pod, made)).await?;
        }
        if pods::node_name(&pod).is_some() {
            self.reserve(key, &pod).await?;
        }
        // Before that, reservations are the scheduler's.
        Ok(Action::Done)
    }
}

impl Pods {
    /// Makes a claim of the pod if it lacks; answers the name that the pod's status should say, if it does not.
    async fn ensure(&self, key: &Key, pod: &Pod, claim: &PodResourceClaim) -> Result<Option<String>, String> {
        let checking = |error: client::Error| format!("checking claim existence: {error}");
        match resource_claims::named(pod, claim) {
            Named::Given(_) | Named::NotNeeded => return Ok(None),
            Named::Made(name) if self.exists(pod, name).await.map_err(checking)? => return Ok(None),
            Named::Made(_) | Named::NotMade => {}
            Named::Unsupported => {
                return Err(format!(
                    "checking for claim before creating it: pod \"{key}\", spec.resourceClaim {:?}: none of the supported fields are set",
                    claim.name
                ));
            }
        }
        // One may have been made by somebody who did not live to say so.
        let known = self.claims.by_owner(pod.metadata.uid());
        if let Some(known) = known.iter().find(|known| plan::is_made_for(known, claim)) {
            return Ok(Some(known.metadata.name().to_owned()));
        }
        let name = claim.resource_claim_template_name.as_deref().unwrap_or_default();
        let template = self.templates.get(&Key::new(&key.namespace, name)).ok_or_else(|| {
            format!("resource claim template {name:?}: resourceclaimtemplate.resource.k8s.io {name:?} not found")
        })?;
        let wanted = plan::generated(pod, claim, &template);
        let answer = self.tools.client.create(&wanted).await;
        figures::created(&wanted, answer.is_ok());
        // Upstream names the claim here, which has no name yet.
        let created = answer.map_err(|error| format!("create ResourceClaim : {error}"))?;
        self.echoes.wrote(key, &created);
        Ok(Some(created.metadata.name().to_owned()))
    }

    /// Whether a claim that was made for the pod is still there.
    async fn exists(&self, pod: &Pod, name: &str) -> Result<bool, client::Error> {
        if let Some(claim) = self.claims.get(&Key::new(pod.metadata.namespace(), name)) {
            return Ok(resource_claims::is_for_pod(&claim, pod));
        }
        match self.tools.client.get::<ResourceClaim>(pod.metadata.namespace(), name).await {
            Ok(claim) => Ok(resource_claims::is_for_pod(&claim, pod)),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes the names of the claims into the pod's status.
    async fn write_names(&self, key: &Key, names: BTreeMap<String, String>) -> Result<(), Error> {
        let statuses: Vec<Value> =
            names.into_iter().map(|(name, claim)| json!({"name": name, "resourceClaimName": claim})).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": key.name, "namespace": key.namespace},
            "status": {"resourceClaimStatuses": statuses},
        });
        let patch = Patch::Apply { manager: MANAGER.to_owned(), force: true, object };
        match self.tools.client.patch_status::<Pod>(&key.namespace, &key.name, &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Reserves what is allocated for a pod that was bound without the scheduler's help.
    async fn reserve(&self, key: &Key, pod: &Pod) -> Result<(), Error> {
        for claim in resource_claims::of_pod(pod) {
            let (name, made) = match resource_claims::named(pod, claim) {
                Named::Given(name) => (name, false),
                Named::Made(name) => (name, true),
                Named::NotMade | Named::NotNeeded | Named::Unsupported => continue,
            };
            let Some(known) = self.claims.get(&Key::new(&key.namespace, name)) else { continue };
            if made && !resource_claims::is_for_pod(&known, pod) {
                continue;
            }
            let allocated = known.status.as_ref().is_some_and(|status| status.allocation.is_some());
            if !allocated || resource_claims::is_reserved_for(&known, pod) {
                continue;
            }
            let mut changed = ResourceClaim::clone(&known);
            let status = changed.status.get_or_insert_default();
            status.reserved_for.get_or_insert_default().push(plan::consumer(pod));
            self.tools.client.update_status(&changed).await?;
        }
        Ok(())
    }
}
