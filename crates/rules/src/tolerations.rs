//! Which taints a pod tolerates. `Gt` and `Lt` are refused by validation and never match: v1.37 has them behind
//! `TaintTolerationComparisonOperators`, which is off by default.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use machinery::{Value, value};

/// Whether a toleration covers a taint. An effect or key left empty covers any, whatever the operator.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |part: &Option<String>| part.as_deref().is_some_and(|part| !part.is_empty());
    let text = |part: &'_ Option<String>| part.clone().unwrap_or_default();
    if given(&toleration.effect) && toleration.effect.as_deref() != Some(&*taint.effect)
        || given(&toleration.key) && toleration.key.as_deref() != Some(&*taint.key)
    {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// Whether any toleration covers a taint.
pub fn any_tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// The first taint of these effects that no toleration covers.
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration], effects: &[&str]) -> Option<&'a Taint> {
    let mut counted = taints.iter().filter(|taint| effects.contains(&taint.effect.as_str()));
    counted.find(|taint| !any_tolerates(tolerations, taint))
}

/// Whether a taint keeps new pods away, rather than making other nodes preferable.
pub fn repels(taint: &Taint) -> bool {
    taint.effect == "NoSchedule" || taint.effect == "NoExecute"
}

/// Whether a taint that keeps new pods away is left untolerated.
pub fn is_repelled(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints.iter().any(|taint| repels(taint) && !any_tolerates(tolerations, taint))
}

/// Tolerations without those that another one covers.
pub fn merge(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let covered = merged.iter().any(|other| covers(other, one))
            || all[at + 1..].iter().any(|other| other != one && covers(other, one));
        if !covered {
            merged.push(one.clone());
        }
    }
    merged
}

/// Whether whoever tolerates by the first tolerates everything that the second does.
pub fn covers(first: &Value, second: &Value) -> bool {
    if first == second {
        return true;
    }
    let exists = |toleration: &Value| value::text(toleration, "operator") == "Exists";
    let (key, effect) = (value::text(first, "key"), value::text(first, "effect"));
    if key != value::text(second, "key") && !(key.is_empty() && exists(first)) {
        return false;
    }
    if !effect.is_empty() && effect != value::text(second, "effect") {
        return false;
    }
    if effect == "NoExecute" {
        match (value::int(first, "tolerationSeconds"), value::int(second, "tolerationSeconds")) {
            (None, _) => {}
            (Some(_), None) => return false,
            (Some(first), Some(second)) if first < second => return false,
            _ => {}
        }
    }
    exists(first) || (!exists(second) && value::text(first, "value") == value::text(second, "value"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_cover_taints_as_documented() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "dedicated", "value": "5", "effect": "NoSchedule"})).expect("a taint");
        for (key, operator, value, effect, covered) in [
            ("dedicated", "Equal", "5", "NoSchedule", true),
            ("dedicated", "", "5", "NoSchedule", true),
            ("dedicated", "Equal", "6", "NoSchedule", false),
            ("dedicated", "Exists", "", "NoSchedule", true),
            ("dedicated", "Exists", "", "NoExecute", false),
            ("dedicated", "Equal", "5", "", true),
            ("", "Exists", "", "", true),
            // No key is every key, with `Equal` too.
            ("", "Equal", "5", "", true),
            ("", "", "6", "", false),
            ("other", "Exists", "", "", false),
            // Their feature is off.
            ("dedicated", "Lt", "6", "", false),
            ("dedicated", "Gt", "4", "", false),
            ("dedicated", "Nonsense", "5", "", false),
        ] {
            let toleration: Toleration =
                serde_json::from_value(json!({"key": key, "operator": operator, "value": value, "effect": effect}))
                    .expect("a toleration");
            assert_eq!(tolerates(&toleration, &taint), covered, "{toleration:?}");
            let left = untolerated(std::slice::from_ref(&taint), std::slice::from_ref(&toleration), &["NoSchedule"]);
            let repelled = is_repelled(std::slice::from_ref(&taint), &[toleration]);
            assert_eq!((left.is_none(), !repelled), (covered, covered));
        }
        assert_eq!(untolerated(&[taint], &[], &["NoExecute"]), None, "only taints of the effects count");
    }

    #[test]
    fn what_another_toleration_covers_is_left_out() {
        let exists = json!({"key": "k", "operator": "Exists"});
        let equal = json!({"key": "k", "operator": "Equal", "value": "v"});
        assert_eq!(merge(&[equal.clone(), exists.clone()]), std::slice::from_ref(&exists));
        let brief = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 50});
        assert!(covers(&long, &brief) && !covers(&brief, &long));
        assert!(covers(&exists, &equal) && !covers(&equal, &exists));
    }
}
