//! ComponentStatus: how the parts of the control plane are.
//!
//! Parts of this very process are known: whoever keeps them running says so ([`Parts`]). All others are asked at the ports of
//! this machine that upstream's have, as upstream asks them; who does not answer, for instance because nobody started it, is
//! unhealthy in the words of Go's client.

use std::collections::BTreeMap;

use machinery::Value;
use parking_lot::RwLock;
use serde_json::json;

use crate::router::Router;

const STORE: &str = "etcd-0";
/// By the name of its status: the name of the part, and where it is asked.
const PARTS: [(&str, &str, u16); 2] =
    [("controller-manager", "kube-controller-manager", 10257), ("scheduler", "kube-scheduler", 10259)];

/// The names, as upstream has them.
pub const NAMES: [&str; 3] = [PARTS[0].0, PARTS[1].0, STORE];

/// The parts of this process.
#[derive(Debug, Default)]
pub struct Parts {
    /// Why a part does not run; nothing for one that does.
    known: RwLock<BTreeMap<&'static str, Option<String>>>,
}

impl Parts {
    pub fn runs(&self, name: &'static str) {
        self.known.write().insert(name, None);
    }

    /// It does not run, for this reason, and will be started again.
    pub fn failed(&self, name: &'static str, why: impl Into<String>) {
        self.known.write().insert(name, Some(why.into()));
    }

    /// Whether it is one of this process, and if so, why it does not run.
    fn get(&self, name: &str) -> Option<Option<String>> {
        self.known.read().get(name).cloned()
    }
}

/// One status, as a list has it: of one kind with all others.
pub async fn status(router: &Router, name: &str) -> Value {
    let mut condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
    let mut unhealthy = |field: &str, why: String| {
        condition = json!({"type": "Healthy", "status": "False"});
        condition[field] = json!(why);
    };
    match PARTS.iter().find(|(known, ..)| *known == name) {
        None => {
            if let Some(why) = router.documents.health.store_failure() {
                unhealthy("error", why);
            }
        }
        Some((_, part, port)) => match router.parts.get(part) {
            Some(None) => {}
            Some(Some(why)) => unhealthy("message", why),
            None => match router.proxy.probe(*port, "/healthz").await {
                Ok(message) => condition["message"] = json!(message),
                Err(why) => unhealthy("message", why),
            },
        },
    }
    json!({"metadata": {"name": name}, "conditions": [condition]})
}
