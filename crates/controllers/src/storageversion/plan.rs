//! Which storage versions are those of servers that live.

use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{StorageVersion, StorageVersionCondition, StorageVersionStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(super) enum Plan {
    Keep,
    Delete,
    Write(Box<StorageVersionStatus>),
}

/// The status without the servers that do not live.
pub(super) fn plan(version: &StorageVersion, lives: impl Fn(&str) -> bool, now: Timestamp) -> Plan {
    let mut status = version.status.clone().unwrap_or_default();
    let servers = status.storage_versions.get_or_insert_default();
    let before = servers.len();
    servers.retain(|server| lives(&server.api_server_id));
    if servers.len() == before {
        return Plan::Keep;
    }
    let Some(first) = servers.first().map(|server| server.encoding_version.clone()) else { return Plan::Delete };
    let agreed = servers.iter().all(|server| server.encoding_version == first);
    let common = agreed.then_some(first);
    let moved =
        status.common_encoding_version.is_some() && common.is_some() && status.common_encoding_version != common;
    status.common_encoding_version = common;
    let (text, reason, message) = if agreed {
        ("True", "CommonEncodingVersionSet", "Common encoding version set")
    } else {
        ("False", "CommonEncodingVersionUnset", "Common encoding version unset")
    };
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions.iter().position(|condition| condition.type_ == "AllEncodingVersionsEqual");
    let since = known.map(|at| &conditions[at]).filter(|known| known.status == text && !moved);
    let condition = StorageVersionCondition {
        type_: "AllEncodingVersionsEqual".to_owned(),
        status: text.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: version.metadata.generation,
        last_transition_time: since.map_or(Some(Time(now)), |known| known.last_transition_time.clone()),
    };
    match known {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    Plan::Write(Box::new(status))
}
