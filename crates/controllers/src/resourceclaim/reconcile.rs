//! Observes, applies what `plan` decides, and reports.

use informer::{Echoes, Informer, Key};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};

use super::claims::Claims;
use super::plan::wants_claims;
use super::pods::Pods;
use super::{figures, plan};
use crate::common::meta::MetaExt;
use crate::common::resource_claims;
use crate::context::Context;
use crate::inputs::{Inputs, present};

const WORKERS: usize = 10;
/// The index of pods by the claims they have.
const CLAIM_INDEX: &str = "resourceClaim";
/// The index of pods by the templates they name.
const TEMPLATE_INDEX: &str = "resourceClaimTemplate";
/// What the queue of claims is called in metrics. Upstream has one queue for both.
const CLAIM_QUEUE: &str = "resource_claim_claims";

pub(crate) async fn start(context: Context) {
    let (mut inputs, claim_inputs) = (context.inputs(), context.inputs_of(context.queue_named(CLAIM_QUEUE)));
    let (pods, claims, templates) = (inputs.read::<Pod>(), inputs.read(), inputs.read());
    pods.add_index(CLAIM_INDEX, |pod| {
        let keys = resource_claims::names(pod).into_iter().map(|name| Key::new(pod.metadata.namespace(), name));
        keys.map(|key| key.to_string()).collect()
    });
    pods.add_index(TEMPLATE_INDEX, |pod| templates_of(pod).iter().map(Key::to_string).collect());
    listen(&pods, &claims, &templates, (&inputs, &claim_inputs));
    let _figures = figures::collect(&claims);
    let of_pods = Pods {
        tools: context.tools.clone(),
        echoes: Echoes::new(&claims, context.tools.clock.clone()),
        pods: pods.clone(),
        claims: claims.clone(),
        templates,
    };
    let of_claims = Claims { tools: context.tools.clone(), pods, claims };
    inputs.filled().await;
    futures::join!(inputs.run(of_pods, WORKERS), claim_inputs.run(of_claims, WORKERS));
}

fn listen(
    pods: &Informer<Pod>,
    claims: &Informer<ResourceClaim>,
    templates: &Informer<ResourceClaimTemplate>,
    (of_pods, of_claims): (&Inputs, &Inputs),
) {
    of_pods.feed(pods, |change| {
        let wanting = change.after().filter(|pod| wants_claims(pod));
        wanting.map(|pod| pod.metadata.key())
    });
    of_claims.feed(pods, |change| {
        let over = change.after().is_none_or(|pod| plan::is_done(pod));
        if over { reservable(change.object()) } else { Vec::new() }
    });
    of_claims.feed(claims, present);
    let users = pods.clone();
    of_pods.feed(claims, move |change| keys(users.by_index(CLAIM_INDEX, &change.object().metadata.key().to_string())));
    let users = pods.clone();
    of_pods.feed(templates, move |change| {
        let key = change.after().map(|template| template.metadata.key().to_string());
        keys(key.map(|key| users.by_index(TEMPLATE_INDEX, &key)).unwrap_or_default())
    });
}

fn keys(pods: Vec<std::sync::Arc<Pod>>) -> Vec<Key> {
    pods.iter().filter(|pod| wants_claims(pod)).map(|pod| pod.metadata.key()).collect()
}

fn templates_of(pod: &Pod) -> Vec<Key> {
    let names = resource_claims::of_pod(pod).iter().filter_map(|claim| claim.resource_claim_template_name.clone());
    names.map(|name| Key::new(pod.metadata.namespace(), name)).collect()
}

/// The claims that may be reserved for a pod, that of its extended resources included.
fn reservable(pod: &Pod) -> Vec<Key> {
    let extended = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    let extended = extended.map(|status| status.resource_claim_name.clone());
    let names = resource_claims::names(pod).into_iter().chain(extended);
    names.map(|name| Key::new(pod.metadata.namespace(), name)).collect()
}
