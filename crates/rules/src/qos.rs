//! Quality of service: which pods a node sacrifices first.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use machinery::quantity::Quantity;
use machinery::{Value, value};

use crate::names::is_of_whole_pods;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Every container has limits, equal to its requests.
    Guaranteed,
    Burstable,
    /// No container asks for anything.
    BestEffort,
}

impl Class {
    /// As in `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// Of parts that each have a class: the same if all agree.
    fn of_all(mut classes: impl Iterator<Item = Self>) -> Option<Self> {
        let first = classes.next()?;
        Some(if classes.all(|class| class == first) { first } else { Self::Burstable })
    }

    /// Of one container, or of a pod that speaks for all its containers. `amount` finds what `requests` or `limits` say of a resource.
    fn of_requirements(amount: impl Fn(&str, &str) -> Option<Quantity>) -> Self {
        let amount = |side: &str, resource: &str| amount(side, resource).filter(|quantity| !quantity.is_zero());
        let of = |resource: &str| match (amount("requests", resource), amount("limits", resource)) {
            (None, None) => Self::BestEffort,
            (request, limit) if request == limit => Self::Guaranteed,
            _ => Self::Burstable,
        };
        Self::of_all(["cpu", "memory"].into_iter().map(of)).expect("there are two resources")
    }

    fn typed(requirements: Option<&ResourceRequirements>) -> Self {
        Self::of_requirements(|side, resource| {
            let list = match side {
                "requests" => requirements?.requests.as_ref()?,
                _ => requirements?.limits.as_ref()?,
            };
            list.get(resource)?.0.parse().ok()
        })
    }

    fn in_tree(requirements: &Value) -> Self {
        Self::of_requirements(|side, resource| {
            Quantity::from_value(requirements.get(side)?.get(resource)?).and_then(Result::ok)
        })
    }
}

/// A pod's class, by what it asks for.
pub fn class(pod: &Pod) -> Class {
    let Some(spec) = &pod.spec else { return Class::BestEffort };
    let speaks = |list: &Option<BTreeMap<String, Text>>| list.iter().flatten().any(|(name, _)| is_of_whole_pods(name));
    if let Some(whole) = spec.resources.as_ref().filter(|whole| speaks(&whole.requests) || speaks(&whole.limits)) {
        return Class::typed(Some(whole));
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let classes = containers.map(|container| Class::typed(container.resources.as_ref()));
    Class::of_all(classes).unwrap_or(Class::BestEffort)
}

/// As [`class`], of a tree.
pub fn class_in(pod: &Value) -> Class {
    let speaks = |whole: &&Value| {
        ["requests", "limits"].iter().any(|side| {
            whole
                .get(side)
                .and_then(Value::as_object)
                .is_some_and(|list| list.keys().any(|name| is_of_whole_pods(name)))
        })
    };
    if let Some(whole) = value::at(pod, "spec.resources").filter(speaks) {
        return Class::in_tree(whole);
    }
    let containers = ["spec.initContainers", "spec.containers"].into_iter().flat_map(|list| value::list(pod, list));
    let classes = containers.map(|container| Class::in_tree(container.get("resources").unwrap_or(&Value::Null)));
    Class::of_all(classes).unwrap_or(Class::BestEffort)
}

/// Whether a pod is in the class of those that ask for nothing: what its status says, which was found when it was created, else what it
/// asks for.
pub fn is_best_effort_in(pod: &Value) -> bool {
    match value::text(pod, "status.qosClass") {
        "" => class_in(pod) == Class::BestEffort,
        class => class == Class::BestEffort.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `requests/limits` as `cpu,memory` each.
    fn requirements(text: &str) -> Value {
        let list = |text: &str| -> Value {
            let pairs = ["cpu", "memory"].into_iter().zip(text.split(',')).filter(|(_, amount)| !amount.is_empty());
            pairs.map(|(name, amount)| (name.to_owned(), json!(amount))).collect::<serde_json::Map<_, _>>().into()
        };
        let (requests, limits) = text.split_once('/').expect("two sides");
        json!({"requests": list(requests), "limits": list(limits)})
    }

    #[track_caller]
    fn check_spec(spec: Value, expect: Class) {
        let pod = json!({"spec": spec});
        let typed: Pod = serde_json::from_value(pod.clone()).expect("a pod");
        assert_eq!((class(&typed), class_in(&pod)), (expect, expect), "{pod}");
    }

    #[track_caller]
    fn check(containers: &[&str], expect: Class) {
        let list = |containers: &[&str]| -> Vec<Value> {
            containers.iter().map(|text| json!({"name": "c", "resources": requirements(text)})).collect()
        };
        check_spec(json!({"containers": list(containers)}), expect);
        if let Some((first, rest)) = containers.split_first() {
            check_spec(json!({"initContainers": list(&[first]), "containers": list(rest)}), expect);
        }
    }

    #[test]
    fn classes_follow_requests_and_limits() {
        check(&[], Class::BestEffort);
        check(&["/"], Class::BestEffort);
        check(&["0,0/"], Class::BestEffort);
        check(&["1,1Gi/1,1Gi"], Class::Guaranteed);
        check(&["1000m,1Gi/1,1Gi"], Class::Guaranteed);
        check(&["1,/1,"], Class::Burstable);
        check(&["1,1Gi/2,1Gi"], Class::Burstable);
        check(&["/1,1Gi"], Class::Burstable);
        check(&["/", "/"], Class::BestEffort);
        check(&["1,1Gi/1,1Gi", "/"], Class::Burstable);
        check(&["1,1Gi/1,1Gi", "1,2Gi/1,2Gi"], Class::Guaranteed);
        // Finer than a thousandth.
        check(&["1,0.0001/1,0.0002"], Class::Burstable);
    }

    #[test]
    fn a_pod_may_speak_for_its_containers() {
        let with =
            |whole: Value| json!({"containers": [{"name": "c", "resources": requirements("1,/")}], "resources": whole});
        check_spec(with(requirements("1,1Gi/1,1Gi")), Class::Guaranteed);
        check_spec(with(requirements("0,/")), Class::BestEffort);
        check_spec(with(requirements("/")), Class::Burstable);
        check_spec(with(json!({})), Class::Burstable);
        // Only of the resources that it can speak of.
        check_spec(with(json!({"requests": {"example.com/gpu": "1"}})), Class::Burstable);
        check_spec(with(json!({"requests": {"hugepages-2Mi": "2Mi"}})), Class::BestEffort);
    }

    #[test]
    fn a_class_that_was_written_is_believed() {
        let asking = json!({"containers": [{"resources": requirements("1,/")}]});
        let idle = json!({"containers": [{"name": "c"}]});
        for (spec, said, expect) in
            [(&idle, "", true), (&asking, "", false), (&idle, "Burstable", false), (&asking, "BestEffort", true)]
        {
            assert_eq!(
                is_best_effort_in(&json!({"spec": spec, "status": {"qosClass": said}})),
                expect,
                "{spec} {said}"
            );
        }
    }
}
