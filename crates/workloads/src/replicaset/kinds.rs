//! The two kinds that are sets of replicas.

use std::future::Future;

use client::{Client, Kind};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::selector::label::LabelSelector;

use super::status::{Observed, counts, failure};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::selector;

/// The condition of both kinds.
const FAILURE: &str = "ReplicaFailure";
/// A lost race for the status is run again once: most are with the API server's own defaults or a user's edit.
const TRIES: usize = 2;

/// A set of replicas.
pub(super) trait Replicated: Kind {
    fn replicas(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn template(&self) -> PodTemplateSpec;
    /// `None` if it cannot be understood.
    fn selector(&self) -> Option<LabelSelector>;
    /// The object with the status that the observation gives it; `None` if that is the one it has.
    fn with_status(&self, observed: &Observed<'_>) -> Option<Self>;

    /// Writes the status if it changed.
    fn write_status(&self, client: &Client, observed: &Observed<'_>) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            let Some(mut changed) = self.with_status(observed) else { return Ok(()) };
            for attempt in 1.. {
                match client.update_status(&changed).await {
                    Ok(_) => break,
                    Err(error) if error.is_conflict() && attempt < TRIES => {
                        let (meta, seen) = (changed.metadata(), self.metadata());
                        let fresh = client.get::<Self>(meta.namespace(), meta.name()).await?;
                        // Only what was looked at may be claimed to be observed.
                        if fresh.metadata().generation != seen.generation || fresh.metadata().uid != seen.uid {
                            return Err(error.into());
                        }
                        // All of it: a write of the status writes labels and annotations too, and somebody has just changed them.
                        let Some(again) = fresh.with_status(observed) else { return Ok(()) };
                        changed = again;
                    }
                    Err(error) if error.is_not_found() => break,
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        }
    }
}

impl Replicated for ReplicaSet {
    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or_default()
    }

    fn template(&self) -> PodTemplateSpec {
        self.spec.template.clone().unwrap_or_default()
    }

    fn selector(&self) -> Option<LabelSelector> {
        selector::parse(&self.spec.selector)
    }

    fn with_status(&self, observed: &Observed<'_>) -> Option<Self> {
        let counts = counts(observed, &self.template(), self.min_ready_seconds());
        let old = self.status.clone().unwrap_or_default();
        let mut conditions = old.conditions.clone().unwrap_or_default();
        match failure(observed, self.replicas()) {
            Some((reason, message)) => {
                if !conditions.iter().any(|condition| condition.type_.as_deref() == Some(FAILURE)) {
                    conditions.push(ReplicaSetCondition {
                        type_: Some(FAILURE.to_owned()),
                        status: Some("True".to_owned()),
                        reason: Some(reason.to_owned()),
                        message: Some(message),
                        last_transition_time: Some(Time(observed.now)),
                    });
                }
            }
            None => conditions.retain(|condition| condition.type_.as_deref() != Some(FAILURE)),
        }
        let new = ReplicaSetStatus {
            replicas: counts.replicas,
            fully_labeled_replicas: nonzero(counts.fully_labeled),
            ready_replicas: nonzero(counts.ready),
            available_replicas: nonzero(counts.available),
            terminating_replicas: Some(counts.terminating),
            observed_generation: self.metadata.generation,
            conditions: (!conditions.is_empty()).then_some(conditions),
        };
        (self.status.is_none() || new != old).then(|| Self { status: Some(new), ..self.clone() })
    }
}

impl Replicated for ReplicationController {
    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    fn template(&self) -> PodTemplateSpec {
        self.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default()
    }

    fn selector(&self) -> Option<LabelSelector> {
        self.spec.as_ref()?.selector.as_ref().map(selector::of_map)
    }

    fn with_status(&self, observed: &Observed<'_>) -> Option<Self> {
        let counts = counts(observed, &self.template(), self.min_ready_seconds());
        let old = self.status.clone().unwrap_or_default();
        let mut conditions = old.conditions.clone().unwrap_or_default();
        match failure(observed, self.replicas()) {
            Some((reason, message)) => {
                if !conditions.iter().any(|condition| condition.type_ == FAILURE) {
                    conditions.push(ReplicationControllerCondition {
                        type_: FAILURE.to_owned(),
                        status: "True".to_owned(),
                        reason: Some(reason.to_owned()),
                        message: Some(message),
                        last_transition_time: Some(Time(observed.now)),
                    });
                }
            }
            None => conditions.retain(|condition| condition.type_ != FAILURE),
        }
        let new = ReplicationControllerStatus {
            replicas: counts.replicas,
            fully_labeled_replicas: nonzero(counts.fully_labeled),
            ready_replicas: nonzero(counts.ready),
            available_replicas: nonzero(counts.available),
            observed_generation: self.metadata.generation,
            conditions: (!conditions.is_empty()).then_some(conditions),
        };
        (self.status.is_none() || new != old).then(|| Self { status: Some(new), ..self.clone() })
    }
}

/// Go leaves zeros out, and so do we: otherwise the comparison with what was read would never be equal.
fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
