//! CertificateSigningRequests: approves those of kubelets for themselves, signs approved ones, and cleans up old ones.
//!
//! Controllers of one subject: [`start_approver`], [`start_signer`], [`start_cleaner`], and [`serving`]'s. `plan` decides and is pure; the
//! signing itself is the [`Signer`](crate::Signer)'s. Upstream: csrapproving, csrsigning, csrcleaner.

mod plan;
pub(crate) mod serving;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, DeleteOptions};
use informer::{Action, Clock, Informer, Key, Reconciler, clock};
use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use crate::common::meta::MetaExt;
use crate::context::Context;
use crate::{Error, Signer};

const WORKERS: usize = 5;

/// Runs the approver, if requests can be read.
pub(crate) async fn start_approver(context: Context) {
    let Some(signer) = context.config.signer.clone() else { return };
    let requests = context.informers.of();
    let approver = Approver { client: context.client.clone(), clock: context.clock.clone(), requests, signer };
    let queue = context.queue();
    informer::feed(&approver.requests, &queue, |change| change.after().map(|request| request.metadata.key()));
    approver.requests.synced().await;
    context.run(approver, queue, WORKERS).await;
}

/// Runs the signer, if there is one.
pub(crate) async fn start_signer(context: Context) {
    let Some(signer) = context.config.signer.clone() else { return };
    let requests = context.informers.of();
    let signing = Signing { client: context.client.clone(), clock: context.clock.clone(), requests, signer };
    let queue = context.queue();
    informer::feed(&signing.requests, &queue, |change| change.after().map(|request| request.metadata.key()));
    signing.requests.synced().await;
    context.run(signing, queue, WORKERS).await;
}

/// Runs the cleaner.
pub(crate) async fn start_cleaner(context: Context) {
    let requests = context.informers.of();
    let cleaner = Cleaner { client: context.client.clone(), clock: context.clock.clone(), requests };
    let queue = context.queue();
    informer::feed(&cleaner.requests, &queue, |change| change.after().map(|request| request.metadata.key()));
    cleaner.requests.synced().await;
    context.run(cleaner, queue, 1).await;
}

struct Approver {
    client: Client,
    clock: Arc<dyn Clock>,
    requests: Informer<CertificateSigningRequest>,
    signer: Arc<dyn Signer>,
}

impl Reconciler for Approver {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(request) = self.requests.get(key).filter(|request| plan::is_pending(request)) else {
            return Ok(Action::Done);
        };
        // What cannot be read cannot be recognized, and waits for a person.
        let Ok(content) = self.signer.inspect(&request.spec.request.0) else { return Ok(Action::Done) };
        if !plan::is_kubelet_client(&request, &content) {
            return Ok(Action::Done);
        }
        let own = request.spec.username.as_deref() == Some(content.common_name.as_str());
        let kinds = [
            ("selfnodeclient", own, "Auto approving self kubelet client certificate after SubjectAccessReview."),
            ("nodeclient", true, "Auto approving kubelet client certificate after SubjectAccessReview."),
        ];
        for (subresource, applies, message) in kinds {
            if applies && self.may(&request, subresource).await? {
                let approved = plan::approved(&request, message, self.clock.now());
                let (name, body) = (key.name.as_str(), &approved);
                self.client
                    .update_subresource::<CertificateSigningRequest, _, CertificateSigningRequest>(
                        "", name, "approval", body,
                    )
                    .await?;
                return Ok(Action::Done);
            }
        }
        Ok(Action::Done)
    }
}

impl Approver {
    /// Whether whoever made the request may have such requests approved without a person.
    async fn may(&self, request: &CertificateSigningRequest, subresource: &str) -> Result<bool, Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: request.spec.username.clone(),
                uid: request.spec.uid.clone(),
                groups: request.spec.groups.clone(),
                extra: request.spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".to_owned()),
                    version: Some("*".to_owned()),
                    resource: Some("certificatesigningrequests".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    verb: Some("create".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = self.client.create(&review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

struct Signing {
    client: Client,
    clock: Arc<dyn Clock>,
    requests: Informer<CertificateSigningRequest>,
    signer: Arc<dyn Signer>,
}

impl Reconciler for Signing {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(request) = self.requests.get(key).filter(|request| plan::wants_signature(request)) else {
            return Ok(Action::Done);
        };
        let mut changed = CertificateSigningRequest::clone(&request);
        let now = self.clock.now();
        let judged = self.signer.inspect(&request.spec.request.0).and_then(|content| plan::judge(&request, &content));
        match judged {
            Err(message) => plan::fail(&mut changed, "SignerValidationFailure", &message, now),
            Ok(()) => {
                let usages = request.spec.usages.clone().unwrap_or_default();
                let signed = self.signer.sign(&request.spec.request.0, &usages, plan::lifetime(&request));
                let certificate = signed.map_err(|reason| Error::Unusable { key: key.clone(), reason })?;
                changed.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
            }
        }
        self.client.update_status(&changed).await?;
        Ok(Action::Done)
    }
}

struct Cleaner {
    client: Client,
    clock: Arc<dyn Clock>,
    requests: Informer<CertificateSigningRequest>,
}

impl Reconciler for Cleaner {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(request) = self.requests.get(key) else { return Ok(Action::Done) };
        let left = clock::since(plan::useless_at(&request), self.clock.now());
        if !left.is_zero() {
            return Ok(Action::After(left + Duration::from_secs(1)));
        }
        let options = DeleteOptions { uid: request.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.client.delete::<CertificateSigningRequest>("", &key.name, &options).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
