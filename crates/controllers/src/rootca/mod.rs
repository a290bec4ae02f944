//! Root CA publisher: every namespace has the ConfigMap `kube-root-ca.crt`, with which pods check the API server.
//!
//! Upstream: rootcacertpublisher.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::Client;
use informer::{Action, Clock, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::pod_control::namespace_ends;
use crate::context::Context;
use crate::metrics;

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// The same words as upstream's: tools compare the object as a whole.
const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Runs the controller, if there is anything to publish.
pub(crate) async fn start(context: Context) {
    let Some(certificates) = context.config.cluster_ca.clone() else { return };
    let controller = RootCa {
        client: context.client.clone(),
        clock: context.clock.clone(),
        namespaces: context.informers.of(),
        maps: context.informers.filtered(informer::Filter::fields(format!("metadata.name={NAME}"))),
        certificates,
    };
    let queue = context.queue();
    informer::feed(&controller.namespaces, &queue, |change| change.after().map(|namespace| namespace.metadata.key()));
    informer::feed(&controller.maps, &queue, |change| [Key::cluster(change.object().metadata.namespace())]);
    futures::join!(controller.namespaces.synced(), controller.maps.synced());
    context.run(controller, queue, 1).await;
}

struct RootCa {
    client: Client,
    clock: Arc<dyn Clock>,
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
    certificates: String,
}

impl Reconciler for RootCa {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let begun = self.clock.monotonic();
        let answer = self.publish(key).await;
        let code = match &answer {
            Ok(_) => 200,
            Err(error) => error.code().unwrap_or(500),
        };
        let code = code.to_string();
        metrics::ROOT_CA_SYNCS.increment(&[&code]);
        metrics::ROOT_CA_SECONDS.observe(&[&code], self.clock.monotonic().saturating_sub(begun).as_secs_f64());
        Ok(answer?)
    }
}

impl RootCa {
    async fn publish(&self, key: &Key) -> Result<Action, client::Error> {
        let Some(namespace) = self.namespaces.get(key) else { return Ok(Action::Done) };
        if namespace.metadata.is_deleting() {
            return Ok(Action::Done);
        }
        let data = BTreeMap::from([("ca.crt".to_owned(), self.certificates.clone())]);
        let answer = match self.maps.get(&Key::new(&key.name, NAME)) {
            None => {
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(NAME.to_owned()),
                        namespace: Some(key.name.clone()),
                        annotations: Some(BTreeMap::from([(DESCRIPTION.to_owned(), DESCRIPTION_TEXT.to_owned())])),
                        ..ObjectMeta::default()
                    },
                    data: Some(data),
                    ..ConfigMap::default()
                };
                self.client.create(&map).await
            }
            Some(map)
                if map.data.as_ref() == Some(&data)
                    && map.metadata.annotation(DESCRIPTION) == Some(DESCRIPTION_TEXT) =>
            {
                return Ok(Action::Done);
            }
            Some(map) => {
                let mut changed = ConfigMap { data: Some(data), ..ConfigMap::clone(&map) };
                let annotations = changed.metadata.annotations.get_or_insert_default();
                annotations.insert(DESCRIPTION.to_owned(), DESCRIPTION_TEXT.to_owned());
                self.client.update(&changed).await
            }
        };
        match answer {
            Err(error) if !error.is_already_exists() && !namespace_ends(&error) => Err(error),
            _ => Ok(Action::Done),
        }
    }
}
