//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or unreachable, unless it says otherwise.

use machinery::{Value, value};
use rules::names::{NOT_READY, UNREACHABLE};
use serde_json::json;

use super::pods::push;
use super::{Operation, Request};

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = [NOT_READY, UNREACHABLE];

/// Adds what is missing.
pub fn admit(request: &Request<'_>, pod: &mut Value) {
    if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is_for("", "pods") {
        return;
    }
    for taint in TAINTS {
        let tolerated = value::list(pod, "spec.tolerations").iter().any(|toleration| {
            let key = value::text(toleration, "key");
            let effect = value::text(toleration, "effect");
            (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            let toleration =
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS});
            push(pod, "spec.tolerations", toleration);
        }
    }
}
