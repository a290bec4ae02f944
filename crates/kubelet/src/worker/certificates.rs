//! Certificates of the pod: making keys, asking for certificates of them, and waiting for an answer.

use client::Client;
use informer::{EventType, Filter, Informer, Informers, Key};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::Worker;
use crate::pod::spec;
use crate::shared::certificates::spread;
use crate::shared::objects::OnChange;
use crate::volumes::{Resolved, references};

/// Keys that are made at the same time: RSA keys take a processor for seconds.
const KEYS_AT_ONCE: usize = 1;

/// What the workers share: this node's requests, which are watched from the first one on.
pub struct Requests {
    informers: Informers,
    node: String,
    on_change: OnChange,
    watched: Mutex<Option<Informer<PodCertificateRequest>>>,
    keys: Semaphore,
}

impl Requests {
    /// Requests of this node. The pods they are for are notified of their changes.
    pub fn new(informers: Informers, node: &str, on_change: OnChange) -> Self {
        let keys = Semaphore::new(KEYS_AT_ONCE);
        Self { informers, node: node.to_owned(), on_change, watched: Mutex::default(), keys }
    }

    fn informer(&self) -> Informer<PodCertificateRequest> {
        let mut watched = self.watched.lock();
        watched
            .get_or_insert_with(|| {
                let informer = self.informers.filtered(Filter::fields(format!("spec.nodeName={}", self.node)));
                let on_change = self.on_change.clone();
                informer.subscribe(move |change: &informer::Change<PodCertificateRequest>| {
                    on_change(&change.object().spec.pod_uid);
                });
                informer
            })
            .clone()
    }

    fn client(&self) -> &Client {
        self.informers.client()
    }
}

impl Worker {
    /// Brings every certificate of the pod's volumes as far as it gets. Says when to look again.
    pub(super) async fn resolve_certificates(
        &mut self,
        resolved: &mut Resolved,
        failures: &mut Vec<(String, String)>,
    ) -> Option<Timestamp> {
        let (pod, shared) = (self.pod.clone(), self.shared.clone());
        let mut due: Option<Timestamp> = None;
        for volume in references::used(&pod) {
            let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten()).enumerate();
            for (index, source) in sources {
                let Some(wanted) = &source.pod_certificate else { continue };
                let requests = shared.requests.informer();
                let place = (volume.name.clone(), index);
                let mut one = self.certificates.remove(&place).unwrap_or_default();
                let found = one.request().and_then(|name| requests.get(&Key::new(spec::namespace(&pod), name)));
                let look = one.look(found.as_deref(), self.now(), spread());
                for (reason, message) in look.events {
                    shared.event(&pod, EventType::Warning, reason, message);
                }
                if look.ask {
                    match self.ask(wanted).await {
                        Ok((key, request)) => one.asked(key, &request, self.now(), spread()),
                        Err(error) => {
                            tracing::warn!(pod = %spec::long_name(&pod), error, "certificate not asked for");
                            failures.push((volume.name.clone(), one.credential().err().unwrap_or(error)));
                        }
                    }
                }
                match one.credential() {
                    Ok(credential) => {
                        resolved.certificates.insert(place.clone(), credential);
                    }
                    Err(why) => failures.push((volume.name.clone(), why)),
                }
                due = due.into_iter().chain(one.due()).min();
                self.certificates.insert(place, one);
            }
        }
        failures.dedup();
        due
    }

    /// Makes a key and a request for it.
    async fn ask(&self, wanted: &PodCertificateProjection) -> Result<(String, PodCertificateRequest), String> {
        let (pod, requests) = (&self.pod, &self.shared.requests);
        let namespace = spec::namespace(pod);
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
        let found: ServiceAccount = requests
            .client()
            .get(namespace, &account)
            .await
            .map_err(|error| format!("while fetching service account: {error}"))?;
        let node = self.shared.me.get(&Key::cluster(&requests.node));
        let node = node.ok_or("while getting node object from local cache: not there yet")?;
        let kind: pki::KeyType = wanted.key_type.parse().map_err(|error: pki::Error| error.to_string())?;
        let turn = requests.keys.acquire().await.map_err(|error| error.to_string())?;
        let made = tokio::task::spawn_blocking(move || pki::PodKey::generate(kind)).await;
        drop(turn);
        let made = made.map_err(|error| error.to_string())?;
        let made = made.map_err(|error| format!("while generating keypair: {error}"))?;
        let request = PodCertificateRequest {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                generate_name: Some("req-".to_owned()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: spec::name(pod).to_owned(),
                    uid: self.uid().to_owned(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: wanted.signer_name.clone(),
                pod_name: spec::name(pod).to_owned(),
                pod_uid: self.uid().to_owned(),
                service_account_name: account,
                service_account_uid: found.metadata.uid.unwrap_or_default(),
                node_name: requests.node.clone(),
                node_uid: node.metadata.uid.clone().unwrap_or_default(),
                max_expiration_seconds: wanted.max_expiration_seconds,
                stub_pkc_s10_request: ByteString(made.request),
                unverified_user_annotations: wanted.user_annotations.clone(),
            },
            status: None,
        };
        let created = requests.client().create(&request).await;
        created.map(|request| (made.key, request)).map_err(|error| format!("while creating on API: {error}"))
    }
}

/// By the volume's name and the source's place in it.
pub(super) type Certificates = std::collections::HashMap<(String, usize), crate::shared::certificates::Projection>;
