//! What pods ask for and may use, added up as quotas and limits count it.

use std::collections::BTreeMap;

use crate::quantity::Quantity;
use crate::{Value, value};

/// Quantities by resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// Where containers say what they ask for, or what they may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `requests`.
    Requests,
    /// `limits`.
    Limits,
}

impl Side {
    const fn key(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// The quantities of an object of strings; what cannot be read is for validation to refuse.
pub fn amounts(tree: Option<&Value>) -> Amounts {
    let fields = tree.and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(name, text)| Some((name.clone(), Quantity::from_value(text)?.ok()?))).collect()
}

/// One side of a container's (or a claim's) resources.
pub fn of(holder: &Value, side: Side) -> Amounts {
    amounts(value::at(holder, "resources").and_then(|resources| resources.get(side.key())))
}

/// Adds amounts.
pub fn add(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        to.entry(name.clone()).and_modify(|sum| sum.add(amount)).or_insert_with(|| amount.clone());
    }
}

fn at_least(amounts: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        match amounts.get_mut(name) {
            Some(present) if *present >= *amount => {}
            Some(present) => *present = amount.clone(),
            None => {
                amounts.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// One side of a whole pod: its containers together, or its hungriest init container beside the sidecars before it.
pub fn of_pod(pod: &Value, side: Side) -> Amounts {
    let mut total = Amounts::new();
    for container in value::list(pod, "spec.containers") {
        add(&mut total, &of(container, side));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in value::list(pod, "spec.initContainers") {
        let mut own = of(container, side);
        if value::text(container, "restartPolicy") == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        at_least(&mut most, &own);
    }
    at_least(&mut total, &most);
    // What the pod says as a whole counts instead of the sum, for the resources it can say it of.
    if let Some(whole) = value::at(pod, "spec") {
        for (name, amount) in of(whole, side) {
            if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
                total.insert(name, amount);
            }
        }
    }
    total
}

/// As [`of_pod`], with the overhead of the pod's runtime class.
pub fn charged(pod: &Value, side: Side) -> Amounts {
    let mut total = of_pod(pod, side);
    for (name, amount) in amounts(value::at(pod, "spec.overhead")) {
        match (side, total.get_mut(&name)) {
            (_, Some(sum)) => sum.add(&amount),
            (Side::Requests, None) => {
                total.insert(name, amount);
            }
            // Without a limit there is nothing to add the overhead to.
            (Side::Limits, None) => {}
        }
    }
    total
}

/// Whether a resource is somebody's device: it has a domain that is not the project's own.
pub fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(pod: Value, expect: &str) {
        let requests = charged(&pod, Side::Requests);
        let text: Vec<String> = requests.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(text.join(","), expect, "{pod}");
    }

    #[test]
    fn a_pod_asks_for_its_containers_or_its_hungriest_init_container() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        check(json!({"spec": {"containers": [container("100m"), container("200m")]}}), "cpu=300m");
        check(json!({"spec": {"containers": [container("100m")], "initContainers": [container("1")]}}), "cpu=1");
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}});
        check(
            json!({"spec": {"containers": [container("100m")], "initContainers": [sidecar, container("1")]}}),
            "cpu=1500m",
        );
        check(
            json!({"spec": {"containers": [container("100m")], "overhead": {"cpu": "50m", "memory": "1Mi"}}}),
            "cpu=150m,memory=1Mi",
        );
        check(json!({"spec": {"containers": [container("100m")], "resources": {"requests": {"cpu": "2"}}}}), "cpu=2");
    }
    #[test]
    fn devices_are_resources_with_a_domain_of_their_own() {
        for (name, expect) in [
            ("example.com/gpu", true),
            ("cpu", false),
            ("requests.example.com/gpu", false),
            ("a.kubernetes.io/x", false),
        ] {
            assert_eq!(is_extended(name), expect, "{name}");
        }
    }
}
