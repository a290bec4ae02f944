//! Claims: reservations of pods that are gone or done are taken back, and claims that were made for such pods are deleted.

use client::DeleteOptions;
use informer::{Action, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};

use super::plan::{self, FINALIZER, Need, Plan};
use crate::Error;
use crate::context::Tools;

pub(super) struct Claims {
    pub(super) tools: Tools,
    pub(super) pods: Informer<Pod>,
    pub(super) claims: Informer<ResourceClaim>,
}

impl Reconciler for Claims {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::Done) };
        let mut remaining = Vec::new();
        for consumer in claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten()) {
            if self.needs(key, consumer).await? {
                remaining.push(consumer.clone());
            }
        }
        let owner = plan::owning_pod(&claim).and_then(|name| self.pods.get(&Key::new(&key.namespace, name)));
        let plan = plan::plan(&claim, remaining, owner.as_deref());
        self.apply(key, &claim, plan).await?;
        Ok(Action::Done)
    }
}

impl Claims {
    /// Whether a consumer still needs the claim.
    async fn needs(&self, key: &Key, consumer: &ResourceClaimConsumerReference) -> Result<bool, Error> {
        let pod = self.pods.get(&Key::new(&key.namespace, &consumer.name));
        let need = match plan::need(consumer, pod.as_deref()) {
            // The scheduler may be about to start it: nobody may take its devices away because a cache is late.
            Need::Unknown => match self.tools.client.get::<Pod>(&key.namespace, &consumer.name).await {
                Ok(pod) => plan::need(consumer, Some(&pod)),
                Err(error) if error.is_not_found() => Need::Gone,
                Err(error) => return Err(error.into()),
            },
            known => known,
        };
        Ok(need == Need::Keeps)
    }

    /// Every write is one of the claim as it was seen: if anything else changes meanwhile, this fails and everything is looked at again.
    async fn apply(&self, key: &Key, claim: &ResourceClaim, plan: Plan) -> Result<(), Error> {
        let mut current = claim.clone();
        if let Some(reservation) = plan.status {
            let status = current.status.get_or_insert_default();
            status.reserved_for = Some(reservation.reserved_for).filter(|list| !list.is_empty());
            status.allocation = reservation.allocation;
            current = self.tools.client.update_status(&current).await?;
        }
        if plan.release {
            current.metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer != FINALIZER);
            self.tools.client.update(&current).await?;
        }
        if plan.delete {
            let options = DeleteOptions { uid: claim.metadata.uid.clone(), ..DeleteOptions::default() };
            match self.tools.client.delete::<ResourceClaim>(&key.namespace, &key.name, &options).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
