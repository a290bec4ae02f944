//! Rolling back on request of the API that `kubectl rollout undo` used before it changed the template itself.

use std::sync::Arc;

use informer::{Action, EventType};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{Deployments, plan};
use crate::Error;
use crate::common::meta::MetaExt;

/// The revision that is asked for; 0 is the one before.
pub(super) fn requested(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.annotation(plan::ROLLBACK_TO)?.parse().ok()
}

impl Deployments {
    /// Takes the template of an old revision over and removes the request, whether it could be granted or not.
    pub(super) async fn roll_back(
        &self,
        mut deployment: Deployment,
        sets: &[Arc<ReplicaSet>],
        revision: i64,
    ) -> Result<Action, Error> {
        let (new, old) = self.new_and_old(&mut deployment, sets, true).await?;
        let all: Vec<Arc<ReplicaSet>> = old.into_iter().chain(new).collect();
        let wanted = if revision == 0 { plan::last_revision(&all) } else { Some(revision) };
        let target = wanted.and_then(|wanted| all.iter().find(|set| plan::revision(&set.metadata) == Some(wanted)));
        let name = deployment.metadata.name().to_owned();
        let (kind, reason, message) = match (wanted, target) {
            (None, _) => {
                let message = "Unable to find last revision.".to_owned();
                (EventType::Warning, "DeploymentRollbackRevisionNotFound", message)
            }
            (Some(_), None) => {
                let message = "Unable to find the revision to rollback to.".to_owned();
                (EventType::Warning, "DeploymentRollbackRevisionNotFound", message)
            }
            (Some(wanted), Some(set)) => {
                if take_over(&mut deployment, set) {
                    let message = format!("Rolled back deployment {name:?} to revision {wanted}");
                    (EventType::Normal, "DeploymentRollback", message)
                } else {
                    let message =
                        format!("The rollback revision contains the same template as current deployment {name:?}");
                    (EventType::Warning, "DeploymentRollbackTemplateUnchanged", message)
                }
            }
        };
        if let Some(annotations) = &mut deployment.metadata.annotations {
            annotations.remove(plan::ROLLBACK_TO);
        }
        let updated = self.client.update(&deployment).await?;
        self.recorder.event(&updated, kind, reason, message);
        Ok(Action::Done)
    }
}

/// Whether the template was another one.
fn take_over(deployment: &mut Deployment, set: &ReplicaSet) -> bool {
    let Some(mut template) = set.spec.template.clone() else { return false };
    if plan::same_template(&template, &deployment.spec.template) {
        return false;
    }
    if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
        labels.remove(plan::HASH_LABEL);
    }
    deployment.spec.template = template;
    deployment.metadata.annotations = Some(plan::rolled_back_annotations(&deployment.metadata, &set.metadata));
    true
}
