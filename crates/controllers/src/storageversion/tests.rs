//! Storage versions of servers that are gone.

use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{ServerStorageVersion, StorageVersion, StorageVersionStatus};

use super::plan::{Plan, plan};

fn version(servers: &[(&str, &str)]) -> StorageVersion {
    let servers = servers.iter().map(|(id, encoding)| ServerStorageVersion {
        api_server_id: (*id).into(),
        encoding_version: (*encoding).into(),
        ..ServerStorageVersion::default()
    });
    StorageVersion {
        status: Some(StorageVersionStatus {
            storage_versions: Some(servers.collect()),
            ..StorageVersionStatus::default()
        }),
        ..StorageVersion::default()
    }
}

#[test]
fn only_servers_that_live_count() {
    let check =
        |servers: &[(&str, &str)]| match plan(&version(servers), |id| id.starts_with("live"), Timestamp::UNIX_EPOCH) {
            Plan::Keep => "same".to_owned(),
            Plan::Delete => "gone".to_owned(),
            Plan::Write(status) => {
                let condition = &status.conditions.as_ref().expect("conditions")[0];
                format!("{:?} {}", status.common_encoding_version, condition.reason)
            }
        };
    assert_eq!(check(&[("live-1", "v1"), ("live-2", "v2")]), "same");
    assert_eq!(check(&[("dead", "v1")]), "gone");
    assert_eq!(check(&[("dead", "v1"), ("live-1", "v2")]), r#"Some("v2") CommonEncodingVersionSet"#);
    assert_eq!(check(&[("dead", "v1"), ("live-1", "v1"), ("live-2", "v2")]), "None CommonEncodingVersionUnset");
}
