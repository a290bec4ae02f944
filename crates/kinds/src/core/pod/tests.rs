//! What upstream refuses in a pod, in its words.

use machinery::Value;
use serde_json::json;

use super::*;
use crate::core::pod_template::PodTemplates;
use crate::testing::status;

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

fn pod(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
    Pods.default(&mut pod);
    pod
}

fn check(spec: Value, expected: &[&str]) {
    let errors: Vec<String> = Pods.validate(&pod(spec)).iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected);
}

fn one() -> Value {
    json!([{"name": "c", "image": "i"}])
}

#[test]
fn a_plain_pod_is_in_order() {
    check(json!({"containers": one()}), &[]);
}

#[test]
fn containers_are_checked_all_at_once() {
    check(json!({}), &["spec.containers: Required value"]);
    check(
        json!({"containers": [{"name": "c"}, {"name": "c", "image": "i", "ports": [{"containerPort": 0}, {"containerPort": 70000, "protocol": "X", "name": "a--b"}]}]}),
        &[
            "spec.containers[0].image: Required value",
            "spec.containers[1].ports[0].containerPort: Required value",
            "spec.containers[1].ports[1].name: Invalid value: \"a--b\": must not contain consecutive hyphens",
            "spec.containers[1].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.containers[1].ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            "spec.containers[1].name: Duplicate value: \"c\"",
        ],
    );
    check(
        json!({"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Often", "env": [
            {"name": "a=b"}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "spec.none"}}}, {"name": "G", "valueFrom": {}}]}]}),
        &[
            "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
            "spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.none\": error converting fieldPath: field label not supported: spec.none",
            "spec.containers[0].env[2].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ],
    );
}

#[test]
fn volumes_and_mounts_belong_together() {
    check(
        json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "none", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "hostPath": {"path": "/x/../y"}}, {"name": "w", "secret": {}, "configMap": {"name": "c"}}]}),
        &[
            "spec.volumes[1].hostPath.path: Invalid value: \"/x/../y\": must not contain '..'",
            "spec.volumes[1].name: Duplicate value: \"v\"",
            "spec.volumes[2].secret.secretName: Required value",
            "spec.volumes[2].configMap: Forbidden: may not specify more than 1 volume type",
            "spec.containers[0].volumeMounts[0].name: Not found: \"none\"",
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique",
        ],
    );
}

#[test]
fn probes_have_one_handler() {
    check(
        json!({"containers": [{"name": "c", "image": "i", "livenessProbe": {"successThreshold": 2, "exec": {"command": ["a"]}, "tcpSocket": {"port": 1}},
            "readinessProbe": {}, "lifecycle": {"preStop": {"sleep": {"seconds": 60}}}}]}),
        &[
            "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 60: must be non-negative and less than terminationGracePeriodSeconds (30)",
            "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            "spec.containers[0].readinessProbe: Required value: must specify a handler type",
        ],
    );
}

#[test]
fn resources_fit_each_other() {
    check(
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"memory": "2Gi", "cpu": "-1"}, "limits": {"memory": "1Gi", "what": "1"}}}]}),
        &[
            "spec.containers[0].resources.limits[what]: Invalid value: \"what\": must be a standard resource type or fully qualified",
            "spec.containers[0].resources.limits[what]: Invalid value: \"what\": must be a standard resource for containers",
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.containers[0].resources.requests: Invalid value: \"2Gi\": must be less than or equal to memory limit of 1Gi",
            "spec.containers[0].resources.requests[what]: Invalid value: \"what\": must be a standard resource type or fully qualified",
            "spec.containers[0].resources.requests[what]: Invalid value: \"what\": must be a standard resource for containers",
        ],
    );
}

#[test]
fn what_is_counted_is_whole_however_much_it_is() {
    let of =
        |amount: &str| json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"a.b/x": amount}}}]});
    for whole in ["3", "1e18", "8Ei", "9223372036854775807", "10e999"] {
        check(of(whole), &[]);
    }
    let refused = |kind: &str| {
        format!("spec.containers[0].resources.{kind}[a.b/x]: Invalid value: \"1500m\": must be an integer")
    };
    check(of("1500m"), &[&refused("limits"), &refused("requests")]);
}

#[test]
fn placement_is_checked() {
    check(
        json!({"containers": one(), "tolerations": [{"operator": "Equal"}, {"key": "a", "operator": "Exists", "value": "v"}, {"key": "a", "effect": "Never"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": {"topologyKey": "a"}}]}},
            "topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "Perhaps"}]}),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100",
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"Perhaps\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            "spec.tolerations[1].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
            "spec.tolerations[2].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ],
    );
}

#[test]
fn security_contexts_are_checked() {
    check(
        json!({"securityContext": {"runAsUser": -1, "seccompProfile": {"type": "Localhost"}, "sysctls": [{"name": "A"}]},
            "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true, "allowPrivilegeEscalation": false, "procMount": "Unmasked"}}]}),
        &[
            "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
            "spec.containers[0].securityContext: Invalid value: {\"allowPrivilegeEscalation\":false,\"privileged\":true,\"procMount\":\"Unmasked\"}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.securityContext.sysctls[0].name: Invalid value: \"A\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
        ],
    );
}

#[test]
fn names_and_the_network_are_checked() {
    check(
        json!({"containers": [{"name": "c", "image": " i", "ports": [{"containerPort": 80, "hostPort": 81}]}], "hostNetwork": true,
            "dnsPolicy": "None", "nodeName": "A", "hostname": "a.b", "restartPolicy": "Sometimes", "activeDeadlineSeconds": 0, "os": {"name": "plan9"}}),
        &[
            "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
            "spec.nodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "spec.hostname: Invalid value: \"a.b\": must not contain dots",
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
            "spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\"",
            "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
        ],
    );
}

#[test]
fn little_of_a_pod_may_change() {
    let old = pod(
        json!({"containers": one(), "tolerations": [{"key": "a", "operator": "Exists"}], "activeDeadlineSeconds": 5}),
    );
    let refused = |change: fn(&mut Value)| -> Vec<String> {
        let mut new = old.clone();
        change(&mut new);
        Pods.validate_update(&new, &old)
            .iter()
            .map(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(refused(|new| value::set(&mut new["spec"]["containers"][0], "image", "other")), Vec::<String>::new());
    assert_eq!(refused(|new| value::set(new, "spec.activeDeadlineSeconds", 4)), Vec::<String>::new());
    assert_eq!(
        refused(|new| value::set(new, "spec.activeDeadlineSeconds", 6)),
        ["spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"]
    );
    assert_eq!(
        refused(|new| value::set(new, "spec.tolerations", json!([]))),
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
    );
    assert_eq!(
        refused(|new| value::set(new, "spec.hostname", "h")),
        [
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        ]
    );
    assert_eq!(
        refused(|new| value::set(new, "spec.containers", json!([]))).last().map(String::as_str),
        Some("spec.containers: Forbidden: pod updates may not add or remove containers")
    );
}

#[test]
fn a_resize_changes_compute_and_nothing_else() {
    let old = pod(json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}));
    let resized = |change: fn(&mut Value)| -> Vec<String> {
        let mut new = old.clone();
        change(&mut new);
        Pods.prepare_for_subresource_update("resize", &mut new, &old);
        Pods.validate_subresource_update("resize", &new, &old).iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        resized(|new| new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2")),
        Vec::<String>::new()
    );
    assert_eq!(
        resized(|new| new["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = json!("2")),
        ["spec: Forbidden: only cpu and memory resources are mutable"]
    );
    assert_eq!(
        resized(|new| new["spec"]["containers"][0]["name"] = json!("d")),
        ["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"]
    );
    // Everything else is not for a resize to say.
    let mut new = old.clone();
    new["spec"]["containers"][0]["image"] = json!("j");
    new["metadata"]["labels"] = json!({"a": "b"});
    new["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    Pods.prepare_for_subresource_update("resize", &mut new, &old);
    assert_eq!(new, old);
    assert_eq!(
        resized(|new| new["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "1Gi"}})),
        ["spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"]
    );
}

#[test]
fn a_status_follows_from_the_one_before() {
    let mut old = pod(json!({"containers": one(), "restartPolicy": "Never"}));
    value::set(
        &mut old,
        "status",
        json!({"qosClass": "BestEffort", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]}),
    );
    let mut new = old.clone();
    value::set(
        &mut new,
        "status",
        json!({"qosClass": "Burstable", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}], "containerStatuses": [{"name": "c", "state": {"running": {}}}]}),
    );
    let errors: Vec<String> = Pods.validate_status_update(&new, &old).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "status.qosClass: Invalid value: \"Burstable\": field is immutable",
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
            "status.podIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `podIP`",
        ]
    );
}

#[test]
fn oddities_are_told() {
    let mut odd = pod(
        json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "volumes": [{"name": "v", "gitRepo": {"repository": "r"}}],
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            "ports": [{"containerPort": 80, "name": "x"}, {"containerPort": 80, "name": "x"}], "resources": {"limits": {"memory": "100m"}}}]}),
    );
    value::set(&mut odd, "metadata.name", "a.b");
    assert_eq!(
        Pods.warnings(&odd, None),
        [
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]",
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
            "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.containers[0].resources.requests[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            "spec.containers[0].ports[1]: duplicate port name \"x\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
        ]
    );
}

#[test]
fn what_all_lies_upon_each_other_is_not_said_of_every_pair() {
    let ports: Vec<Value> = (0..2_000).map(|_| json!({"containerPort": 80})).collect();
    let items: Vec<Value> =
        (0..2_000).map(|at| json!({"key": "k", "path": format!("a{}", "/a".repeat(at % 50))})).collect();
    let crowded = pod(json!({
        "containers": [{"name": "c", "image": "i", "ports": ports}],
        "volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}],
    }));
    let told = Pods.warnings(&crowded, None).len();
    assert!((1_000..3_000).contains(&told), "{told} warnings, of which an answer carries a few dozen");
}

#[test]
fn templates_are_not_filled_in_like_pods() {
    let mut template = json!({"template": {"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1"}}}]}}});
    PodTemplates.default(&mut template);
    let container = &template["template"]["spec"]["containers"][0];
    assert!(container["resources"].get("requests").is_none());
    assert!(container["ports"][0].get("hostPort").is_none());
    assert!(template["template"]["spec"].get("enableServiceLinks").is_none());
}

#[test]
fn quality_comes_from_requests_and_limits() {
    let class =
        |resources: Value| rules::qos::class_in(&json!({"spec": {"containers": [{"resources": resources}]}})).as_str();
    assert_eq!(class(json!({})), "BestEffort");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(
        class(json!({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1000m", "memory": "1"}})),
        "Guaranteed"
    );
}

#[test]
fn an_annotation_for_app_armor_becomes_the_field() {
    let mut pod = json!({
        "metadata": {"name": "p", "annotations": {
            "container.apparmor.security.beta.kubernetes.io/a": "localhost/x",
            "container.apparmor.security.beta.kubernetes.io/b": "runtime/default",
            "container.apparmor.security.beta.kubernetes.io/c": "odd"}},
        "spec": {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}, {"name": "c", "image": "i"}]},
    });
    assert_eq!(
        Pods.warnings_about_sent(&pod),
        ["a", "c"].map(|name| format!(
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        ))
    );
    Pods.prepare_for_create(&mut pod);
    let own = |at: usize| pod["spec"]["containers"][at]["securityContext"]["appArmorProfile"].clone();
    assert_eq!(own(0), json!({"type": "Localhost", "localhostProfile": "x"}));
    // What the whole pod has already, or what makes no sense, is no field of the container's.
    assert_eq!((own(1), own(2)), (Value::Null, Value::Null));
}

#[test]
fn a_whole_pod_gets_what_its_containers_say() {
    let completed = |spec: Value| {
        let mut pod = pod(spec);
        Pods.prepare_for_create(&mut pod);
        pod["spec"]["resources"].take()
    };
    let limits = json!({"cpu": "1", "memory": "64Mi", "hugepages-2Mi": "2Mi"});
    let containers = json!([{"name": "c", "image": "i", "resources": {"limits": limits}}]);
    assert_eq!(
        completed(json!({"containers": containers, "resources": {"requests": {"cpu": "2"}}})),
        json!({
            "requests": {"cpu": "2", "memory": "64Mi", "hugepages-2Mi": "2Mi"},
            "limits": {"cpu": "2", "memory": "64Mi", "hugepages-2Mi": "2Mi"},
        }),
        "what the pod asks for is never above what it may use"
    );
    let larger = json!({"limits": {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"}});
    let huge = completed(json!({"containers": containers, "resources": larger}));
    assert_eq!(huge["requests"]["hugepages-2Mi"], "4Mi", "pages are asked for as they are limited");
    let open = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i", "resources": {"limits": limits}}]);
    let partly = completed(json!({"containers": open, "resources": {"requests": {"cpu": "2"}}}));
    assert_eq!(partly["limits"], json!({"hugepages-2Mi": "2Mi"}), "one container without a limit has no bound");
    assert_eq!(
        completed(json!({"containers": containers, "resources": {}})),
        json!({}),
        "nothing is said of the whole"
    );
}

#[test]
fn certificates_of_pods_carry_annotations_with_a_domain() {
    let volume = |annotations: Value| {
        let source = json!({"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519", "credentialBundlePath": "c", "userAnnotations": annotations}});
        json!({"containers": one(), "volumes": [{"name": "v", "projected": {"sources": [source]}}]})
    };
    check(volume(json!({"ACME.io/Foo": "x"})), &[]);
    check(
        volume(json!({"x": "y"})),
        &[
            "spec.volumes[0].projected.sources[0].podCertificate.userAnnotations: Invalid value: \"x\": must be a domain-prefixed key (such as \"acme.io/foo\")",
        ],
    );
}

#[test]
fn ports_and_projections_that_do_nothing_are_told() {
    let port = json!({"name": "http", "containerPort": 80, "hostIP": "1.2.3.4"});
    let sources = json!([
        {"podCertificate": {"keyPath": "a/b", "certificateChainPath": "a"}},
        {},
        {"serviceAccountToken": {"path": "a/b", "expirationSeconds": 600}},
    ]);
    let spec = json!({
        "containers": [{"name": "c", "image": "i", "ports": [port]}],
        "volumes": [{"name": "v", "projected": {"sources": sources}}],
    });
    assert_eq!(
        warnings::of_pod(&pod(spec)),
        [
            "volume \"v\" (Projected): overlapping paths: \"a/b\" (PodCertificate key) with \"a\" (PodCertificate chain)",
            "volume \"v\" (Projected) has no sources provided",
            "volume \"v\" (Projected): overlapping paths: \"a/b\" (ServiceAccountToken) with \"a\" (PodCertificate chain)",
            "volume \"v\" (Projected): overlapping paths: \"a/b\" (ServiceAccountToken) with \"a/b\" (PodCertificate key)",
            "spec.containers[0].ports[0]: hostIP set without hostPort: {Name:http HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}",
        ]
    );
}

#[test]
fn a_pod_gets_one_node_once() {
    let free = json!({"metadata": {"labels": {"a": "b"}}, "status": {"nominatedNodeName": "m", "conditions": [{"type": "PodScheduled", "status": "False"}]}});
    assert_eq!(subresources::unbindable("p", &free), None);
    let binding = json!({"metadata": {"annotations": {"c": "d"}}, "target": {"kind": "Node", "name": "n"}});
    assert!(subresources::binding_errors(&binding).is_empty());
    let bound = subresources::bound(&free, &binding, "n", "2026-01-01T00:00:00Z");
    assert_eq!(bound["metadata"], json!({"labels": {"a": "b"}, "annotations": {"c": "d"}}));
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["status"]["conditions"].as_array().map(Vec::len), Some(1));
    assert_eq!(bound["status"]["conditions"][0]["status"], "True");
    assert_eq!(bound["status"].get("nominatedNodeName"), None, "the place is decided");
    let refused = |pod: &Value| subresources::unbindable("p", pod).unwrap_or_default();
    assert_eq!(refused(&bound), "pod p is already assigned to node \"n\"");
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(refused(&going), "pod p is being deleted, cannot be assigned to a host");
    let gated = json!({"spec": {"schedulingGates": [{"name": "g"}]}});
    assert_eq!(refused(&gated), "pod p has non-empty .spec.schedulingGates");
    let nowhere = subresources::binding_errors(&json!({"target": {"kind": "Pod"}}));
    let nowhere: Vec<String> = nowhere.iter().map(ToString::to_string).collect();
    assert_eq!(
        nowhere,
        [
            "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
            "target.name: Required value"
        ]
    );
}
