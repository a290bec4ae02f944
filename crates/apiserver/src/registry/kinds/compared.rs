//! What a second comparison with upstream's server taught: one field of a good object changed at a time, in a new object and in one
//! that is there. Each case failed before it was mended.

use machinery::Value;
use serde_json::json;

use super::strategy;
use super::tests::{create, said, status};

/// What is said of a change from one object to another.
fn change(group: &str, kind: &str, old: Value, new: Value, expect: &[&str]) {
    assert_eq!(said(group, kind, new.clone(), Some(&old)), expect, "{new}");
}

const NETWORKING: &str = "networking.k8s.io";

#[test]
fn ranges_of_services_stay_and_gain_the_other_family() {
    let ranges = |list: Value| json!({"metadata": {"name": "r"}, "spec": {"cidrs": list}});
    let twice = "spec.cidrs: Invalid value: [\"10.0.0.0/16\",\"10.1.0.0/16\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
    create(NETWORKING, "ServiceCIDR", ranges(json!(["10.0.0.0/16", "10.1.0.0/16"])), &[twice]);
    create(NETWORKING, "ServiceCIDR", ranges(json!([])), &["spec.cidrs: Required value: at least one CIDR required"]);
    let old = || ranges(json!(["10.0.0.0/16"]));
    let check = |list: Value, expect: &[&str]| change(NETWORKING, "ServiceCIDR", old(), ranges(list), expect);
    check(json!(["10.0.0.0/16", "fd00::/64"]), &[]);
    check(json!(["10.0.0.0/16", "10.1.0.0/16"]), &[twice]);
    check(json!([""]), &["spec.cidrs[0]: Invalid value: \"\": field is immutable"]);
    check(json!(["a", "b", "c"]), &["spec.cidrs: Invalid value: [\"a\",\"b\",\"c\"]: field is immutable"]);
}

#[test]
fn a_status_of_a_strict_kind_leaves_the_metadata_alone() {
    let old = json!({"metadata": {"labels": {"a": "b"}}});
    let sent = || json!({"metadata": {"labels": {"c": "d"}, "finalizers": ["x"]}});
    for (group, kind) in
        [(NETWORKING, "ServiceCIDR"), ("storage.k8s.io", "VolumeAttachment"), ("storage.k8s.io", "CSINode")]
    {
        let (new, _) = status(group, kind, sent(), &old);
        assert_eq!(new["metadata"], old["metadata"], "{kind}");
    }
    let (new, _) = status("apps", "Deployment", sent(), &old);
    assert_eq!(new["metadata"]["finalizers"], json!(["x"]), "most kinds are not so strict");
}

#[test]
fn the_network_kinds_tell_empty_from_absent() {
    let class = |spec: Value| json!({"metadata": {"name": "c"}, "spec": spec});
    let parameters =
        |scope: Value| class(json!({"controller": "a.b/c", "parameters": {"kind": "K", "name": "n", "scope": scope}}));
    create(
        NETWORKING,
        "IngressClass",
        parameters(json!("")),
        &["spec.parameters.scope: Unsupported value: \"\": supported values: \"Cluster\", \"Namespace\""],
    );
    let old = class(json!({"controller": "a.b/c"}));
    let cleared = said(NETWORKING, "IngressClass", class(json!({})), Some(&old));
    assert_eq!(cleared[0], "spec.controller: Invalid value: \"\": field is immutable");
    let mut policy = json!({"metadata": {"name": "p"}});
    strategy(NETWORKING, "NetworkPolicy").default(&mut policy);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
    let block = |except: Value| {
        let from = json!([{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}]);
        json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": [{"from": from}]}})
    };
    change(
        NETWORKING,
        "NetworkPolicy",
        block(json!(["10.1.0.0/16"])),
        block(json!([""])),
        &[
            "spec.ingress[0].from[1].ipBlock.except[0]: Invalid value: \"\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ],
    );
    let address = |parent: Value| json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": parent}});
    change(
        NETWORKING,
        "IPAddress",
        address(json!({"resource": "services", "name": "s"})),
        address(json!({"resource": "services"})),
        &["spec.parentRef.name: Required value", "spec.parentRef: Invalid value: null: field is immutable"],
    );
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [], "ports": [{"name": "a", "protocol": ""}]});
    create(
        "discovery.k8s.io",
        "EndpointSlice",
        slice,
        &["ports[0].protocol: Unsupported value: \"\": supported values: \"SCTP\", \"TCP\", \"UDP\""],
    );
}

#[test]
fn what_the_schema_says_is_said_last() {
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{}]});
    create(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        binding,
        &[
            "roleRef.kind: Unsupported value: \"\": supported values: \"Role\", \"ClusterRole\"",
            "subjects[0].kind: Unsupported value: \"\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            "roleRef.name: Required value",
            "subjects[0].name: Required value",
        ],
    );
    let job = said("batch", "CronJob", json!({"metadata": {"name": "j"}}), None);
    assert_eq!(job.last().map(String::as_str), Some("spec.schedule: Required value"), "{job:?}");
    let level = json!({"metadata": {"name": "l"}, "spec": {"limited": {"limitResponse": {"type": "Reject"}}}});
    create(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        level,
        &["spec.limited: Forbidden", "spec.type: Required value"],
    );
    let attachment =
        json!({"metadata": {"name": "a"}, "spec": {"source": {"persistentVolumeName": ""}, "nodeName": "n"}});
    let refused = said("storage.k8s.io", "VolumeAttachment", attachment, None);
    let paths: Vec<&str> = refused.iter().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(paths, ["spec.source.persistentVolumeName", "spec.source.persistentVolumeName", "spec.attacher"]);
    let scaler = json!({"metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": -1, "minReplicas": 1,
    }});
    create(
        "autoscaling",
        "HorizontalPodAutoscaler",
        scaler,
        &[
            "spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
            "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
        ],
    );
}

#[test]
fn a_runtime_class_is_checked_whole_when_it_changes() {
    let class = |selector: &str| json!({"metadata": {"name": "r"}, "handler": "h", "scheduling": {"nodeSelector": {"a": selector}}});
    let refused = said("node.k8s.io", "RuntimeClass", class("-"), Some(&class("b")));
    assert!(
        refused.len() == 1 && refused[0].starts_with("scheduling.nodeSelector: Invalid value: \"-\""),
        "{refused:?}"
    );
}

fn stateful(spec: Value) -> Value {
    let mut set = json!({"metadata": {"name": "s"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    set["spec"].as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    set
}

#[test]
fn a_stateful_set_is_left_with_the_strategy_it_names() {
    let strategy = strategy("apps", "StatefulSet");
    let rolling = |given: Value| {
        let mut set = stateful(json!({"updateStrategy": given}));
        strategy.default(&mut set);
        set["spec"]["updateStrategy"]["rollingUpdate"].take()
    };
    assert_eq!(rolling(json!({})), json!({"partition": 0, "maxUnavailable": 1}));
    assert_eq!(rolling(json!({"type": "RollingUpdate"})), Value::Null);
    assert_eq!(
        rolling(json!({"type": "RollingUpdate", "rollingUpdate": {}})),
        json!({"partition": 0, "maxUnavailable": 1})
    );
    let odd = stateful(json!({"revisionHistoryLimit": -1}));
    assert_eq!(
        strategy.warnings(&odd, None),
        ["spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"]
    );
    let claim = json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100m"}}}});
    let claims = stateful(json!({"volumeClaimTemplates": [claim.clone(), claim]}));
    create("apps", "StatefulSet", claims.clone(), &[]);
    let path = "spec.volumeClaimTemplates[0].resources.requests[storage]";
    assert!(strategy.warnings(&claims, None)[0].starts_with(path), "{:?}", strategy.warnings(&claims, None));
    let mut old = stateful(json!({"serviceName": "a"}));
    strategy.default(&mut old);
    change(
        "apps",
        "StatefulSet",
        old,
        stateful(json!({"serviceName": "A_b"})),
        &["spec.serviceName: Invalid value: \"A_b\": field is immutable"],
    );
}

#[test]
fn a_claim_shrinks_no_further_than_what_it_got() {
    let claim = |size: &str| {
        json!({"metadata": {"name": "c", "namespace": "n"}, "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "resources": {"requests": {"storage": size}},
        }})
    };
    change("", "PersistentVolumeClaim", claim("5Gi"), claim("3Gi"), &[]);
    let less = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
    change("", "PersistentVolumeClaim", claim("5Gi"), claim("2Gi"), &[less]);
    let mut bare = claim("5Gi");
    bare["spec"]["resources"] = json!({});
    let refused = said("", "PersistentVolumeClaim", bare, Some(&claim("5Gi")));
    assert_eq!(refused.last().map(String::as_str), Some(less), "{refused:?}");
    let mut foreign = claim("5Gi");
    foreign["spec"]["dataSourceRef"] = json!({"kind": "PersistentVolumeClaim", "name": "x", "namespace": "other"});
    strategy("", "PersistentVolumeClaim").prepare_for_create(&mut foreign);
    assert_eq!(foreign["spec"].get("dataSourceRef"), None, "contents of other namespaces are behind a gate");
}

#[test]
fn bytes_that_are_null_are_there() {
    let secret =
        |kind: &str, key: &str| json!({"metadata": {"name": "s"}, "type": kind, "data": {key: null, "tls.key": null}});
    create("", "Secret", secret("kubernetes.io/tls", "tls.crt"), &[]);
    create(
        "",
        "Secret",
        secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson"),
        &["data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input"],
    );
}

#[test]
fn a_node_with_ranges_that_cannot_be_read() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": ["10.0.0.0/24", "x"], "taints": [
        {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"},
    ]}});
    let refused = said("", "Node", node, None);
    assert_eq!(
        refused[0],
        "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and effect pair"
    );
    assert_eq!(
        refused[2],
        "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)"
    );
}

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

#[test]
fn an_event_is_judged_in_the_words_of_its_group() {
    let event = json!({"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "n"},
        "eventTime": "2024-01-01T00:00:00.000000Z", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal"});
    let strategy = strategy("", "Event");
    for (version, field) in [("v1", "reportingComponent"), ("events.k8s.io/v1", "reportingController")] {
        for old in [None, Some(&event)] {
            let errors = strategy.validate_version(version, &event, old);
            assert_eq!(errors[0].to_string(), format!("{field}: Required value"), "{version}");
        }
    }
}

#[test]
fn a_job_without_labels_has_those_of_its_pods() {
    let strategy = strategy("batch", "Job");
    let made = |labels: Value| {
        let mut job = json!({"metadata": {"name": "j", "labels": labels}, "spec": {
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        }});
        strategy.default(&mut job);
        let taken = strategy.take_labels(&mut job);
        let written = job["metadata"]["labels"].clone();
        job["metadata"]["uid"] = json!("u");
        if taken {
            strategy.return_labels(&mut job);
        }
        strategy.prepare_for_create(&mut job);
        (written, job["metadata"]["labels"].take(), job["spec"]["template"]["metadata"]["labels"].take())
    };
    let (written, kept, of_pods) = made(Value::Null);
    assert_eq!(written, json!({"app": "x"}), "its author is said to have written them");
    assert_eq!(kept, of_pods, "and it has what its pods have in the end");
    assert_eq!(kept["batch.kubernetes.io/job-name"], "j");
    let own = json!({"app": "x"});
    assert_eq!(made(own.clone()).1, own, "labels of its own stay, even if they are the same");
}

#[test]
fn names_of_drivers_and_handlers_are_counted_in_bytes() {
    let long = "a".repeat(300);
    let attachment = json!({"metadata": {"name": "a"}, "spec": {"attacher": long, "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    let refused = said("storage.k8s.io", "VolumeAttachment", attachment, None);
    assert!(refused[0].ends_with("must be no more than 253 bytes"), "{refused:?}");
    assert_eq!(refused[1], "spec.attacher: Too long: may not be more than 63 characters");
    let class = json!({"metadata": {"name": "r"}, "handler": "a".repeat(64)});
    let refused = said("node.k8s.io", "RuntimeClass", class, None);
    assert!(refused.len() == 1 && refused[0].ends_with("must be no more than 63 bytes"), "{refused:?}");
}

#[test]
fn the_health_of_what_containers_were_given_is_checked() {
    let pod = |health: Value| {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"a.b/gpu": "1"}, "claims": [{"name": "d", "request": "r"}]}});
        json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [container]},
            "status": {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": health}]}})
    };
    let check = |health: Value, expect: &[&str]| {
        let (_, errors) = status("", "Pod", pod(health), &pod(json!([])));
        assert_eq!(errors, expect);
    };
    let good = json!([{"resourceID": "1", "health": "Healthy"}]);
    check(json!([{"name": "a.b/gpu", "resources": good}, {"name": "claim:d/r", "resources": good}]), &[]);
    let at = "status.containerStatuses[0].allocatedResourcesStatus[0]";
    check(
        json!([{"name": "cpu", "resources": [{"resourceID": "1", "health": "", "message": ""}, {"resourceID": "1", "health": "Unknown"}]}]),
        &[
            &format!("{at}.name: Invalid value: \"cpu\": must match one of the container's resource requests"),
            &format!(
                "{at}.resources[0].health: Unsupported value: \"\": supported values: \"Healthy\", \"Unhealthy\", \"Unknown\""
            ),
            &format!("{at}.resources[0].message: Required value: must be non-empty if specified"),
            &format!("{at}.resources[1].resourceID: Duplicate value: \"1\""),
        ],
    );
    let (_, errors) = status("", "Pod", pod(json!([{"name": "claim:d", "resources": []}])), &pod(json!([])));
    assert!(
        errors.len() == 1 && errors[0].contains("resource claims as 'claim:<claimName>/<requestName>'"),
        "{errors:?}"
    );
}

#[test]
fn addresses_of_a_pod_that_cannot_be_read_cannot_be_compared() {
    let pod = |status: Value| json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {}, "status": status});
    let sent = pod(json!({"hostIP": "10.0.0.2", "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "x"}]}));
    let (_, errors) = status("", "Pod", sent, &pod(json!({})));
    assert_eq!(errors[0], "status.hostIPs[0].ip: Invalid value: \"10.0.0.1\": must be equal to `hostIP`");
    assert_eq!(errors[2], "status.hostIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: x");
}

#[test]
fn a_volume_says_since_when_it_is_in_its_phase() {
    let volume = |phase: &str, time: Value| json!({"status": {"phase": phase, "lastPhaseTransitionTime": time}});
    let stamped = |mut new: Value, old: &Value| {
        strategy("", "PersistentVolume").stamp_status(&mut new, old, &|| "now".to_owned());
        new["status"]["lastPhaseTransitionTime"].take()
    };
    let old = volume("Pending", json!("then"));
    assert_eq!(stamped(volume("Pending", Value::Null), &old), "then");
    assert_eq!(stamped(volume("Bound", Value::Null), &old), "now");
    assert_eq!(stamped(volume("Bound", json!("then")), &old), "now");
    assert_eq!(stamped(volume("Bound", json!("later")), &old), "later");
}

#[test]
fn changes_of_storage_kinds_are_judged_whole() {
    let node = |id: &str| json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "d.b", "nodeID": id, "topologyKeys": null}]}});
    change(
        "storage.k8s.io",
        "CSINode",
        node("a"),
        node("b"),
        &[
            "spec.drivers: Invalid value: {\"Name\":\"d.b\",\"NodeID\":\"b\",\"TopologyKeys\":null,\"Allocatable\":null}: field is immutable",
        ],
    );
    let capacity = |label: &str| json!({"metadata": {"name": "c"}, "storageClassName": "s", "nodeTopology": {"matchLabels": {"a": label}}});
    let refused = said("storage.k8s.io", "CSIStorageCapacity", capacity("-"), Some(&capacity("b")));
    assert_eq!(refused.len(), 2, "what is wrong, and that it may not change: {refused:?}");
    let claim = |group: &str| {
        let source = json!({"apiGroup": group, "kind": "K", "name": "x"});
        json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "resources": {"requests": {"storage": "1Gi"}},
            "dataSource": source, "dataSourceRef": source,
        }})
    };
    let made = said("", "PersistentVolumeClaim", claim("A_b"), None);
    assert!(made.iter().any(|line| line.starts_with("spec.dataSourceRef.apiGroup: Invalid value")), "{made:?}");
    let changed = said("", "PersistentVolumeClaim", claim("A_b"), Some(&claim("a.b")));
    assert!(changed.len() == 1 && changed[0].starts_with("spec: Forbidden"), "{changed:?}");
}

#[test]
fn what_an_event_loses_is_shown_as_empty() {
    let event = json!({"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "n"}, "reason": "r", "action": "a",
        "eventTime": "2024-01-01T00:00:00.000000Z", "reportingComponent": "a.b/c", "reportingInstance": "i", "type": "Normal"});
    let mut bare = event.clone();
    bare.as_object_mut().expect("an object").remove("action");
    let errors = strategy("", "Event").validate_version("events.k8s.io/v1", &bare, Some(&event));
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["action: Required value", "action: Invalid value: \"\": field is immutable"]);
}

#[test]
fn what_checking_of_types_found_says_where_and_what() {
    let checked = json!({"status": {"typeChecking": {"expressionWarnings": [{"fieldRef": "f"}]}}});
    let (_, errors) = status("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", checked, &json!({}));
    assert_eq!(errors, ["status.typeChecking.expressionWarnings[0].warning: Required value"]);
    let scaler = json!({"status": {"conditions": [{"type": "A", "observedGeneration": -1}]}});
    let (_, errors) = status("autoscaling", "HorizontalPodAutoscaler", scaler, &json!({}));
    assert_eq!(
        errors,
        ["status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to 0"]
    );
}

#[test]
fn a_waiting_job_may_be_told_where_to_run() {
    let job = |affinity: Value| {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"suspend": true, "selector": {"matchLabels": {"a": "b"}},
            "manualSelector": true, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }},
        }});
        if !affinity.is_null() {
            job["spec"]["template"]["spec"]["affinity"] = affinity;
        }
        strategy("batch", "Job").default(&mut job);
        job
    };
    let nodes = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    ]}}});
    for (old, new) in
        [(Value::Null, json!({})), (json!({}), Value::Null), (Value::Null, nodes.clone()), (nodes, Value::Null)]
    {
        change("batch", "Job", job(old), job(new), &[]);
    }
    let pods = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}});
    assert_eq!(
        said("batch", "Job", job(pods), Some(&job(Value::Null))).len(),
        1,
        "where other pods are is not for later"
    );
}
