//! What a comparison with upstream's server taught about single kinds: an object, or a change of one, and everything said of it.

use machinery::Value;
use serde_json::json;

use super::strategy;
use crate::registry::internal;

/// What a strategy says of a new object, or of a change, as the client reads it.
pub(super) fn said(group: &str, kind: &str, mut new: Value, old: Option<&Value>) -> Vec<String> {
    let strategy = strategy(group, kind);
    strategy.default(&mut new);
    let mut errors = match old {
        None => {
            strategy.prepare_for_create(&mut new);
            strategy.validate(&new)
        }
        Some(old) => {
            strategy.prepare_for_update(&mut new, old);
            strategy.validate_update(&new, old)
        }
    };
    internal::show(&mut errors, facts::type_of(group, "v1", kind).map(|ty| ty.def()));
    errors.iter().map(ToString::to_string).collect()
}

pub(super) fn create(group: &str, kind: &str, new: Value, expect: &[&str]) {
    assert_eq!(said(group, kind, new.clone(), None), expect, "{new}");
}

/// The fields at these paths are behind gates that are off.
fn drops(group: &str, kind: &str, mut new: Value, pointers: &[&str]) {
    let strategy = strategy(group, kind);
    let old = new.clone();
    for made in [true, false] {
        let mut object = new.clone();
        match made {
            true => strategy.prepare_for_create(&mut object),
            false => strategy.prepare_for_update(&mut object, &old),
        }
        for pointer in pointers {
            assert!(new.pointer_mut(pointer).is_some(), "{kind} has no {pointer} to begin with");
            assert_eq!(object.pointer(pointer), None, "{kind} {pointer}, created: {made}");
        }
    }
}

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
fn a_job_that_waits_may_have_other_metadata_in_its_template() {
    let job = |suspend: bool, image: &str, label: &str| {
        json!({"metadata": {"name": "j", "uid": "u"}, "spec": {
            "suspend": suspend, "manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "completions": 1,
            "template": {
                "metadata": {"labels": {"a": "b", "c": label}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]},
            },
        }})
    };
    let filled = |mut job: Value| {
        strategy("batch", "Job").default(&mut job);
        job
    };
    let changes = |suspend: bool, image: &str, label: &str| {
        said("batch", "Job", job(suspend, image, label), Some(&filled(job(suspend, "i", "d"))))
    };
    assert_eq!(changes(true, "i", "other"), Vec::<String>::new());
    let waiting = changes(true, "other", "other");
    assert!(
        waiting.len() == 1 && waiting[0].starts_with("spec.template.spec: Invalid value: {\"Volumes\":null,"),
        "{waiting:?}"
    );
    let running = changes(false, "i", "other");
    let start = "spec.template: Invalid value: {\"labels\":{\"a\":\"b\",\"c\":\"other\"},\"Spec\":{\"Volumes\":null,";
    assert!(running.len() == 1 && running[0].starts_with(start), "{running:?}");
}

#[test]
fn the_claims_of_a_set_stay_and_are_not_judged_again() {
    let set = |size: Value| {
        let pods = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let claims =
            json!([{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}}]);
        let mut set = json!({"metadata": {"name": "s"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}}, "template": pods, "volumeClaimTemplates": claims,
        }});
        strategy("apps", "StatefulSet").default(&mut set);
        set
    };
    let old = set(json!({"requests": {"storage": "1Gi"}}));
    let changed = said("apps", "StatefulSet", set(json!({})), Some(&old));
    assert!(
        changed.len() == 1 && changed[0].starts_with("spec.volumeClaimTemplates: Invalid value: [{\"name\":\"d\","),
        "{changed:?}"
    );
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

/// What a strategy says of a change of the status, after it has put back or dropped what it does.
pub(super) fn status(group: &str, kind: &str, mut new: Value, old: &Value) -> (Value, Vec<String>) {
    let strategy = strategy(group, kind);
    strategy.default(&mut new);
    strategy.prepare_for_status_update(&mut new, old);
    let errors = strategy.validate_status_update(&new, old);
    (new, errors.iter().map(ToString::to_string).collect())
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

#[test]
fn selectors_of_devices_cost_no_more_than_they_may() {
    let class = |expression: &str| json!({"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    for fine in [
        "cel.bind(d, device.attributes[\"d.example.com\"], d.a && d.b)",
        "device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, d == e && e == f)))",
        "device.attributes[\"d\"].x.matches(\"^a.*$\") && device.capacity[\"d\"].mem == quantity(\"1Gi\")",
    ] {
        create("resource.k8s.io", "DeviceClass", class(fine), &[]);
    }
    let at = "spec.selectors[0].cel.expression";
    for costly in [
        "device.attributes.all(d, device.attributes.all(e, device.attributes.all(f, device.attributes.all(g, true))))",
        "device.attributes.all(d, device.attributes.all(e, device.attributes.exists(f, d.contains(e))))",
        "lists.range(1000).all(x, lists.range(1000).all(y, x == y))",
    ] {
        let refused = format!("{at}: Forbidden: too complex, exceeds cost limit");
        create("resource.k8s.io", "DeviceClass", class(costly), &[&refused]);
    }
    let unknown = "device.attributes[\"d\"].x.foo";
    let refused = format!(
        "{at}: Invalid value: \"device.attributes[\\\"d\\\"].x.foo\": must evaluate to bool or the unknown type, not dyn"
    );
    create("resource.k8s.io", "DeviceClass", class(unknown), &[&refused]);
}
