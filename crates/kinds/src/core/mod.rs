//! The core group, whose name is empty.

pub mod component_status;
pub mod config_map;
pub mod data;
pub mod endpoints;
pub mod event;
pub mod limit_range;
pub mod namespace;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod pod_template;
pub mod replication_controller;
pub mod resource_quota;
pub mod secret;
pub mod service;
pub mod service_account;
#[cfg(test)]
mod tests_of_data;
#[cfg(test)]
mod tests_of_limits;
pub mod volume_cells;

use crate::kind::{Deprecation, Kind};

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("componentstatuses", "ComponentStatus")
        .columns(&component_status::columns::TABLE)
        .never_stored()
        .deprecated(&[Deprecation::new("v1", 19)]),
    Kind::new("configmaps", "ConfigMap").strategy(&config_map::ConfigMaps).columns(&config_map::columns::TABLE),
    Kind::new("endpoints", "Endpoints")
        .strategy(&endpoints::Endpoints)
        .columns(&endpoints::columns::TABLE)
        .stored_at("services/endpoints")
        .deprecated(&[Deprecation::new("v1", 33).instead("discovery.k8s.io/v1 EndpointSlice")]),
    Kind::new("events", "Event")
        .strategy(&event::Events)
        .columns(&event::columns::TABLE)
        .converted(&event::convert::CONVERSIONS),
    Kind::new("limitranges", "LimitRange").strategy(&limit_range::LimitRanges),
    Kind::new("namespaces", "Namespace").strategy(&namespace::Namespaces).columns(&namespace::columns::TABLE),
    Kind::new("nodes", "Node").strategy(&node::Nodes).columns(&node::columns::TABLE).stored_at("minions"),
    Kind::new("persistentvolumeclaims", "PersistentVolumeClaim")
        .strategy(&persistent_volume_claim::PersistentVolumeClaims)
        .columns(&persistent_volume_claim::columns::TABLE),
    Kind::new("persistentvolumes", "PersistentVolume")
        .strategy(&persistent_volume::PersistentVolumes)
        .columns(&persistent_volume::columns::TABLE),
    Kind::new("pods", "Pod").strategy(&pod::Pods).columns(&pod::columns::TABLE),
    Kind::new("podtemplates", "PodTemplate")
        .strategy(&pod_template::PodTemplates)
        .columns(&pod_template::columns::TABLE),
    Kind::new("replicationcontrollers", "ReplicationController")
        .strategy(&replication_controller::ReplicationControllers)
        .columns(&replication_controller::columns::TABLE)
        .stored_at("controllers"),
    Kind::new("resourcequotas", "ResourceQuota")
        .strategy(&resource_quota::ResourceQuotas)
        .columns(&resource_quota::columns::TABLE),
    Kind::new("secrets", "Secret").strategy(&secret::Secrets).columns(&secret::columns::TABLE),
    Kind::new("serviceaccounts", "ServiceAccount")
        .strategy(&service_account::ServiceAccounts)
        .columns(&service_account::columns::TABLE),
    Kind::new("services", "Service")
        .strategy(&service::Services)
        .columns(&service::columns::TABLE)
        .stored_at("services/specs"),
];

/// The kinds of the group `events.k8s.io`, whose objects are stored as those of the core group.
pub const EVENTS: &[Kind] = &[Kind::new("events", "Event")
    .strategy(&event::Events)
    .columns(&event::columns::TABLE)
    .converted(&event::convert::CONVERSIONS)
    .stored_as("", "v1")];
