//! Wires the load balancer for bare metal: one in the cluster gives Services the nodes' addresses.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use client::Client;
use informer::election::Election;
use informer::{Informers, clock};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::addons::made;
use super::serving::Vitals;
use super::{Identities, fenced, run_elected};
use crate::component::Failure;

const NAME: &str = "service-lb";

/// Runs the load balancer until it is stopped. `reserved` are the TCP ports that nodes need themselves. Where others may run it too, this one's server answers
/// at `contested`.
pub async fn run(
    reserved: Vec<u16>,
    identities: Identities,
    contested: Option<SocketAddr>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    allow(&identities.administrator()).await?;
    let client = identities.component(NAME);
    let reserved: BTreeSet<u16> = reserved.into_iter().collect();
    let run = async |stop, fence| {
        controllers::serviceloadbalancer::run(reserved, &Informers::new(fenced(client, fence)), stop).await;
        Ok(())
    };
    // Nobody asks it how it is: it only runs beside the API server.
    let contested = contested.map(|address| {
        let election = Election { address: Some(address), ..super::lease(NAME) };
        (election, Arc::<Vitals>::default())
    });
    run_elected(NAME, contested, &identities, clock::Real::shared(), stop, run).await
}

/// What it may do: read Services, nodes and endpoints, and say which addresses a Service has.
async fn allow(client: &Client) -> Result<(), Failure> {
    let user = format!("system:{NAME}");
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": user},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"]},
            {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [NAME],
             "verbs": ["get", "update"]},
        ],
    }))?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }))?;
    made(client.create(&role).await)?;
    made(client.create(&binding).await)
}
