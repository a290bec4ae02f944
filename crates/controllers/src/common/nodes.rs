//! Whether a pod's template fits a node: its selector, its affinity, its tolerations.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

use super::meta::MetaExt;

/// Whether the node is one the pod asks for.
pub(crate) fn selects(spec: &PodSpec, node: &Node) -> bool {
    let labels = spec.node_selector.iter().flatten();
    if !labels.into_iter().all(|(key, value)| node.metadata.label(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| required.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// All of a term must hold; an empty one holds for no node.
fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|requirement| requirement_holds(requirement, node.metadata.label(&requirement.key)))
        && fields.iter().all(|requirement| {
            requirement.key == "metadata.name" && requirement_holds(requirement, Some(node.metadata.name()))
        })
}

fn requirement_holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let among = || value.is_some_and(|value| values.iter().any(|known| known == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => among(),
        "NotIn" => !among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// Whether all taints of these effects are tolerated.
pub(crate) fn tolerates_all(tolerations: &[Toleration], node: &Node, effects: &[&str]) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut counted = taints.filter(|taint| effects.contains(&taint.effect.as_str()));
    counted.all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Whether a toleration covers a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if filled(&toleration.effect).is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    if filled(&toleration.key).is_some_and(|key| key != taint.key) {
        return false;
    }
    let value = taint.value.clone().unwrap_or_default();
    let numbers = || Some((value.parse::<i64>().ok()?, toleration.value.as_deref()?.parse::<i64>().ok()?));
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => filled(&toleration.key).is_some() && toleration.value.clone().unwrap_or_default() == value,
        "Exists" => true,
        "Gt" => numbers().is_some_and(|(taint, bound)| taint > bound),
        "Lt" => numbers().is_some_and(|(taint, bound)| taint < bound),
        _ => false,
    }
}
