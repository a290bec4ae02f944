//! What a cluster needs so that nodes can join it: whom they ask, what they may ask, and what they get.
//!
//! The ways are upstream's: bootstrap tokens are Secrets, `cluster-info` says whom to trust, new nodes ask for their
//! certificate by a CertificateSigningRequest. The names of the bindings are those of upstream's documentation.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Client, DeleteOptions};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use rules::names::{BOOTSTRAP_TOKEN, BOOTSTRAP_TOKEN_PREFIX, SERVER_BOOTSTRAPPERS, SERVERS_PATH};
use serde_json::{Value, json};

use super::addons::made;
use super::agent::Cluster;
use crate::agent::token::Token;
use crate::component::Failure;

/// In `kube-public`: how to reach the cluster and whom to trust there.
pub const CLUSTER_INFO: &str = "cluster-info";
/// In `kube-system`: the cluster's networks, for its nodes.
const NETWORKS: &str = "trireme-cluster";
pub(super) const RBAC: &str = "rbac.authorization.k8s.io";
/// The file of the token that the server keeps.
const TOKEN_FILE: &str = "token";

/// Makes everything. `server` is where nodes reach the API.
pub async fn ensure(
    client: &Client,
    server: &str,
    authority_pem: &str,
    cluster: &Cluster,
    token: &Token,
) -> Result<(), Failure> {
    for (name, role, group) in [
        ("create-csrs-for-bootstrapping", "system:node-bootstrapper", "system:bootstrappers"),
        (
            "auto-approve-csrs-for-group",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            "system:bootstrappers",
        ),
        (
            "auto-approve-renewals-for-nodes",
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            "system:nodes",
        ),
    ] {
        let subject = json!({"apiGroup": RBAC, "kind": "Group", "name": group});
        made(client.create(&binding(name, role, &subject)?).await)?;
    }
    // A cluster that an earlier version made has a role here that says more than it should: the Node authorizer gives nodes,
    // and only nodes, what they need.
    for gone in [
        client.delete::<ClusterRoleBinding>("", "trireme:node-services", &DeleteOptions::default()).await.err(),
        client.delete::<ClusterRole>("", "trireme:node-services", &DeleteOptions::default()).await.err(),
    ] {
        if let Some(error) = gone.filter(|error| !error.is_not_found()) {
            return Err(error.into());
        }
    }
    let approver = "trireme:kubelet-serving-approver";
    let approvals = json!([
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"],
         "resourceNames": ["kubernetes.io/kubelet-serving"]},
    ]);
    made(client.create(&role(approver, &approvals)?).await)?;
    let account = json!({"kind": "ServiceAccount", "name": "kubelet-serving-approver", "namespace": "kube-system"});
    made(client.create(&binding(approver, approver, &account)?).await)?;

    let everybody = json!({"apiGroup": RBAC, "kind": "User", "name": "system:anonymous"});
    readable(client, "kube-public", CLUSTER_INFO, &everybody).await?;
    let nodes = json!({"apiGroup": RBAC, "kind": "Group", "name": "system:nodes"});
    readable(client, "kube-system", NETWORKS, &nodes).await?;
    keep(client, &map("kube-system", NETWORKS, &networks(cluster))?).await?;
    ensure_server_joins(client).await?;
    keep_token(client, token, "The server's own token, as in the file in its data directory.", None, &[]).await?;
    // Last: a node that finds it finds everything.
    keep_info(client, server, authority_pem).await
}

/// Lets tokens for servers ask for what servers need, and nobody else.
async fn ensure_server_joins(client: &Client) -> Result<(), Failure> {
    let name = "trireme:server-bootstrapper";
    let rules = json!([{"nonResourceURLs": [SERVERS_PATH], "verbs": ["post"]}]);
    made(client.create(&role(name, &rules)?).await)?;
    let subject = json!({"apiGroup": RBAC, "kind": "Group", "name": SERVER_BOOTSTRAPPERS});
    made(client.create(&binding(name, name, &subject)?).await)
}

/// Says where the cluster is: at this server, unless another one that is alive is named already.
async fn keep_info(client: &Client, server: &str, authority_pem: &str) -> Result<(), Failure> {
    let wanted = info(server, authority_pem);
    let made = client.create(&map("kube-public", CLUSTER_INFO, &json!({"kubeconfig": wanted}))?).await;
    match made {
        Err(error) if error.is_already_exists() => {}
        outcome => return Ok(outcome.map(drop)?),
    }
    let mut present = client.get::<ConfigMap>("kube-public", CLUSTER_INFO).await?;
    let named = read_info(&present);
    if named.as_ref().is_ok_and(|(named, authority)| named == server && authority == authority_pem) {
        return Ok(());
    }
    if let Ok((named, authority)) = &named
        && authority == authority_pem
        && is_alive(client, named).await?
    {
        return Ok(());
    }
    present.data.get_or_insert_default().insert("kubeconfig".to_owned(), wanted);
    match client.update(&present).await {
        // Another server says where it is at the same moment, which is as good.
        Err(error) if error.is_conflict() => Ok(()),
        outcome => Ok(outcome.map(drop)?),
    }
}

/// Whether a server is among the endpoints of the `kubernetes` Service.
async fn is_alive(client: &Client, server: &str) -> Result<bool, Failure> {
    let slice = match client.get::<EndpointSlice>("default", "kubernetes").await {
        Ok(slice) => slice,
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let host = server.parse::<http::Uri>().ok();
    let host = host.as_ref().and_then(http::Uri::host).unwrap_or_default().trim_matches(['[', ']']);
    let mut addresses = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
    Ok(addresses.any(|address| address == host))
}

/// The token in the server's data directory, made at its first start. It outlives a renewed authority, not a replaced one.
pub fn own_token(data_dir: &Path, pin: &str) -> Result<Token, pki::Error> {
    let file = data_dir.join(TOKEN_FILE);
    let kept = std::fs::read_to_string(&file).ok().and_then(|text| text.parse::<Token>().ok());
    let token = match kept {
        Some(token) if token.pin.as_deref() == Some(pin) => return Ok(token),
        Some(token) => Token { pin: Some(pin.to_owned()), ..token },
        None => Token::generate(pin.to_owned()),
    };
    pki::write_private(&file, &format!("{}\n", token.reveal()))?;
    Ok(token)
}

/// Makes a token known to the cluster, until a time or for good.
pub async fn keep_token(
    client: &Client,
    token: &Token,
    description: &str,
    expiration: Option<String>,
    groups: &[&str],
) -> Result<(), Failure> {
    let mut data = json!({
        "token-id": token.id, "token-secret": token.secret, "usage-bootstrap-authentication": "true",
        "description": description,
    });
    if let Some(expiration) = expiration {
        data["expiration"] = json!(expiration);
    }
    if !groups.is_empty() {
        data["auth-extra-groups"] = json!(groups.join(","));
    }
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": format!("{BOOTSTRAP_TOKEN_PREFIX}{}", token.id), "namespace": "kube-system"},
        "type": BOOTSTRAP_TOKEN, "stringData": data,
    }))?;
    made(client.create(&secret).await)
}

/// The networks of the cluster that a node is in.
pub async fn read_networks(client: &Client) -> Result<ConfigMap, client::Error> {
    client.get::<ConfigMap>("kube-system", NETWORKS).await
}

/// What the networks' ConfigMap says.
pub fn cluster_of(map: &ConfigMap) -> Result<Cluster, Failure> {
    let value = |key: &str| {
        let found = map.data.as_ref().and_then(|data| data.get(key));
        found.ok_or_else(|| Failure::from(format!("ConfigMap {NETWORKS} has no {key}")))
    };
    Ok(Cluster {
        pods: ranges(value("podSubnet")?)?,
        services: ranges(value("serviceSubnet")?)?,
        dns: value("clusterDNS")?.parse()?,
        domain: value("dnsDomain")?.clone(),
    })
}

fn networks(cluster: &Cluster) -> Value {
    let list = |ranges: &[IpNet]| ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    json!({
        "podSubnet": list(&cluster.pods), "serviceSubnet": list(&cluster.services), "clusterDNS": cluster.dns,
        "dnsDomain": cluster.domain,
    })
}

fn ranges(text: &str) -> Result<Vec<IpNet>, ipnet::AddrParseError> {
    text.split(',').map(str::parse).collect()
}

/// A kubeconfig without a user.
fn info(server: &str, authority_pem: &str) -> String {
    let authority = STANDARD.encode(authority_pem);
    format!(
        "apiVersion: v1
kind: Config
preferences: {{}}
clusters:
- name: \"\"
  cluster:
    server: {server}
    certificate-authority-data: {authority}
contexts: null
current-context: \"\"
users: null
"
    )
}

/// The server and the authority that `cluster-info` names.
fn read_info(map: &ConfigMap) -> Result<(String, String), String> {
    let text = map.data.as_ref().and_then(|data| data.get("kubeconfig")).ok_or("cluster-info has no kubeconfig")?;
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let cluster = &tree["clusters"][0]["cluster"];
    let authority = cluster["certificate-authority-data"].as_str().and_then(|data| STANDARD.decode(data).ok());
    let authority = authority.and_then(|bytes| String::from_utf8(bytes).ok());
    let server = cluster["server"].as_str().ok_or("cluster-info names no server")?;
    Ok((server.to_owned(), authority.ok_or("cluster-info names no authority")?))
}

/// The authority that `cluster-info` names, in PEM.
pub fn authority_of(map: &ConfigMap) -> Result<String, String> {
    read_info(map).map(|(_, authority)| authority)
}

/// The server that `cluster-info` names.
pub fn server_of(map: &ConfigMap) -> Result<String, String> {
    read_info(map).map(|(server, _)| server)
}

fn map(namespace: &str, name: &str, data: &Value) -> serde_json::Result<ConfigMap> {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}, "data": data}))
}

fn role(name: &str, rules: &Value) -> serde_json::Result<ClusterRole> {
    serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules}))
}

fn binding(name: &str, role: &str, subject: &Value) -> serde_json::Result<ClusterRoleBinding> {
    let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role});
    serde_json::from_value(json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}))
}

/// Lets somebody read one ConfigMap.
async fn readable(client: &Client, namespace: &str, name: &str, subject: &Value) -> Result<(), Failure> {
    let metadata = json!({"name": format!("trireme:{name}"), "namespace": namespace});
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get"]});
    let reference = json!({"apiGroup": RBAC, "kind": "Role", "name": format!("trireme:{name}")});
    let role: Role = serde_json::from_value(json!({"metadata": metadata, "rules": [rule]}))?;
    let binding: RoleBinding =
        serde_json::from_value(json!({"metadata": metadata, "roleRef": reference, "subjects": [subject]}))?;
    made(client.create(&role).await)?;
    made(client.create(&binding).await)
}

/// Makes a ConfigMap or brings it up to date.
async fn keep(client: &Client, wanted: &ConfigMap) -> Result<(), Failure> {
    let (namespace, name) = (wanted.metadata.namespace.as_deref(), wanted.metadata.name.as_deref());
    let Err(error) = client.create(wanted).await else { return Ok(()) };
    if !error.is_already_exists() {
        return Err(error.into());
    }
    let mut present = client.get::<ConfigMap>(namespace.unwrap_or_default(), name.unwrap_or_default()).await?;
    if present.data != wanted.data {
        present.data.clone_from(&wanted.data);
        client.update(&present).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_are_told_can_be_read_back() {
        let cluster = Cluster {
            pods: ranges("10.244.0.0/16").expect("a range"),
            services: ranges("10.96.0.0/16,fd96::/108").expect("two ranges"),
            dns: "10.96.0.10".parse().expect("an address"),
            domain: "cluster.local".to_owned(),
        };
        let published = map("kube-system", NETWORKS, &networks(&cluster)).expect("a ConfigMap");
        assert_eq!(cluster_of(&published).expect("a cluster"), cluster);
        assert!(cluster_of(&ConfigMap::default()).is_err());
        let published = json!({"kubeconfig": info("https://192.0.2.1:6443", "authority")});
        let published = map("kube-public", CLUSTER_INFO, &published).expect("a ConfigMap");
        assert_eq!(authority_of(&published).as_deref(), Ok("authority"));
        assert_eq!(server_of(&published).as_deref(), Ok("https://192.0.2.1:6443"));
        assert!(authority_of(&ConfigMap::default()).is_err());
    }

    #[test]
    fn the_servers_token_is_made_once_and_follows_its_authority() {
        let directory = tempfile::tempdir().expect("a directory");
        let pin = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let first = own_token(directory.path(), &pin("1")).expect("a token");
        assert_eq!(own_token(directory.path(), &pin("1")).expect("a token"), first);
        let other = own_token(directory.path(), &pin("2")).expect("a token");
        assert_eq!((&other.secret, other.pin.as_deref()), (&first.secret, Some(pin("2").as_str())));
    }
}
