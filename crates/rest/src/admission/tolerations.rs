//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or unreachable, unless it says otherwise.

use machinery::{Value, value};
use rules::names::{NOT_READY, UNREACHABLE};
use serde_json::json;

use super::pods::push;
use super::{Operation, Request};

/// How long a pod stays on a node that is not ready, and on one that is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds {
    pub not_ready: i64,
    pub unreachable: i64,
}

impl Default for Seconds {
    fn default() -> Self {
        Self { not_ready: 300, unreachable: 300 }
    }
}

/// Adds what is missing.
pub fn admit(seconds: Seconds, request: &Request<'_>, pod: &mut Value) {
    if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is_for("", "pods") {
        return;
    }
    for (taint, seconds) in [(NOT_READY, seconds.not_ready), (UNREACHABLE, seconds.unreachable)] {
        let tolerated = value::list(pod, "spec.tolerations").iter().any(|toleration| {
            let key = value::text(toleration, "key");
            let effect = value::text(toleration, "effect");
            (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            let toleration =
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
            push(pod, "spec.tolerations", toleration);
        }
    }
}
