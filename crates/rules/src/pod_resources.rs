//! What pods ask for and may use, added up as quotas and limits count it.

use std::collections::BTreeMap;

use machinery::quantity::Quantity;
use machinery::{Value, value};

use crate::names::is_of_whole_pods;

pub type Amounts = BTreeMap<String, Quantity>;

/// Where containers say what they ask for, or what they may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Requests,
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
    let mut total = sum(pod, |container| of(container, side));
    apply_pod_level(&mut total, pod, side);
    total
}

/// As [`of_pod`], with the overhead of the pod's runtime class.
pub fn charged(pod: &Value, side: Side) -> Amounts {
    let mut total = of_pod(pod, side);
    add_overhead(&mut total, pod, side);
    total
}

/// As [`charged`], for a pod that may be in the middle of a resize: the most of what it asks for, what its node has set aside for it and what
/// its containers run with. What was asked for and can never be given does not count.
pub fn held(pod: &Value, side: Side) -> Amounts {
    let infeasible = value::list(pod, "status.conditions")
        .iter()
        .find(|condition| value::text(condition, "type") == "PodResizePending")
        .is_some_and(|pending| value::text(pending, "reason") == "Infeasible");
    let asked = |container: &Value| if infeasible { Amounts::new() } else { of(container, side) };
    let allocated = |container: &Value| {
        let status = status_of(pod, container)?;
        status.get("allocatedResources").filter(|_| side == Side::Requests).filter(|given| !given.is_null())
    };
    let actuated = |container: &Value| {
        let resources = status_of(pod, container)?.get("resources")?;
        resources.get(side.key()).filter(|given| !given.is_null())
    };
    let or_asked =
        |given: Option<&Value>, container: &Value| given.map_or_else(|| asked(container), |given| amounts(Some(given)));
    let mut total = if infeasible { Amounts::new() } else { sum(pod, |container| of(container, side)) };
    at_least(&mut total, &sum(pod, |container| or_asked(allocated(container), container)));
    at_least(&mut total, &sum(pod, |container| or_asked(actuated(container).or(allocated(container)), container)));
    apply_pod_level(&mut total, pod, side);
    add_overhead(&mut total, pod, side);
    total
}

fn status_of<'a>(pod: &'a Value, container: &Value) -> Option<&'a Value> {
    let lists = ["status.containerStatuses", "status.initContainerStatuses"];
    let mut statuses = lists.into_iter().flat_map(|list| value::list(pod, list));
    statuses.find(|status| value::text(status, "name") == value::text(container, "name"))
}

fn sum(pod: &Value, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let mut total = Amounts::new();
    for container in value::list(pod, "spec.containers") {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in value::list(pod, "spec.initContainers") {
        let mut own = of(container);
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
    total
}

/// What the pod says as a whole counts instead of the sum, for the resources it can say it of.
fn apply_pod_level(total: &mut Amounts, pod: &Value, side: Side) {
    let Some(whole) = value::at(pod, "spec") else { return };
    for (name, amount) in of(whole, side) {
        if is_of_whole_pods(&name) {
            total.insert(name, amount);
        }
    }
}

fn add_overhead(total: &mut Amounts, pod: &Value, side: Side) {
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
    fn a_pod_that_is_resized_holds_the_most_of_what_was_asked_allocated_and_actuated() {
        let resized = |asked: &str, allocated: &str, actuated: &str, reason: &str| {
            json!({
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": asked}, "limits": {"cpu": asked}}}]},
                "status": {
                    "conditions": [{"type": "PodResizePending", "reason": reason}],
                    "containerStatuses": [{
                        "name": "c",
                        "allocatedResources": {"cpu": allocated},
                        "resources": {"requests": {"cpu": actuated}, "limits": {"cpu": actuated}},
                    }],
                },
            })
        };
        for (pod, requests, limits) in [
            (resized("3", "1", "1", "Deferred"), "3", "3"),
            (resized("1", "3", "2", "Deferred"), "3", "2"),
            (resized("1", "1", "2", "Deferred"), "2", "2"),
            // Nobody will ever give it three, so nobody is charged for three.
            (resized("3", "1", "1", "Infeasible"), "1", "1"),
            (
                json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}]}}),
                "3",
                "3",
            ),
        ] {
            let cpu = |side| held(&pod, side).get("cpu").map(ToString::to_string).unwrap_or_default();
            assert_eq!((cpu(Side::Requests).as_str(), cpu(Side::Limits).as_str()), (requests, limits), "{pod}");
        }
    }
}
