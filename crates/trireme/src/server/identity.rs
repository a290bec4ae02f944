//! Who the parts of the control plane are, when they talk to the API server in their own process.

use std::sync::Arc;

use client::Client;
use machinery::rest::{Handler, User};

/// Makes in-process clients.
#[derive(Clone)]
pub struct Identities {
    handler: Arc<dyn Handler>,
}

impl Identities {
    /// Clients of this API server.
    pub fn new(handler: Arc<dyn Handler>) -> Self {
        Self { handler }
    }

    /// A component such as `kube-scheduler`, as `system:kube-scheduler`.
    pub fn component(&self, name: &str) -> Client {
        self.client(User::new(format!("system:{name}"), []), name)
    }

    /// A controller with a service account of its own in `kube-system`.
    pub fn controller(&self, name: &str) -> Client {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        self.client(User::new(format!("system:serviceaccount:kube-system:{name}"), groups), name)
    }

    fn client(&self, user: User, agent: &str) -> Client {
        Client::in_process(Arc::clone(&self.handler), user)
            .with_user_agent(&format!("{agent}/{}", env!("CARGO_PKG_VERSION")))
    }
}
