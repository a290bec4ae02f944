//! Who the parts of the control plane are when they talk to the API server.

use std::sync::Arc;

use client::Client;
use machinery::rest::{Handler, User};

use super::accounts::Accounts;

#[derive(Clone)]
pub enum Identities {
    /// Beside the API server, in its process: each part is whom it is said to be.
    InProcess(Arc<dyn Handler>),
    /// Elsewhere: every part is who the kubeconfig says.
    Remote(Client),
    /// Elsewhere: every part is who the kubeconfig says, but controllers, each of which is an account of its own.
    Accounts(Client, Arc<Accounts>),
}

impl Identities {
    /// A component such as `kube-scheduler`, as `system:kube-scheduler`.
    pub fn component(&self, name: &str) -> Client {
        self.client(name, || User::new(format!("system:{name}"), []))
    }

    /// Who may do everything: for what a cluster of ours has from the beginning.
    pub fn administrator(&self) -> Client {
        self.client("trireme", || User::new("system:trireme", ["system:masters"]))
    }

    /// The kubelet of a node.
    pub fn node(&self, name: &str) -> Client {
        self.client("kubelet", || User::new(format!("system:node:{name}"), ["system:nodes"]))
    }

    /// A controller with a service account of its own in `kube-system`.
    pub fn controller(&self, name: &str) -> Client {
        if let Self::Accounts(_, accounts) = self {
            match accounts.client(name) {
                Ok(client) => return client.with_user_agent(&format!("{name}/{}", env!("CARGO_PKG_VERSION"))),
                Err(error) => tracing::error!("{name} acts as the controller manager: {error}"),
            }
        }
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        self.client(name, || User::new(format!("system:serviceaccount:kube-system:{name}"), groups))
    }

    fn client(&self, agent: &str, user: impl FnOnce() -> User) -> Client {
        let client = match self {
            Self::InProcess(handler) => Client::in_process(Arc::clone(handler), user()),
            Self::Remote(client) | Self::Accounts(client, _) => client.clone(),
        };
        client.with_user_agent(&format!("{agent}/{}", env!("CARGO_PKG_VERSION")))
    }
}
