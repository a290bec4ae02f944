//! What a cluster of ours has besides its API: the Service of cluster DNS and what DNS may read, what nodes read for network policies, a default class of volumes
//! and what its provisioner may do, and the word whose certificates are believed.

use std::net::IpAddr;

use apiserver::gates::authentication::certificates::FrontProxy;
use client::{Client, Event, Kind, Patch, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::{Value, json};

use super::agent::DNS_METRICS_PORT;
use super::joining::RBAC;
use crate::component::Failure;

const SYSTEM: &str = "kube-system";
const DNS: &str = "kube-dns";
const AUTHENTICATION: &str = "extension-apiserver-authentication";

/// Whose word about clients is believed, for other servers to believe the same.
#[derive(Clone)]
pub struct Believed {
    /// Authorities of clients' certificates, in PEM.
    pub clients: String,
    /// Those of a proxy that has authenticated already, which this server is to aggregated ones, and how it says who asks.
    pub front_proxy: FrontProxy,
}

/// Makes what nobody else would make again: the word whose certificates are believed, and the Service of cluster DNS. What
/// comes back ends when some of it is changed or gone.
pub async fn ensure_kept(
    client: &Client,
    believed: &Believed,
    dns: IpAddr,
) -> Result<impl Future<Output = ()> + Send + use<>, Failure> {
    // Watched before it is looked at: what goes in between is not overlooked.
    let service = changed::<Service>(client, DNS).await?;
    let map = changed::<ConfigMap>(client, AUTHENTICATION).await?;
    ensure_authentication(client, believed).await?;
    ensure_dns(client, dns).await?;
    Ok(async move {
        tokio::select! {
            () = service => {}
            () = map => {}
        }
    })
}

/// Makes the word whose certificates are believed. What comes back ends when it is changed or gone.
pub async fn ensure_believed(
    client: &Client,
    believed: &Believed,
) -> Result<impl Future<Output = ()> + Send + use<>, Failure> {
    let map = changed::<ConfigMap>(client, AUTHENTICATION).await?;
    ensure_authentication(client, believed).await?;
    Ok(map)
}

async fn changed<K: Kind>(
    client: &Client,
    name: &str,
) -> Result<impl Future<Output = ()> + Send + use<K>, client::Error> {
    let params = WatchParams { field_selector: format!("metadata.name={name}"), ..WatchParams::default() };
    let mut events = client.watch::<K>(SYSTEM, &params).await?;
    Ok(async move { while let Some(Ok(Event::Added(_) | Event::Bookmark { .. })) = events.next().await {} })
}

/// Makes the class of volumes in directories of the nodes, the default one until somebody chooses another.
pub async fn ensure_storage_class(client: &Client) -> Result<(), Failure> {
    made(client.create(&controllers::default_storage_class()).await)
}

/// Lets nodes read what network policies are made of. They speak of all pods, so a node that enforces them has to know all pods, as
/// the agents of other networks do; the Node authorizer alone would show it none but its own.
pub async fn ensure_network_policy(client: &Client) -> Result<(), Failure> {
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods", "namespaces", "nodes"], "verbs": ["list", "watch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
        {"apiGroups": ["policy.networking.k8s.io"], "resources": ["clusternetworkpolicies"], "verbs": ["list", "watch"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ]);
    let subjects = json!([
        {"apiGroup": RBAC, "kind": "Group", "name": "system:nodes"},
        {"apiGroup": RBAC, "kind": "User", "name": "system:network-policy"},
    ]);
    grant(client, "trireme:network-policy", rules, subjects).await
}

/// Lets whoever leads the controllers say what became of the cluster's policies.
pub async fn ensure_policy_status(client: &Client) -> Result<(), Failure> {
    let rules = json!([
        {"apiGroups": ["policy.networking.k8s.io"], "resources": ["clusternetworkpolicies"], "verbs": ["list", "watch"]},
        {"apiGroups": ["policy.networking.k8s.io"], "resources": ["clusternetworkpolicies/status"], "verbs": ["patch"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["list", "watch"]},
    ]);
    let user = format!("system:{}", super::controllers::POLICIES);
    let subjects = json!([{"apiGroup": RBAC, "kind": "User", "name": user}]);
    grant(client, &user, rules, subjects).await
}

/// Lets the provisioner of directories tell nodes to remove them: of all that a kubelet does, that alone is asked for by `DELETE`.
pub async fn ensure_local_path(client: &Client) -> Result<(), Failure> {
    let rules = json!([{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["delete"]}]);
    let subjects = json!([{"kind": "ServiceAccount", "namespace": SYSTEM, "name": "persistent-volume-binder"}]);
    grant(client, "trireme:local-path", rules, subjects).await
}

/// A role and who has it, where they are missing; a role of an earlier version is brought up to date.
async fn grant(client: &Client, name: &str, rules: Value, subjects: Value) -> Result<(), Failure> {
    let metadata = json!({"name": name});
    let role: ClusterRole = serde_json::from_value(json!({"metadata": metadata, "rules": rules}))?;
    let reference = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": name});
    let binding = json!({"metadata": metadata, "roleRef": reference, "subjects": subjects});
    let binding: ClusterRoleBinding = serde_json::from_value(binding)?;
    match client.create(&role).await {
        // That of an earlier version may allow less.
        Err(error) if error.is_already_exists() => {
            let rules = json!({"rules": role.rules});
            client.patch::<ClusterRole>("", name, &Patch::Merge(rules)).await.map(drop)?;
        }
        outcome => drop(outcome?),
    }
    made(client.create(&binding).await)
}

/// Makes the `kube-dns` Service where it is missing. It has no selector: every node answers at its address itself.
async fn ensure_dns(client: &Client, address: IpAddr) -> Result<(), Failure> {
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": 53, "targetPort": 53});
    let metrics = DNS_METRICS_PORT;
    let metrics = json!({"name": "metrics", "protocol": "TCP", "port": metrics, "targetPort": metrics});
    let service: Service = serde_json::from_value(json!({
        "metadata": {
            "name": DNS, "namespace": SYSTEM,
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS", "kubernetes.io/cluster-service": "true"},
        },
        "spec": {"clusterIP": address, "ports": [port("dns", "UDP"), port("dns-tcp", "TCP"), metrics]},
    }))?;
    let rules = json!([
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]);
    let subjects = json!([{"apiGroup": RBAC, "kind": "User", "name": "system:coredns"}]);
    grant(client, "system:coredns", rules, subjects).await?;
    match client.create(&service).await {
        // The address is taken: by the very Service, made by another server at the same moment, or by a user's choice.
        Err(client::Error::Api(error)) if error.code == 422 => {
            tracing::debug!("kube-dns: {error}");
            Ok(())
        }
        outcome => made(outcome),
    }
}

/// Says whose certificates the API server believes, for other servers that are to believe the same: those of aggregated APIs,
/// and parts of the control plane in processes of their own.
async fn ensure_authentication(client: &Client, believed: &Believed) -> Result<(), Failure> {
    let names = |names: &[String]| json!(names).to_string();
    let proxy = &believed.front_proxy;
    let data = json!({
        "client-ca-file": believed.clients,
        "requestheader-allowed-names": names(&proxy.allowed_names),
        "requestheader-client-ca-file": proxy.authority,
        "requestheader-extra-headers-prefix": names(&proxy.extra_prefixes),
        "requestheader-group-headers": names(&proxy.group_headers),
        "requestheader-uid-headers": names(&proxy.uid_headers),
        "requestheader-username-headers": names(&proxy.user_headers),
    });
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": AUTHENTICATION, "namespace": SYSTEM}, "data": data}))?;
    match client.create(&map).await {
        Err(error) if error.is_already_exists() => {
            let patch = Patch::Merge(json!({"data": data}));
            Ok(client.patch::<ConfigMap>(SYSTEM, AUTHENTICATION, &patch).await.map(drop)?)
        }
        outcome => Ok(outcome.map(drop)?),
    }
}

/// There already is as good as made.
pub(super) fn made<K>(outcome: Result<K, client::Error>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.is_already_exists() => Ok(()),
        outcome => Ok(outcome.map(|_| ())?),
    }
}
