//! The proxy's rules in the namespaces of a test.

use proxy::rules::Transaction;

use crate::net::Net;

/// What the proxy does to a node.
pub trait Rules {
    /// Applies a change of the proxy's rules on the node, as the proxy does.
    fn apply(&self, transaction: &Transaction);

    /// The proxy's table as `nft -j` shows it.
    fn listed(&self, family: &str) -> Vec<u8>;
}

impl Rules for Net {
    fn apply(&self, transaction: &Transaction) {
        // Nobody starts a program that has nothing to do: a test of changes wants many of them.
        let nft = |script: String| {
            if !script.is_empty() {
                self.nft(&script)
            }
        };
        let change = |elements: node::nft::Elements| {
            self.inside("node", move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(node::nft::change(elements)).unwrap();
            });
        };
        nft(transaction.prepare());
        match transaction.elements() {
            Some(elements) => change(elements),
            None => nft(transaction.update()),
        }
        change(transaction.last());
        nft(transaction.sweep());
    }

    fn listed(&self, family: &str) -> Vec<u8> {
        self.table(family, "trireme-proxy")
    }
}
