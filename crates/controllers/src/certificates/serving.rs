//! Approves the serving certificates of kubelets, for the addresses that their Nodes have.
//!
//! Upstream leaves these requests to the administrator, and its API server takes any certificate of a kubelet. Ours verifies
//! kubelets, so somebody has to vouch for them: a node may have a certificate in its own name for what its own Node says.
//! Whatever asks for more waits for a person.

use std::sync::Arc;

use informer::{Action, Change, Informer, Key, Reconciler};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;

use super::plan;
use super::reconcile::Requests;
use crate::common::meta::MetaExt;
use crate::context::Context;
use crate::{Error, Signer};

/// Runs the approver, if requests can be read.
pub(crate) async fn start(context: Context) {
    let Some(signer) = context.config.signer.clone() else { return };
    let mut inputs = context.inputs();
    let requests = Requests::new(&context, &mut inputs);
    let pending = requests.all.clone();
    let nodes = inputs.watch(move |change: &Change<Node>| {
        // A request may be older than the addresses it is about. Most changes to Nodes are heartbeats.
        let addresses = |node: &Arc<Node>| node.status.as_ref().and_then(|status| status.addresses.clone());
        let same = change.before().map(addresses) == change.after().map(addresses);
        let user = plan::node_user(change.object().metadata.name());
        let asks = move |request: &Arc<CertificateSigningRequest>| {
            request.spec.username.as_deref() == Some(user.as_str()) && plan::is_pending(request)
        };
        let asking = if same { Vec::new() } else { pending.list() };
        asking.into_iter().filter(asks).map(|request| request.metadata.key()).collect::<Vec<_>>()
    });
    inputs.run(Approver { requests, nodes, signer }, 1).await;
}

struct Approver {
    requests: Requests,
    nodes: Informer<Node>,
    signer: Arc<dyn Signer>,
}

impl Reconciler for Approver {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(request) = self.requests.pending(key) else { return Ok(Action::Done) };
        let Ok(content) = self.signer.inspect(&request.spec.request.0) else { return Ok(Action::Done) };
        let Some(name) = plan::serving_node(&request, &content) else { return Ok(Action::Done) };
        let Some(node) = self.nodes.get(&Key::cluster(name)) else { return Ok(Action::Done) };
        if plan::names_only_its_own(&content, &node) {
            let message = "Auto approving kubelet serving certificate for the addresses of its Node.";
            self.requests.approve(&request, message).await?;
        }
        Ok(Action::Done)
    }
}
