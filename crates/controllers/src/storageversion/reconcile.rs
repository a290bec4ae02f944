//! Observes, applies what `plan` decides, and reports.

use client::DeleteOptions;
use informer::{Action, Filter, Informer, Key, Reconciler};
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use k8s_openapi::api::coordination::v1::Lease;

use super::plan::{Plan, plan};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};
use crate::inputs::present;

const GROUP_VERSION: &str = "/apis/internal.apiserver.k8s.io/v1alpha1";
/// The leases by which API servers show that they live.
const IDENTITIES: &str = "apiserver.kubernetes.io/identity=kube-apiserver";

/// Runs the controller, if the API server knows storage versions.
pub(crate) async fn start(context: Context) {
    if context.tools.client.raw(GROUP_VERSION).await.is_err() {
        tracing::debug!("the API server does not serve storage versions: nothing to collect");
        return;
    }
    let identities =
        Filter { namespace: "kube-system".to_owned(), label_selector: IDENTITIES.to_owned(), ..Filter::default() };
    let mut inputs = context.inputs();
    let controller = StorageVersions {
        tools: context.tools.clone(),
        versions: inputs.watch(present),
        servers: inputs.read_some(identities),
    };
    let versions = controller.versions.clone();
    inputs.feed(&controller.servers, move |change| {
        let gone = change.after().is_none();
        let all = if gone { versions.list() } else { Vec::new() };
        all.into_iter().map(|version| version.metadata.key()).collect::<Vec<_>>()
    });
    inputs.run(controller, 1).await;
}

struct StorageVersions {
    tools: Tools,
    versions: Informer<StorageVersion>,
    servers: Informer<Lease>,
}

impl Reconciler for StorageVersions {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(version) = self.versions.get(key) else { return Ok(Action::Done) };
        let lives = |server: &str| self.servers.get(&Key::new("kube-system", server)).is_some();
        let outcome = match plan(&version, lives, self.tools.clock.now()) {
            Plan::Keep => Ok(()),
            Plan::Delete => {
                let options = DeleteOptions { uid: version.metadata.uid.clone(), ..DeleteOptions::default() };
                self.tools.client.delete::<StorageVersion>("", &key.name, &options).await
            }
            Plan::Write(status) => {
                let changed = StorageVersion { status: Some(*status), ..StorageVersion::clone(&version) };
                self.tools.client.update_status(&changed).await.map(drop)
            }
        };
        match outcome {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
