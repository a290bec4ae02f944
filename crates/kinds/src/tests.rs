//! What two comparisons with upstream's server taught about several kinds at once: an object, or a change of one, and everything said of it. What is
//! about one kind is with that kind.

use machinery::Value;
use serde_json::json;

use crate::strategy;
use crate::testing::{change, create, drops, said, status};

#[test]
fn fields_behind_gates_that_are_off_are_dropped() {
    let container = json!({
        "name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"},
        "volumeMounts": [{"name": "v", "mountPath": "/v", "bindMountOptions": ["a"]}],
    });
    let volume = json!({
        "name": "v", "emptyDir": {"mode": 7}, "secret": {"defaultUser": 0, "items": [{"key": "k", "path": "p", "user": 0}]},
        "projected": {"defaultUser": 0, "sources": [{"serviceAccountToken": {"path": "p", "user": 0}}]},
    });
    let spec = json!({"containers": [container], "volumes": [volume]});
    let of_pods = [
        "/containers/0/lifecycle",
        "/containers/0/volumeMounts/0/bindMountOptions",
        "/volumes/0/emptyDir/mode",
        "/volumes/0/secret/defaultUser",
        "/volumes/0/secret/items/0/user",
        "/volumes/0/projected/defaultUser",
        "/volumes/0/projected/sources/0/serviceAccountToken/user",
    ];
    let below = |root: &str| -> Vec<String> { of_pods.iter().map(|pointer| format!("{root}{pointer}")).collect() };
    let check = |group: &str, kind: &str, object: Value, root: &str| {
        let pointers = below(root);
        drops(group, kind, object, &pointers.iter().map(String::as_str).collect::<Vec<_>>());
    };
    check("", "Pod", json!({"spec": spec}), "/spec");
    check("apps", "Deployment", json!({"spec": {"template": {"spec": spec}}}), "/spec/template/spec");
    let job = json!({"spec": {"jobTemplate": {"spec": {"scheduling": {}, "template": {"spec": {}}}}}});
    drops("batch", "CronJob", job, &["/spec/jobTemplate/spec/scheduling"]);
    let derived = json!({"spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"derivedAttributes": []}}, {"name": "s", "firstAvailable": [{"derivedAttributes": []}]},
    ]}}});
    let pointers = [
        "/spec/devices/requests/0/exactly/derivedAttributes",
        "/spec/devices/requests/1/firstAvailable/0/derivedAttributes",
    ];
    drops("resource.k8s.io", "ResourceClaim", derived.clone(), &pointers);
    let template = json!({"spec": derived});
    let pointers: Vec<String> = pointers.iter().map(|pointer| format!("/spec{pointer}")).collect();
    let pointers: Vec<&str> = pointers.iter().map(String::as_str).collect();
    drops("resource.k8s.io", "ResourceClaimTemplate", template, &pointers);
    drops(
        "resource.k8s.io",
        "ResourceSlice",
        json!({"spec": {"skipNodeOperations": ["a"], "partitionTypeAttribute": "a", "devices": [{"nodeAllocatableResources": {}}]}}),
        &["/spec/skipNodeOperations", "/spec/partitionTypeAttribute", "/spec/devices/0/nodeAllocatableResources"],
    );
    let node = json!({"spec": {"configSource": {}, "podPreemptionPolicy": {}}});
    drops("", "Node", node, &["/spec/configSource", "/spec/podPreemptionPolicy"]);
}

fn claim_template(metadata: Value, requests: Value) -> Value {
    json!({"metadata": {"name": "t", "namespace": "n"}, "spec": {"metadata": metadata, "spec": {"devices": {"requests": requests}}}})
}

#[test]
fn a_template_of_claims_says_only_what_its_user_may_say() {
    let good = json!([{"name": "r", "exactly": {"deviceClassName": "c"}}]);
    let check = |new: Value, expect: &[&str]| create("resource.k8s.io", "ResourceClaimTemplate", new, expect);
    check(claim_template(json!({"labels": {"a": "b"}}), good.clone()), &[]);
    check(
        claim_template(json!({"uid": "x", "name": "y"}), good.clone()),
        &["spec.metadata.name: Forbidden: cannot be set", "spec.metadata.uID: Forbidden: cannot be set"],
    );
    let both = json!([{
        "name": "r",
        "exactly": {"deviceClassName": "c"},
        "firstAvailable": [{"name": "s", "deviceClassName": "c", "allocationMode": "x"}],
    }]);
    check(
        claim_template(json!({}), both.clone()),
        &[
            "spec.spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            "spec.spec.devices.requests[0].firstAvailable[0].allocationMode: Unsupported value: \"x\": supported values: \"All\", \"ExactCount\"",
        ],
    );
    let old = claim_template(json!({}), good);
    let changed = said("resource.k8s.io", "ResourceClaimTemplate", claim_template(json!({}), both), Some(&old));
    assert_eq!(changed.len(), 3, "what is wrong, and that it may not change: {changed:?}");
    assert!(changed[2].starts_with("spec: Invalid value: {\"Spec\":{\"Devices\":{\"Requests\":["), "{changed:?}");
}

#[test]
fn what_is_no_selector_is_said_once() {
    let bad = json!({"matchExpressions": [{"key": "a", "operator": "x"}]});
    let operator =
        |at: &str| format!("{at}.matchExpressions[0].operator: Invalid value: \"x\": not a valid selector operator");
    let role = json!({"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [bad]}});
    let at = "aggregationRule.clusterRoleSelectors[0]";
    create(
        "rbac.authorization.k8s.io",
        "ClusterRole",
        role,
        &[&operator(at), &format!("{at}: Invalid value: null: invalid label selector.")],
    );
    let pods = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "s"}, "spec": {"selector": bad, "template": pods}});
    let found = said("apps", "StatefulSet", set, None);
    let whole = "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"x\"}]}";
    assert_eq!(found, [operator("spec.selector"), whole.to_owned()]);
    let mut template = pods;
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "metadata": {"name": "j", "uid": "u"},
        "spec": {"manualSelector": true, "selector": bad, "template": template},
    });
    create("batch", "Job", job, &[&operator("spec.selector")]);
}

#[test]
fn other_texts() {
    let level = |spec: Value| json!({"metadata": {"name": "l"}, "spec": spec});
    create(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        level(json!({"type": "Limited", "exempt": {}, "limited": {"limitResponse": {"type": "Reject"}}})),
        &["spec.exempt: Forbidden"],
    );
    create(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        level(json!({"type": "Limited", "limited": {"limitResponse": {"type": "x", "queuing": {}}}})),
        &[
            "spec.limited.limitResponse.type: Unsupported value: \"x\": supported values: \"Queue\", \"Reject\"",
            "spec.limited.limitResponse.queuing: Forbidden",
        ],
    );
    let schema = json!({"metadata": {"name": "s"}, "spec": {
        "matchingPrecedence": 100, "priorityLevelConfiguration": {"name": "l"}, "distinguisherMethod": {"type": "x"},
    }});
    create(
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
        schema,
        &[
            "spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"x\"}: supported values: \"ByNamespace\", \"ByUser\"",
        ],
    );
    let attachment = json!({"metadata": {"name": "a"}, "spec": {
        "attacher": "Bad_", "nodeName": "n", "source": {"persistentVolumeName": "v"},
    }});
    let caseless = said("storage.k8s.io", "VolumeAttachment", attachment, None);
    assert!(
        caseless.len() == 1 && caseless[0].contains("an RFC 1123 subdomain must consist of alphanumeric"),
        "{caseless:?}"
    );
    drops(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"endpoints": [{"addresses": ["10.0.0.1"], "deprecatedTopology": {"a": "b"}}]}),
        &["/endpoints/0/deprecatedTopology"],
    );
    let claim = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
        "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"},
    }});
    create("", "PersistentVolumeClaim", claim, &["spec: Invalid value: {}: must match dataSourceRef"]);
    let mut pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {
        "containers": [{"name": "c", "image": "i", "restartPolicyRules": [{"action": "Restart"}]}],
    }});
    create(
        "",
        "Pod",
        pod.clone(),
        &[
            "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
            "spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
        ],
    );
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
    pod["spec"]["volumes"] = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": {"uid": "x"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}}}]);
    create("", "Pod", pod, &["spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.uID: Forbidden: cannot be set"]);
}

#[test]
fn a_status_is_filled_in_checked_and_cut_as_the_rest() {
    let (_, errors) = status(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        json!({"status": {"conditions": [{}]}}),
        &json!({}),
    );
    let expected = [
        "status.conditions[0].type: Required value: is required",
        "status.conditions[0].status: Required value",
        "status.conditions[0].lastTransitionTime: Required value",
        "status.conditions[0].reason: Required value",
    ];
    assert_eq!(errors, expected);
    let (node, _) = status("", "Node", json!({"status": {"config": {"error": "x"}}}), &json!({}));
    assert_eq!(node["status"], json!({}));
    let (claim, _) = status("", "PersistentVolumeClaim", json!({"status": {"healthStatus": {}}}), &json!({}));
    assert_eq!(claim["status"].get("healthStatus"), None);
    let (namespace, errors) = status("", "Namespace", json!({"metadata": {"name": "n"}}), &json!({}));
    assert_eq!((&namespace["status"]["phase"], errors), (&json!("Active"), Vec::new()));
    let count = json!({"deprecated.daemonset.template.generation": "3"});
    let (set, _) = status("apps", "DaemonSet", json!({"metadata": {}}), &json!({"metadata": {"annotations": count}}));
    assert_eq!(set["metadata"]["annotations"], count);
}

#[test]
fn a_flexible_volume_is_not_counted_against_others() {
    let volume = |sources: Value| {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
        spec.as_object_mut().expect("an object").extend(sources.as_object().expect("an object").clone());
        json!({"metadata": {"name": "v"}, "spec": spec})
    };
    create("", "PersistentVolume", volume(json!({"hostPath": {"path": "/a"}, "flexVolume": {"driver": "d"}})), &[]);
    create(
        "",
        "PersistentVolume",
        volume(json!({"nfs": {"server": "s", "path": "/a"}, "cephfs": {"monitors": ["m"]}})),
        &["spec.cephFS: Forbidden: may not specify more than 1 volume type"],
    );
}

pub const NETWORKING: &str = "networking.k8s.io";

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
