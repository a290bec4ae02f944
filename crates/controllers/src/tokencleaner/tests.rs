//! The end of a token.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::plan::plan;
use crate::common::expiry::Expiry;
use crate::testing::at;

#[test]
fn tokens_expire_when_they_say_so() {
    let check = |time: Option<&str>| {
        let data = time.map(|time| [("expiration".to_owned(), ByteString(time.into()))].into());
        plan(&Secret { data, ..Secret::default() }, at(50))
    };
    assert_eq!(check(None), Expiry::Never);
    assert_eq!(check(Some("nonsense")), Expiry::Now);
    assert_eq!(check(Some("1970-01-01T00:01:00Z")), Expiry::In(Duration::from_secs(10)));
    assert_eq!(check(Some("1970-01-01T00:00:50Z")), Expiry::Now);
}
