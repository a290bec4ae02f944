//! When requests expire.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::PodCertificateRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::plan;
use crate::common::expiry::Expiry;
use crate::testing::at;

#[test]
fn a_request_expires_a_quarter_of_an_hour_after_it_was_made() {
    let mut request = PodCertificateRequest::default();
    assert_eq!(plan(&request, at(1000)), Expiry::Never, "what has no age does not age");
    request.metadata.creation_timestamp = Some(Time(at(100)));
    assert_eq!(plan(&request, at(990)), Expiry::In(Duration::from_secs(10)));
    assert_eq!(plan(&request, at(1000)), Expiry::Now);
    request.metadata.deletion_timestamp = Some(Time(at(200)));
    assert_eq!(plan(&request, at(1000)), Expiry::Never);
}
