//! The first objects, as data.

use std::collections::BTreeSet;
use std::net::IpAddr;

use gates::authorization::rbac::GROUP as RBAC;
use machinery::Value;
use rest::allocation::Cidr;
use serde_json::json;

use super::{Repair, Wanted};

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

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The Service by which pods reach the API servers, and its address.
pub fn kubernetes_service(ip: IpAddr, port: u16) -> Vec<Wanted> {
    let own = family(ip);
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    vec![
        // First: a Service takes its address, and one that is taken already it cannot have.
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
    ]
}

/// Its endpoints: the servers that are alive, of which there is one at least. A slice has addresses of one family, that of the first.
pub fn kubernetes_endpoints(live: &BTreeSet<IpAddr>, port: u16) -> Vec<Wanted> {
    let kind = live.first().copied().map_or("IPv4", family);
    let (endpoints, addresses): (Vec<Value>, Vec<Value>) = live
        .iter()
        .filter(|address| family(**address) == kind)
        .map(|address| (json!({"addresses": [address], "conditions": {"ready": true}}), json!({"ip": address})))
        .unzip();
    vec![
        Wanted {
            group: "discovery.k8s.io",
            plural: "endpointslices",
            object: json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "kubernetes", "namespace": "default", "generation": 1,
                    "labels": {"kubernetes.io/service-name": "kubernetes"}},
                "addressType": kind,
                "endpoints": endpoints,
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            }),
            repair: Repair::Always,
        },
        Wanted {
            group: "",
            plural: "endpoints",
            object: json!({
                "apiVersion": "v1", "kind": "Endpoints",
                "metadata": {"name": "kubernetes", "namespace": "default",
                    "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
                "subsets": [{"addresses": addresses, "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
            }),
            repair: Repair::Always,
        },
    ]
}

/// The bootstrap roles and bindings.
pub fn rbac() -> Vec<Wanted> {
    let objects = gates::authorization::rbac::bootstrap::objects();
    let wanted = |(plural, object)| Wanted { group: RBAC, plural, object, repair: Repair::Rules };
    objects.into_iter().chain(page()).map(wanted).collect()
}

/// Who may load the page: everybody, because somebody who is to sign in there is nobody yet. The files hold no datum.
fn page() -> [(&'static str, Value); 2] {
    let name = "trireme:page";
    let (label, annotation) = (facts::rbac::BOOTSTRAPPING, facts::rbac::AUTOUPDATE);
    let metadata = json!({"name": name, "labels": {label.0: label.1}, "annotations": {annotation.0: annotation.1}});
    let group = |name: &str| json!({"apiGroup": RBAC, "kind": "Group", "name": name});
    let version = format!("{RBAC}/v1");
    let role = json!({
        "apiVersion": version, "kind": "ClusterRole", "metadata": metadata,
        "rules": [{"nonResourceURLs": ["/ui", "/ui/*"], "verbs": ["get"]}],
    });
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [group("system:authenticated"), group("system:unauthenticated")],
    });
    [("clusterroles", role), ("clusterrolebindings", binding)]
}
