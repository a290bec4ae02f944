//! The first objects, as data.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Repair, Wanted};
use crate::rest::Cidr;

/// The four namespaces.
pub fn namespaces() -> Vec<Wanted> {
    ["default", "kube-system", "kube-public", "kube-node-lease"]
        .into_iter()
        .map(|name| Wanted {
            group: "",
            plural: "namespaces",
            object: json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            }),
            repair: Repair::Never,
        })
        .collect()
}

/// The classes of what the cluster itself runs.
pub fn priority_classes() -> Vec<Wanted> {
    let class = |name: &str, level: i64, description: &str| Wanted {
        group: "scheduling.k8s.io",
        plural: "priorityclasses",
        object: json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name, "generation": 1},
            "value": level, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        }),
        repair: Repair::Never,
    };
    vec![
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
}

/// The ranges that cluster IPs are drawn from. A cluster that got a second family has it here too.
pub fn service_cidr(ranges: &[Cidr], now: &str) -> Wanted {
    let cidrs: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    Wanted {
        group: "networking.k8s.io",
        plural: "servicecidrs",
        object: json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
                "lastTransitionTime": now,
            }]},
        }),
        repair: Repair::Ranges,
    }
}

/// Since which day the use of tokens in Secrets is noted: tokens without a note may have been used before.
pub fn token_tracking(now: &str) -> Wanted {
    let today = now.split_once('T').map_or(now, |(day, _)| day);
    Wanted {
        group: "",
        plural: "configmaps",
        object: json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"},
            "data": {"since": today},
        }),
        repair: Repair::Never,
    }
}

/// The Service by which pods reach the API server, its address, and its endpoints.
pub fn kubernetes_service(ip: IpAddr, advertise: IpAddr, port: u16) -> Vec<Wanted> {
    let name = |address: IpAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let (family, own) = (name(advertise), name(ip));
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let mut wanted = vec![
        Wanted {
            group: "networking.k8s.io",
            plural: "ipaddresses",
            object: json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
                "metadata": {"name": ip, "labels": {
                    "ipaddress.kubernetes.io/ip-family": own,
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                }},
                "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}},
            }),
            repair: Repair::Never,
        },
        Wanted {
            group: "",
            plural: "services",
            object: json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
                "spec": {
                    "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "sessionAffinity": "None",
                    "ipFamilies": [own], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
                },
                "status": {"loadBalancer": {}},
            }),
            repair: Repair::Always,
        },
    ];
    // A Service cannot point at loopback: then nobody but this host reaches the server anyway.
    if advertise.is_loopback() {
        return wanted;
    }
    wanted.push(Wanted {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        object: json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "kubernetes", "namespace": "default", "generation": 1,
                "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": family,
            "endpoints": [{"addresses": [advertise], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }),
        repair: Repair::Always,
    });
    wanted.push(Wanted {
        group: "",
        plural: "endpoints",
        object: json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "kubernetes", "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": advertise}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
        }),
        repair: Repair::Always,
    });
    wanted
}

/// The bootstrap roles and bindings.
pub fn rbac() -> Vec<Wanted> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let api_version = format!("{GROUP}/v1");
    let metadata = |name: &str, namespace: Option<&str>, labels: &[(&str, &str)]| {
        let (label, annotation) = (facts::rbac::BOOTSTRAPPING, facts::rbac::AUTOUPDATE);
        let mut metadata =
            json!({"name": name, "labels": {label.0: label.1}, "annotations": {annotation.0: annotation.1}});
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        for (key, value) in labels {
            metadata["labels"][*key] = json!(value);
        }
        metadata
    };
    let roles = facts::rbac().roles.iter().map(|role| {
        let rules: Vec<Value> = role.rules.iter().filter(|rule| !rule.gated).map(rule).collect();
        let kind = if role.namespace.is_some() { "Role" } else { "ClusterRole" };
        let mut object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": metadata(role.name, role.namespace, &role.labels),
            "rules": rules,
        });
        if !role.aggregates.is_empty() {
            let selectors: Vec<Value> =
                role.aggregates.iter().map(|(key, value)| json!({"matchLabels": {*key: value}})).collect();
            object["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
            // Its rules are the aggregation controller's.
            object.as_object_mut().expect("just made").remove("rules");
        }
        let plural = if role.namespace.is_some() { "roles" } else { "clusterroles" };
        Wanted { group: GROUP, plural, object, repair: Repair::Rules }
    });
    let bindings = facts::rbac().bindings.iter().map(|binding| {
        let subjects: Vec<Value> = binding
            .subjects
            .iter()
            .map(|subject| match subject.namespace {
                Some(namespace) => json!({"kind": subject.kind, "name": subject.name, "namespace": namespace}),
                None => json!({"kind": subject.kind, "name": subject.name, "apiGroup": GROUP}),
            })
            .collect();
        let (kind, plural) = match binding.namespace {
            Some(_) => ("RoleBinding", "rolebindings"),
            None => ("ClusterRoleBinding", "clusterrolebindings"),
        };
        let object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": metadata(binding.name, binding.namespace, &[]),
            "roleRef": {"apiGroup": GROUP, "kind": binding.role_kind, "name": binding.role}, "subjects": subjects,
        });
        Wanted { group: GROUP, plural, object, repair: Repair::Rules }
    });
    roles.chain(bindings).collect()
}

fn rule(rule: &facts::rbac::Rule) -> Value {
    let mut tree = json!({"verbs": rule.verbs});
    for (key, list) in [
        ("apiGroups", &rule.groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.names),
        ("nonResourceURLs", &rule.urls),
    ] {
        if !list.is_empty() {
            tree[key] = json!(list);
        }
    }
    tree
}
