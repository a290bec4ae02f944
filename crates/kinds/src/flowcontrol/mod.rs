//! The group `flowcontrol.apiserver.k8s.io`: FlowSchemas and PriorityLevelConfigurations.

pub mod flow_schema;
pub mod priority_level_configuration;
#[cfg(test)]
mod tests;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("flowschemas", "FlowSchema").strategy(&flow_schema::FlowSchemas).columns(&flow_schema::columns::TABLE),
    Kind::new("prioritylevelconfigurations", "PriorityLevelConfiguration")
        .strategy(&priority_level_configuration::PriorityLevels)
        .columns(&priority_level_configuration::columns::TABLE),
];
