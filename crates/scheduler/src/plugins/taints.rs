//! What it means to tolerate a taint: shared by all plugins that ask.

use k8s_openapi::api::core::v1::{Taint, Toleration};

use crate::model::node::repels;

/// Whether a toleration covers a taint. Effect, key and value left empty cover any.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |part: &Option<String>| part.as_deref().unwrap_or_default().to_owned();
    let (effect, key) =
        (toleration.effect.as_deref().unwrap_or_default(), toleration.key.as_deref().unwrap_or_default());
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => given(&toleration.value) == given(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// Whether any toleration covers a taint.
pub fn any_tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|t| tolerates(t, taint))
}

/// Whether a taint that repels pods is left untolerated.
pub fn is_repelled(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints.iter().any(|taint| repels(taint) && !any_tolerates(tolerations, taint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};

    #[test]
    fn tolerations_cover_taints_as_documented() {
        for ((key, operator, value, effect), covered) in [
            (("dedicated", "Equal", "user1", "NoSchedule"), true),
            (("dedicated", "", "user1", "NoSchedule"), true),
            (("dedicated", "Equal", "user2", "NoSchedule"), false),
            (("dedicated", "Exists", "", "NoSchedule"), true),
            (("dedicated", "Exists", "", "NoExecute"), false),
            (("dedicated", "Equal", "user1", ""), true),
            (("", "Exists", "", ""), true),
            (("other", "Exists", "", ""), false),
            (("dedicated", "Nonsense", "user1", ""), false),
        ] {
            let pod = pod("p").tolerates(key, operator, value, effect).build();
            let node = node("n").taint("dedicated", "user1", "NoSchedule").build();
            let taints = node.spec.and_then(|s| s.taints).unwrap();
            let tolerations = pod.spec.and_then(|s| s.tolerations).unwrap();
            assert_eq!(!is_repelled(&taints, &tolerations), covered, "{key} {operator} {value} {effect}");
        }
    }
}
