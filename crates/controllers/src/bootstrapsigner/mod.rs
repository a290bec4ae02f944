//! Bootstrap signer: signs the public ConfigMap `cluster-info` with every bootstrap token, so that a joining node that knows a token can trust it.
//!
//! `plan` decides and is pure. Upstream: Signer of the bootstrap package.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use informer::{Action, Clock, Filter, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::Error;
use crate::context::Context;

const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let maps = Filter {
        namespace: NAMESPACE.to_owned(),
        field_selector: format!("metadata.name={NAME}"),
        ..Filter::default()
    };
    let controller = BootstrapSigner {
        client: context.client.clone(),
        clock: context.clock.clone(),
        tokens: context.informers.filtered(bootstrap_tokens()),
        maps: context.informers.filtered(maps),
    };
    let queue = context.queue();
    informer::feed(&controller.maps, &queue, |change| change.after().map(|_| Key::new(NAMESPACE, NAME)));
    informer::feed(&controller.tokens, &queue, |_| [Key::new(NAMESPACE, NAME)]);
    futures::join!(controller.tokens.synced(), controller.maps.synced());
    context.run(controller, queue, 1).await;
}

/// The bootstrap tokens of a cluster.
pub(crate) fn bootstrap_tokens() -> Filter {
    Filter {
        namespace: "kube-system".to_owned(),
        field_selector: "type=bootstrap.kubernetes.io/token".to_owned(),
        ..Filter::default()
    }
}

struct BootstrapSigner {
    client: Client,
    clock: Arc<dyn Clock>,
    tokens: Informer<Secret>,
    maps: Informer<ConfigMap>,
}

impl Reconciler for BootstrapSigner {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(map) = self.maps.get(key) else { return Ok(Action::Done) };
        let now = self.clock.now();
        let tokens = plan::tokens(&self.tokens.list(), now);
        if let Some(data) = plan::signed(map.data.as_ref(), &tokens) {
            let changed = ConfigMap { data: Some(data), ..ConfigMap::clone(&map) };
            match self.client.update(&changed).await {
                // The next version of it comes through the watch.
                Err(error) if !error.is_conflict() && !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        // A token that expires stops signing then, not when somebody cleans it up.
        let next = tokens.iter().filter_map(|token| token.expires).map(|at| informer::clock::since(at, now)).min();
        Ok(Action::after(next.map(|left| left + Duration::from_secs(1))))
    }
}
