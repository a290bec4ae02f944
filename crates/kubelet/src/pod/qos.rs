//! Quality of service: which pods the node sacrifices first.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::resources;
use super::spec;

/// The three classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Every container has limits, equal to its requests.
    Guaranteed,
    /// Something in between.
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
}

/// A pod's class.
pub fn class(pod: &Pod) -> Class {
    if let Some(resources) = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref())
        && (resources.requests.is_some() || resources.limits.is_some())
    {
        return of_requirements(Some(resources));
    }
    let all = spec::init_containers(pod).iter().chain(spec::containers(pod));
    let mut classes = all.map(|container| of_requirements(container.resources.as_ref()));
    let Some(first) = classes.next() else { return Class::BestEffort };
    if classes.all(|class| class == first) { first } else { Class::Burstable }
}

fn of_requirements(resources: Option<&ResourceRequirements>) -> Class {
    let none = BTreeMap::new();
    let (requests, limits) = resources
        .map(|r| (r.requests.as_ref().unwrap_or(&none), r.limits.as_ref().unwrap_or(&none)))
        .unwrap_or((&none, &none));
    let of = |name: &str| {
        let milli = |list: &BTreeMap<String, Quantity>| list.get(name).map_or(0, resources::milli);
        match (milli(requests), milli(limits)) {
            (0, 0) => Class::BestEffort,
            (request, limit) if request == limit => Class::Guaranteed,
            _ => Class::Burstable,
        }
    };
    let (cpu, memory) = (of("cpu"), of("memory"));
    if cpu == memory { cpu } else { Class::Burstable }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Container, PodSpec};

    /// `requests/limits` as `cpu,memory` each, per container.
    fn check(containers: &[&str], expect: Class) {
        let list = |text: &str| {
            let names = ["cpu", "memory"];
            let pairs = names.iter().zip(text.split(',')).filter(|(_, v)| !v.is_empty());
            Some(pairs.map(|(n, v)| ((*n).to_owned(), Quantity(v.to_owned()))).collect())
        };
        let containers = containers.iter().map(|text| {
            let (requests, limits) = text.split_once('/').unwrap();
            let resources = ResourceRequirements { requests: list(requests), limits: list(limits), claims: None };
            Container { resources: Some(resources), ..Default::default() }
        });
        let spec = PodSpec { containers: containers.collect(), ..Default::default() };
        assert_eq!(class(&Pod { spec: Some(spec), ..Default::default() }), expect);
    }

    #[test]
    fn classes_follow_requests_and_limits() {
        check(&["/"], Class::BestEffort);
        check(&["0,0/"], Class::BestEffort);
        check(&["1,1Gi/1,1Gi"], Class::Guaranteed);
        check(&["1000m,1Gi/1,1Gi"], Class::Guaranteed);
        check(&["1,/1,"], Class::Burstable);
        check(&["1,1Gi/2,1Gi"], Class::Burstable);
        check(&["1,1Gi/1,1Gi", "/"], Class::Burstable);
        check(&["/", "/"], Class::BestEffort);
    }
}
