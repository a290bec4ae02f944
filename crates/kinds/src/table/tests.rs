//! What `kubectl get` shows, kind by kind: an object in YAML-like JSON and the cells it becomes.

use serde_json::json;

use super::*;

/// The time at which all tables of these tests are made.
const NOW: &str = "2026-01-01T01:00:00Z";

/// The cells of an object made an hour before [`NOW`], joined.
fn row(api_version: &str, kind: &str, mut object: Value) -> String {
    value::set(&mut object, "apiVersion", api_version);
    value::set(&mut object, "kind", kind);
    value::set_default(&mut object, "metadata.name", "it");
    value::set_default(&mut object, "metadata.creationTimestamp", "2026-01-01T00:00:00Z");
    let now = NOW.parse().expect("a timestamp");
    let cells = Tables::named(api_version, kind).cells(&object, now);
    cells.iter().map(cells::plain).collect::<Vec<_>>().join(" | ")
}

fn pod(spec: Value, status: Value) -> String {
    row("v1", "Pod", json!({"spec": spec, "status": status}))
}

#[test]
fn a_pod_shows_what_its_containers_do() {
    let one = json!({"containers": [{"name": "a"}], "nodeName": "n"});
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let container = |state: Value, ready: bool| json!({"name": "a", "state": state, "ready": ready});
    let terminated = |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
    let running = || container(json!({"running": {}}), true);
    for (spec, status, shown) in [
        (&one, json!({"phase": "Pending"}), "0/1 | Pending | 0"),
        (&one, json!({"phase": "Running", "containerStatuses": [running()]}), "1/1 | Running | 0"),
        (&one, json!({"phase": "Failed", "reason": "Evicted"}), "0/1 | Evicted | 0"),
        (
            &one,
            json!({"phase": "Pending", "containerStatuses": [container(json!({"waiting": {"reason": "ImagePullBackOff"}}), false)]}),
            "0/1 | ImagePullBackOff | 0",
        ),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses": [container(terminated(3, ""), false)]}),
            "0/1 | ExitCode:3 | 0",
        ),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses": [container(json!({"terminated": {"exitCode": 137, "signal": 9}}), false)]}),
            "0/1 | Signal:9 | 0",
        ),
        (
            &two,
            json!({"phase": "Running", "containerStatuses": [container(terminated(0, "Completed"), false), running()]}),
            "1/2 | NotReady | 0",
        ),
        (
            &two,
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [container(terminated(0, "Completed"), false), running()]}),
            "1/2 | Running | 0",
        ),
        (
            &two,
            json!({"phase": "Running", "containerStatuses": [container(terminated(0, "Completed"), false), container(terminated(1, "Error"), false)]}),
            "0/2 | Error | 0",
        ),
        (
            &one,
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            "0/1 | SchedulingGated | 0",
        ),
        (
            &one,
            json!({"phase": "Running", "containerStatuses": [{"name": "a", "restartCount": 3, "ready": true, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}}]}),
            "1/1 | Running | 3 (5m ago)",
        ),
    ] {
        let cells = pod(spec.clone(), status);
        assert_eq!(cells.split(" | ").skip(1).take(3).collect::<Vec<_>>().join(" | "), shown);
    }
    let wide = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "nominatedNodeName": "m", "conditions": [{"type": "g", "status": "True"}]});
    let gated =
        json!({"containers": [], "nodeName": "n", "readinessGates": [{"conditionType": "g"}, {"conditionType": "h"}]});
    assert_eq!(pod(gated, wide), "it | 0/0 | Running | 0 | 60m | 10.0.0.1 | n | m | 1/2");
}

#[test]
fn a_pod_that_starts_shows_its_init_containers() {
    let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
    let init = |state: Value| json!({"name": "i", "state": state, "restartCount": 2});
    let sidecar = json!({"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}});
    let done = json!({"terminated": {"exitCode": 0}});
    for (statuses, shown) in [
        (json!([init(json!({"waiting": {"reason": "PodInitializing"}}))]), "0/2 | Init:0/2 | 2"),
        (json!([init(json!({"waiting": {"reason": "CrashLoopBackOff"}}))]), "0/2 | Init:CrashLoopBackOff | 2"),
        (json!([init(json!({"terminated": {"exitCode": 1}}))]), "0/2 | Init:ExitCode:1 | 2"),
        (json!([init(json!({"terminated": {"exitCode": 137, "signal": 9}}))]), "0/2 | Init:Signal:9 | 2"),
        (json!([init(json!({"terminated": {"exitCode": 1, "reason": "Error"}}))]), "0/2 | Init:Error | 2"),
        (json!([init(done.clone()), {"name": "s", "state": {"waiting": {}}}]), "0/2 | Init:1/2 | 2"),
        (json!([init(done), sidecar]), "1/2 | Pending | 1"),
    ] {
        let cells = pod(spec.clone(), json!({"phase": "Pending", "initContainerStatuses": statuses}));
        assert_eq!(cells.split(" | ").skip(1).take(3).collect::<Vec<_>>().join(" | "), shown);
    }
}

#[test]
fn a_pod_that_goes_shows_it() {
    for (status, shown) in [
        (json!({"phase": "Running"}), "Terminating"),
        (json!({"phase": "Running", "reason": "NodeLost"}), "Unknown"),
        (json!({"phase": "Succeeded"}), "Succeeded"),
    ] {
        let cells = row("v1", "Pod", json!({"metadata": {"deletionTimestamp": NOW}, "spec": {}, "status": status}));
        assert_eq!(cells.split(" | ").nth(2), Some(shown));
    }
}

#[test]
fn nodes_show_status_roles_and_addresses() {
    let node = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge", "node-role.kubernetes.io/": ""}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "False"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0", "kernelVersion": "6.1", "architecture": "amd64"}}});
    assert_eq!(
        row("v1", "Node", node),
        "it | NotReady,SchedulingDisabled | edge,worker | 60m | v1.37.0 | 10.0.0.1 | <none> | <unknown> | 6.1 (amd64) | <unknown>"
    );
    assert!(row("v1", "Node", json!({})).starts_with("it | Unknown | <none> | 60m"));
}

#[test]
fn services_show_where_they_are_reached() {
    let service = |spec: Value, status: Value| row("v1", "Service", json!({"spec": spec, "status": status}));
    let port = json!([{"port": 80, "protocol": "TCP"}, {"port": 443, "nodePort": 30443, "protocol": "TCP"}]);
    for (spec, status, shown) in [
        (
            json!({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"], "ports": port, "selector": {"a": "b"}}),
            json!({}),
            "it | ClusterIP | 10.0.0.1 | <none> | 80/TCP,443:30443/TCP | 60m | a=b",
        ),
        (
            json!({"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"]}),
            json!({}),
            "it | LoadBalancer | 10.0.0.1 | <pending> | <none> | 60m | <none>",
        ),
        (
            json!({"type": "LoadBalancer", "externalIPs": ["1.1.1.1"]}),
            json!({"loadBalancer": {"ingress": [{"hostname": "b"}, {"ip": "2.2.2.2"}]}}),
            "it | LoadBalancer | <none> | 2.2.2.2,b,1.1.1.1 | <none> | 60m | <none>",
        ),
        (
            json!({"type": "ExternalName", "externalName": "x.y"}),
            json!({}),
            "it | ExternalName | <none> | x.y | <none> | 60m | <none>",
        ),
    ] {
        assert_eq!(service(spec, status), shown);
    }
}

#[test]
fn workloads_show_how_many_are_ready() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}});
    let object = json!({"spec": {"replicas": 3, "template": template, "selector": {"matchLabels": {"a": "b"}}},
        "status": {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2}});
    assert_eq!(row("apps/v1", "Deployment", object.clone()), "it | 2/3 | 1 | 2 | 60m | a,b | i,j | a=b");
    assert_eq!(row("apps/v1", "ReplicaSet", object.clone()), "it | 3 | 3 | 2 | 60m | a,b | i,j | a=b");
    assert_eq!(row("apps/v1", "StatefulSet", object), "it | 2/3 | 60m | a,b | i,j");
    let revision = json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]}, "revision": 4});
    assert_eq!(row("apps/v1", "ControllerRevision", revision), "it | statefulset.apps/web | 4 | 60m");
}

#[test]
fn jobs_show_how_far_they_are() {
    let job = |spec: Value, status: Value| row("batch/v1", "Job", json!({"spec": spec, "status": status}));
    assert!(
        job(json!({"completions": 3}), json!({"succeeded": 1, "startTime": "2026-01-01T00:59:00Z"}))
            .starts_with("it | Running | 1/3 | 60s | 60m")
    );
    assert!(job(json!({"parallelism": 2}), json!({})).starts_with("it | Running | 0/1 of 2 |  | 60m"));
    let complete = json!({"succeeded": 1, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:02:05Z", "conditions": [{"type": "Complete", "status": "True"}]});
    assert!(job(json!({}), complete).starts_with("it | Complete | 1/1 | 2m5s | 60m"));
    let cron = json!({"spec": {"schedule": "* * * * *", "suspend": false}, "status": {"active": [{}]}});
    assert_eq!(row("batch/v1", "CronJob", cron), "it | * * * * * | <none> | False | 1 | <none> | 60m |  |  | <none>");
}

#[test]
fn events_show_the_same_in_both_groups() {
    let series = json!({"count": 7, "lastObservedTime": "2026-01-01T00:59:30.000000Z"});
    let core = json!({"involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"}, "reason": "R", "type": "Warning", "message": " m\n",
        "source": {"component": "kubelet", "host": "n"}, "firstTimestamp": "2026-01-01T00:50:00Z", "lastTimestamp": "2026-01-01T00:58:00Z"});
    assert_eq!(row("v1", "Event", core), "2m | Warning | R | pod/p | spec | kubelet, n | m | 10m | 1 | it");
    let newer = json!({"regarding": {"kind": "Pod", "name": "p"}, "reason": "R", "type": "Normal", "note": "m", "eventTime": "2026-01-01T00:00:00.000000Z",
        "series": series, "reportingController": "c", "reportingInstance": "i"});
    assert_eq!(row("events.k8s.io/v1", "Event", newer), "30s | Normal | R | pod/p |  | c, i | m | 60m | 7 | it");
}

#[test]
fn autoscalers_show_metrics_in_either_version() {
    let v1 = json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5, "minReplicas": 1, "targetCPUUtilizationPercentage": 80}});
    assert_eq!(
        row("autoscaling/v1", "HorizontalPodAutoscaler", v1),
        "it | Deployment/d | cpu: <unknown>/80% | 1 | 5 | 0 | 60m"
    );
    let v2 = json!({"spec": {"maxReplicas": 5, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
            {"type": "Pods", "pods": {"target": {"averageValue": "100m"}}},
            {"type": "Object", "object": {"target": {"value": "1"}}}]},
        "status": {"currentReplicas": 2, "currentMetrics": [{"resource": {"current": {"averageUtilization": 40}}}, {"pods": {"current": {"averageValue": "50m"}}}]}});
    assert_eq!(
        row("autoscaling/v2", "HorizontalPodAutoscaler", v2),
        "it | / | cpu: 40%/80%, 50m/100m + 1 more... | <unset> | 5 | 2 | 60m"
    );
}

#[test]
fn other_kinds_show_what_upstream_shows() {
    for (api_version, kind, object, shown) in [
        ("v1", "Namespace", json!({"status": {"phase": "Active"}}), "it | Active | 60m"),
        ("v1", "Secret", json!({"type": "Opaque", "data": {"a": "", "b": ""}}), "it | Opaque | 2 | 60m"),
        ("v1", "ConfigMap", json!({"data": {"a": ""}, "binaryData": {"b": ""}}), "it | 2 | 60m"),
        ("v1", "LimitRange", json!({}), "it | 2026-01-01T00:00:00Z"),
        (
            "v1",
            "Endpoints",
            json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}], "ports": [{"port": 80}, {"port": 81}]}]}),
            "it | 1.1.1.1:80,[::1]:80,1.1.1.1:81 + 1 more... | 60m",
        ),
        (
            "v1",
            "ResourceQuota",
            json!({"status": {"hard": {"pods": "2", "limits.cpu": "1", "cpu": "3"}, "used": {"pods": "1"}}}),
            "it | cpu: 0/3, pods: 1/2 | limits.cpu: 0/1 | 60m",
        ),
        (
            "v1",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"}, "volumeMode": "Block"}, "status": {"phase": "Bound"}}),
            "it | 1Gi | RWO,RWX | Retain | Bound | n/c |  | <unset> |  | 60m | Block",
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"storageClassName": "s"}, "status": {"phase": "Pending"}}),
            "it | Pending |  |  |  | s | <unset> | 60m | <unset>",
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"tls": [{}], "rules": [{"host": "a"}, {}, {"host": "b"}, {"host": "c"}, {"host": "d"}]}}),
            "it | <none> | a,b,c + 2 more... |  | 80, 443 | 60m",
        ),
        (
            "networking.k8s.io/v1",
            "IPAddress",
            json!({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}}),
            "it | services/n/s | 60m",
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "ports": [{"name": "p"}, {"port": 80}], "endpoints": [{"addresses": ["1.1.1.1"]}]}),
            "it | IPv4 | p,80 | 1.1.1.1 | 60m",
        ),
        ("discovery.k8s.io/v1", "EndpointSlice", json!({"addressType": "IPv4"}), "it | IPv4 | <unset> | <unset> | 60m"),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
            "it | Role/r | 60m | u |  | n/s",
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
            "it | 50% | N/A | 1 | 60m",
        ),
        ("coordination.k8s.io/v1", "Lease", json!({"spec": {"holderIdentity": "h"}}), "it | h | 60m"),
        (
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600}, "status": {"conditions": [{"type": "Approved"}], "certificate": "x"}}),
            "it | 60m | s | u | 60m | Approved,Issued",
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({"spec": {"scope": "Cluster", "group": "g", "names": {"kind": "K", "shortNames": ["k"]}, "versions": [{"name": "v1", "served": true, "storage": true}]}}),
            "it | Cluster | v1(storage) | 2026-01-01T00:00:00Z | g | K | k | false",
        ),
        (
            "apiregistration.k8s.io/v1",
            "APIService",
            json!({"status": {"conditions": [{"type": "Available", "status": "False", "reason": "R"}]}}),
            "it | Local | False (R) | 60m",
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            json!({"value": 7, "preemptionPolicy": "Never"}),
            "it | 7 | false | 60m | Never",
        ),
        (
            "storage.k8s.io/v1",
            "CSIDriver",
            json!({"spec": {"tokenRequests": [{"audience": "a"}]}}),
            "it | true | false | false | a | false | <none> | 60m",
        ),
        (
            "resource.k8s.io/v1",
            "ResourceClaim",
            json!({"status": {"allocation": {}, "reservedFor": [{}]}}),
            "it | allocated,reserved | 60m",
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            json!({"spec": {"policyName": "p", "paramRef": {"name": "x"}}}),
            "it | p | */x | 60m",
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "PriorityLevelConfiguration",
            json!({"spec": {"type": "Exempt"}}),
            "it | Exempt | <none> | <none> | <none> | <none> | 60m",
        ),
    ] {
        assert_eq!(row(api_version, kind, object), shown, "{kind}");
    }
}

#[test]
fn every_column_is_described_and_every_cell_has_one() {
    let mut kinds = 0;
    for group in facts::groups() {
        for resource in group.versions.iter().flat_map(|version| &version.resources) {
            let tables = Tables::named(&resource.api_version(), &resource.kind);
            let cells = tables.cells(&json!({}), NOW.parse().expect("a timestamp"));
            // Upstream's tables of IP addresses have a cell too many.
            let extra = usize::from(resource.kind == "IPAddress");
            assert_eq!(cells.len(), tables.printer.columns.len() + extra, "{}", resource.kind);
            for column in tables.printer.columns {
                assert!(!column.description().is_empty(), "{} {}", resource.kind, column.name);
            }
            kinds += usize::from(!std::ptr::eq(tables.printer, &raw const PLAIN));
        }
    }
    assert!(kinds > 40, "only {kinds} kinds have columns");
}

#[test]
fn lists_mark_the_default_class_and_sort_flow_schemas() {
    let list = |api_version: &str, kind: &str, objects: Vec<Value>| -> Vec<String> {
        let objects: Vec<Arc<Object>> = objects
            .iter()
            .map(|object| {
                Arc::new(Object::from_value(object, 1, &machinery::object::FieldPaths::new(&[])).expect("an object"))
            })
            .collect();
        let table = Tables::named(api_version, kind).table(
            &objects,
            &Query::parse("includeObject=None"),
            &json!({}),
            NOW.parse().expect("a timestamp"),
        );
        table["rows"].as_array().expect("rows").iter().map(|row| cells::plain(&row["cells"][0])).collect()
    };
    let class = |name: &str, made: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name, "creationTimestamp": made,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}})
    };
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    assert_eq!(
        list("storage.k8s.io/v1", "StorageClass", vec![class("a", old), class("b", new), class("c", new)]),
        ["a", "b (default)", "c"]
    );
    let schema = |name: &str, precedence: i64| json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name}, "spec": {"matchingPrecedence": precedence}});
    assert_eq!(
        list("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", vec![schema("b", 2), schema("c", 1), schema("a", 2)]),
        ["c", "a", "b"]
    );
}
