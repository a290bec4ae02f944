//! What upstream says about ConfigMaps, Secrets and ServiceAccounts.

use machinery::status::FieldError;
use serde_json::json;

use crate::core::config_map::ConfigMaps;
use crate::core::secret::Secrets;
use crate::core::service_account::ServiceAccounts;
use crate::strategy::Strategy;

fn shown(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn secrets_have_what_their_type_needs() {
    assert_eq!(
        shown(Secrets.validate(&json!({"type": "kubernetes.io/tls"}))),
        ["data[tls.crt]: Required value", "data[tls.key]: Required value"]
    );
    assert_eq!(
        shown(Secrets.validate(&json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "e30="}}))),
        Vec::<String>::new()
    );
    assert_eq!(
        shown(Secrets.validate(&json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "eA=="}}))),
        [
            "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value"
        ]
    );
    assert_eq!(
        shown(Secrets.validate_update(&json!({"type": "a"}), &json!({"type": "b"}))),
        ["type: Invalid value: \"a\": field is immutable"]
    );
}

#[test]
fn what_is_written_plainly_is_kept_as_bytes() {
    let mut secret = json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}});
    Secrets.default(&mut secret);
    assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}}));
    let mut account = json!({"secrets": [{"name": "s", "kind": "Secret", "namespace": "x"}]});
    ServiceAccounts.prepare_for_create(&mut account);
    assert_eq!(account, json!({"secrets": [{"name": "s"}]}));
}

#[test]
fn what_is_immutable_stays() {
    let old = json!({"immutable": true, "data": {"a": "1"}});
    assert_eq!(
        shown(ConfigMaps.validate_update(&json!({"data": {"a": "2"}}), &old)),
        [
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set",
        ]
    );
    assert_eq!(
        shown(ConfigMaps.validate(&json!({"data": {"a": "1"}, "binaryData": {"a": ""}}))),
        ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
    );
    assert!(
        shown(ConfigMaps.validate(&json!({"data": {"a/b": "1"}})))[0]
            .starts_with("data[a/b]: Invalid value: \"a/b\": a valid config key")
    );
}
