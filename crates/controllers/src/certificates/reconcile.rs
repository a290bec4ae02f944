//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;
use std::time::Duration;

use client::DeleteOptions;
use informer::{Action, Informer, Key, Reconciler, clock};
use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::plan;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};
use crate::inputs::{Inputs, present};
use crate::{Error, Signer};

const WORKERS: usize = 5;

/// Runs the approver, if requests can be read.
pub(crate) async fn start_approver(context: Context) {
    let Some(signer) = context.config.signer.clone() else { return };
    let mut inputs = context.inputs();
    let requests = Requests::new(&context, &mut inputs);
    inputs.run(Approver { requests, signer }, WORKERS).await;
}

/// Runs the signer, if there is one.
pub(crate) async fn start_signer(context: Context) {
    let Some(signer) = context.config.signer.clone() else { return };
    let mut inputs = context.inputs();
    let requests = Requests::new(&context, &mut inputs);
    inputs.run(Signing { requests, signer }, WORKERS).await;
}

pub(crate) async fn start_cleaner(context: Context) {
    let mut inputs = context.inputs();
    let requests = Requests::new(&context, &mut inputs);
    inputs.run(Cleaner { requests }, 1).await;
}

/// The requests, and what is done to them.
pub(super) struct Requests {
    tools: Tools,
    pub(super) all: Informer<CertificateSigningRequest>,
}

impl Requests {
    /// Every request that comes or changes brings a turn.
    pub(super) fn new(context: &Context, inputs: &mut Inputs) -> Self {
        Self { tools: context.tools.clone(), all: inputs.watch(present) }
    }

    /// A request that nobody has judged yet.
    pub(super) fn pending(&self, key: &Key) -> Option<Arc<CertificateSigningRequest>> {
        self.all.get(key).filter(|request| plan::is_pending(request))
    }

    pub(super) async fn approve(&self, request: &CertificateSigningRequest, message: &str) -> Result<(), Error> {
        let approved = plan::approved(request, message, self.tools.clock.now());
        let name = request.metadata.name();
        self.tools
            .client
            .update_subresource::<CertificateSigningRequest, _, CertificateSigningRequest>(
                "", name, "approval", &approved,
            )
            .await?;
        Ok(())
    }
}

struct Approver {
    requests: Requests,
    signer: Arc<dyn Signer>,
}

impl Reconciler for Approver {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(request) = self.requests.pending(key) else { return Ok(Action::Done) };
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
                self.requests.approve(&request, message).await?;
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
        let answer = self.requests.tools.client.create(&review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

struct Signing {
    requests: Requests,
    signer: Arc<dyn Signer>,
}

impl Reconciler for Signing {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(request) = self.requests.all.get(key).filter(|request| plan::wants_signature(request)) else {
            return Ok(Action::Done);
        };
        let mut changed = CertificateSigningRequest::clone(&request);
        let now = self.requests.tools.clock.now();
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
        self.requests.tools.client.update_status(&changed).await?;
        Ok(Action::Done)
    }
}

struct Cleaner {
    requests: Requests,
}

impl Reconciler for Cleaner {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(request) = self.requests.all.get(key) else { return Ok(Action::Done) };
        let left = clock::since(plan::useless_at(&request), self.requests.tools.clock.now());
        if !left.is_zero() {
            return Ok(Action::After(left + Duration::from_secs(1)));
        }
        let options = DeleteOptions { uid: request.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.requests.tools.client.delete::<CertificateSigningRequest>("", &key.name, &options).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
