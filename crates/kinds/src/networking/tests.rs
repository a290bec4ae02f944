//! What upstream says about kinds of this group.

use machinery::status::FieldError;
use serde_json::json;

use crate::networking::ingress::Ingresses;
use crate::networking::network_policy::NetworkPolicies;
use crate::strategy::Strategy;

fn shown(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn ingresses_are_checked() {
    let ingress = json!({"spec": {"rules": [{"host": "1.2.3.4", "http": {"paths": [
        {"path": "a//b", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {}}}}, {"backend": {}}]}}]}});
    assert_eq!(
        shown(Ingresses.validate(&ingress)),
        [
            "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
            "spec.rules[0].http.paths[0].path: Invalid value: \"a//b\": must be an absolute path",
            "spec.rules[0].http.paths[0].path: Invalid value: \"a//b\": must not contain '//'",
            "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
            "spec.rules[0].http.paths[1].pathType: Required value: pathType must be specified",
        ]
    );
    assert_eq!(
        shown(Ingresses.validate(&json!({"spec": {}}))),
        ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
    );
}

#[test]
fn network_policies_are_checked_and_filled_in() {
    let mut policy = json!({"spec": {"podSelector": {}, "egress": [{"to": [{}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16", "10.0.0.0/8"]}}],
        "ports": [{"port": 10, "endPort": 5}, {"endPort": 1}]}]}});
    NetworkPolicies.default(&mut policy);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
    assert_eq!(
        shown(NetworkPolicies.validate(&policy)),
        [
            "spec.egress[0].ports[0].endPort: Invalid value: 5: must be greater than or equal to `port`",
            "spec.egress[0].ports[1].endPort: Invalid value: 1: may not be specified when `port` is not specified",
            "spec.egress[0].to[0]: Required value: must specify a peer",
            "spec.egress[0].to[1].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
            "spec.egress[0].to[1].ipBlock.except[1]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`",
        ]
    );
}
