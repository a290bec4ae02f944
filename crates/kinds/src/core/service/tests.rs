//! What upstream says about Services.

use machinery::Value;
use serde_json::json;

use crate::core::service::Services;
use crate::core::service::fill::complete;
use crate::strategy::Strategy;
use crate::testing::said;

#[test]
fn a_service_may_keep_the_addresses_it_has() {
    let service = |addresses: Value| {
        json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {
            "clusterIP": "None", "clusterIPs": addresses, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "sessionAffinity": "None", "type": "ClusterIP", "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"],
            "internalTrafficPolicy": "Cluster",
        }})
    };
    let refused = said("", "Service", service(json!(["None", "None"])), Some(&service(json!(["None"]))));
    let first = "spec.clusterIPs: Invalid value: [\"None\",\"None\"]: 'None' must be the first and only value";
    assert!(refused.contains(&first.to_owned()), "{refused:?}");
    assert!(!refused.iter().any(|line| line.contains("must be a valid IP address")), "{refused:?}");
}

fn check(spec: Value, expected: &[&str]) {
    let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
    Services.default(&mut service);
    complete(&mut service, None);
    Services.prepare_for_create(&mut service);
    let errors: Vec<String> = Services.validate(&service).iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected);
}

#[test]
fn services_are_checked_in_upstreams_words() {
    check(json!({"ports": [{"port": 80}]}), &[]);
    check(json!({"clusterIP": "None"}), &[]);
    check(json!({}), &["spec.ports: Required value"]);
    check(json!({"type": "ExternalName", "externalName": "a.b."}), &[]);
    check(
        json!({"type": "Odd", "sessionAffinity": "Some", "ports": [{"port": 0, "name": "A", "targetPort": "a_b"}, {"port": 80}]}),
        &[
            "spec.ports[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].targetPort: Invalid value: \"a_b\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            "spec.ports[1].name: Required value",
            "spec.sessionAffinity: Unsupported value: \"Some\": supported values: \"ClientIP\", \"None\"",
            "spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
        ],
    );
    check(
        json!({"ports": [{"port": 80, "nodePort": 30000}], "externalIPs": ["127.0.0.1", "x"], "loadBalancerClass": "c"}),
        &[
            "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "spec.externalIPs[1]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ],
    );
}

#[test]
fn an_address_stays_and_goes_with_the_type() {
    let mut old = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "nodePort": 30000}], "type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}});
    Services.default(&mut old);
    let mut new = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "type": "NodePort"}});
    Services.default(&mut new);
    complete(&mut new, Some(&old));
    Services.prepare_for_update(&mut new, &old);
    assert_eq!(new["spec"]["clusterIP"], "10.0.0.1");
    assert_eq!(new["spec"]["ports"][0]["nodePort"], 30000);
    let mut moved = old.clone();
    moved["spec"]["clusterIP"] = json!("10.0.0.2");
    moved["spec"]["clusterIPs"] = json!(["10.0.0.2"]);
    let errors: Vec<String> = Services.validate_update(&moved, &old).iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"]);
    let mut named = old.clone();
    named["spec"]["type"] = json!("ExternalName");
    named["spec"]["externalName"] = json!("a.b");
    Services.prepare_for_update(&mut named, &old);
    assert!(named["spec"].get("clusterIP").is_none() && named["spec"]["ports"][0].get("nodePort").is_none());
}

#[test]
fn what_is_ignored_deprecated_or_oddly_written_is_told() {
    let told = |spec: Value| {
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        Services.default(&mut service);
        Services.warnings(&service, None)
    };
    assert_eq!(told(json!({"ports": [{"port": 80}]})), Vec::<String>::new());
    assert_eq!(
        told(
            json!({"clusterIP": "None", "clusterIPs": ["None"], "externalIPs": ["10.0.0.1"], "loadBalancerIP": "10.0.0.1"})
        ),
        ["spec.loadBalancerIP is ignored for headless services", "spec.externalIPs is ignored for headless services"],
    );
    assert_eq!(
        told(json!({"ports": [{"port": 80}], "externalIPs": ["fd00:0::1"], "trafficDistribution": "PreferClose"})),
        [
            "spec.externalIPs[0]: IPv6 address \"fd00:0::1\" should be in RFC 5952 canonical format (\"fd00::1\")",
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ],
    );
}
