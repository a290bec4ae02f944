//! What objects use of a quota: the typed objects of the caches, shown to the evaluator that admission charges by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::Value;
use machinery::quantity::{Format, Quantity};
use rules::quota::{Counted, charged_until};
use serde_json::json;

use crate::common::pods;

/// Amounts by resource name. Only names that the quota limits are in it.
pub(super) type Usage = BTreeMap<String, Quantity>;

/// What is more than counted.
const MEASURED: [&str; 4] = ["pods", "services", "persistentvolumeclaims", "resourceclaims.resource.k8s.io"];
/// What may be limited without saying that it is the count.
const COUNTED: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// A limit that only counts objects is looked at again this often while there are no such objects: that a resource comes, nobody tells.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// A quota and what is in its namespace.
pub(super) struct Observed {
    pub(super) quota: Arc<ResourceQuota>,
    pub(super) services: Vec<Arc<Service>>,
    pub(super) claims: Vec<Arc<PersistentVolumeClaim>>,
    pub(super) device_claims: Vec<Arc<ResourceClaim>>,
    /// By limit, how many there are of what is only counted; `None` if there is no such resource.
    pub(super) others: Vec<(String, Option<usize>)>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// What the quota should say and does not.
    pub(super) status: Option<ResourceQuotaStatus>,
    pub(super) again: Option<Duration>,
}

/// The pods come one by one: a namespace may have more of them than anybody wants to hold.
pub(super) fn plan(observed: &Observed, pods: impl IntoIterator<Item = Arc<Pod>>, now: Timestamp) -> Plan {
    let quota = &observed.quota;
    let mut count = Count::new(quota, now);
    pods.into_iter().for_each(|pod| count.add_pod(&pod));
    observed.services.iter().for_each(|service| count.add_service(service));
    observed.claims.iter().for_each(|claim| count.add_claim(claim));
    observed.device_claims.iter().for_each(|claim| count.add_device_claim(claim));
    for (name, number) in &observed.others {
        count.set_count(name, number.unwrap_or_default());
    }
    // A moment later than it still counts.
    let due = count.due.map(|due| clock::since(due, now) + Duration::from_millis(1));
    let unknown = observed.others.iter().any(|(_, number)| number.is_none());
    let status = ResourceQuotaStatus { hard: Some(hard(quota)), used: Some(count.wire()) };
    Plan {
        status: (quota.status.as_ref() != Some(&status)).then_some(status),
        again: due.into_iter().chain(unknown.then_some(RESYNC)).min(),
    }
}

fn hard(quota: &ResourceQuota) -> BTreeMap<String, Wire> {
    quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default()
}

/// Whether admission knows the limits. Until it does, it refuses everything.
pub(super) fn limits_are_known(quota: &ResourceQuota) -> bool {
    quota.status.as_ref().is_some_and(|status| status.hard.as_ref() == Some(&hard(quota)))
}

/// A quota under count.
pub(super) struct Count {
    /// As the evaluator reads it.
    quota: Value,
    now: Timestamp,
    pub(super) used: Usage,
    /// When the next pod that is being deleted stops to count.
    pub(super) due: Option<Timestamp>,
}

impl Count {
    /// Of what the quota limits, nothing yet.
    pub(super) fn new(quota: &ResourceQuota, now: Timestamp) -> Self {
        let limited = quota.spec.iter().flat_map(|spec| spec.hard.iter().flatten());
        let used = limited.map(|(name, _)| (name.clone(), Quantity::new(0, Format::DecimalSi))).collect();
        Self { quota: json!({"spec": quota.spec}), now, used, due: None }
    }

    fn add(&mut self, kind: Counted<'_>, object: &Value) {
        if !kind.is_in_scope(&self.quota, object) {
            return;
        }
        for (name, amount) in kind.usage(object, self.now) {
            if let Some(sum) = self.used.get_mut(&name) {
                sum.add(&amount);
            }
        }
    }

    pub(super) fn add_pod(&mut self, pod: &Pod) {
        let object = shown(pod);
        self.add(Counted::Pods, &object);
        let due = charged_until(&object).filter(|due| *due >= self.now);
        self.due = [self.due, due].into_iter().flatten().min();
    }

    pub(super) fn add_service(&mut self, service: &Service) {
        self.add(Counted::Services, &json!({"spec": service.spec}));
    }

    pub(super) fn add_claim(&mut self, claim: &PersistentVolumeClaim) {
        let meta = json!({"annotations": claim.metadata.annotations});
        self.add(Counted::Claims, &json!({"metadata": meta, "spec": claim.spec, "status": claim.status}));
    }

    pub(super) fn add_device_claim(&mut self, claim: &ResourceClaim) {
        self.add(Counted::DeviceClaims, &json!({"spec": claim.spec}));
    }

    pub(super) fn set_count(&mut self, name: &str, count: usize) {
        if let Some(known) = self.used.get_mut(name) {
            *known = Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi);
        }
    }

    /// The limits that only count objects, each with the plural and the group of what it counts. A quota with scopes counts none of them.
    pub(super) fn others(&self) -> Vec<(String, String, String)> {
        let names = self.used.keys().filter_map(|name| {
            let of = match name.strip_prefix("count/") {
                Some(of) => Some(of).filter(|of| !MEASURED.contains(of)),
                None => Some(name.as_str()).filter(|of| COUNTED.contains(of)),
            }?;
            let (resource, group) = of.split_once('.').unwrap_or((of, ""));
            let counted = Counted::Other { group, resource }.is_in_scope(&self.quota, &Value::Null);
            counted.then(|| (name.clone(), resource.to_owned(), group.to_owned()))
        });
        names.collect()
    }

    /// As a status has it.
    pub(super) fn wire(self) -> BTreeMap<String, Wire> {
        self.used.into_iter().map(|(name, amount)| (name, Wire(amount.to_string()))).collect()
    }
}

/// The parts of a pod that quotas look at: showing all of it would cost more than the count.
pub(super) fn shown(pod: &Pod) -> Value {
    let container = |container: &Container| json!({"name": container.name, "resources": container.resources, "restartPolicy": container.restart_policy});
    let statuses = |statuses: Option<&Vec<ContainerStatus>>| -> Vec<Value> {
        let statuses = statuses
            .into_iter()
            .flatten()
            .filter(|status| status.resources.is_some() || status.allocated_resources.is_some());
        statuses
            .map(|status| {
                json!({"name": status.name, "resources": status.resources, "allocatedResources": status.allocated_resources})
            })
            .collect()
    };
    let status = pod.status.as_ref();
    let spec = pods::spec(pod).map(|spec| {
        json!({
            "containers": spec.containers.iter().map(container).collect::<Vec<_>>(),
            "initContainers": spec.init_containers.iter().flatten().map(container).collect::<Vec<_>>(),
            "resources": spec.resources,
            "overhead": spec.overhead,
            "activeDeadlineSeconds": spec.active_deadline_seconds,
            "priorityClassName": spec.priority_class_name,
            "affinity": spec.affinity,
        })
    });
    json!({
        "metadata": {
            "deletionTimestamp": pod.metadata.deletion_timestamp,
            "deletionGracePeriodSeconds": pod.metadata.deletion_grace_period_seconds,
        },
        "spec": spec,
        "status": {
            "phase": status.and_then(|status| status.phase.as_deref()),
            "conditions": resize_pending(pod),
            "containerStatuses": statuses(status.and_then(|status| status.container_statuses.as_ref())),
            "initContainerStatuses": statuses(status.and_then(|status| status.init_container_statuses.as_ref())),
        },
    })
}

/// What a node says of a resize that it cannot make now.
fn resize_pending(pod: &Pod) -> Vec<Value> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "PodResizePending")
        .map(|condition| json!({"type": condition.type_, "reason": condition.reason}))
        .collect()
}

/// What the containers of a pod were given and run with, and whether more is to be expected.
fn given(pod: &Pod) -> impl PartialEq {
    let status = pod.status.as_ref();
    let lists = [
        status.and_then(|status| status.container_statuses.as_ref()),
        status.and_then(|status| status.init_container_statuses.as_ref()),
    ];
    let statuses = lists.into_iter().flatten().flatten();
    let resources: Vec<_> = statuses
        .map(|status| (status.name.clone(), status.resources.clone(), status.allocated_resources.clone()))
        .collect();
    (resources, resize_pending(pod))
}

/// Whether a change of a pod may change what it uses.
pub(super) fn pod_matters(before: &Pod, after: &Pod) -> bool {
    pods::is_terminal(before) != pods::is_terminal(after)
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        || before.metadata.deletion_grace_period_seconds != after.metadata.deletion_grace_period_seconds
        || before.spec != after.spec
        || given(before) != given(after)
}
