//! Starts the parts that watch the API, beside the server: controllers, scheduler, load balancer.

use std::net::SocketAddr;
use std::sync::Arc;

use informer::election::Election;

use crate::cli::{Engine, Server as Options};
use crate::component::{Components, Failure};
use crate::parts::{self, Identities};

/// An embedded store has one server, so nobody can contest its parts; an etcd may have many, to whom this one says where it is.
fn contested(options: &Options, place: SocketAddr) -> Option<SocketAddr> {
    (options.store.store == Engine::Etcd).then_some(place)
}

/// Starts what watches the API; this server is at `place`.
pub fn start_parts(
    components: &mut Components,
    options: &Options,
    identities: &Identities,
    keys: &Arc<pki::Cluster>,
    place: SocketAddr,
) {
    let contested = contested(options, place);
    if !options.disable_controller_manager {
        let (controllers, range) = (options.controllers.clone(), options.service_cluster_ip_range.clone());
        let (identities, signing) = (identities.clone(), parts::signing::Signing::of_cluster(keys));
        let policies = options.agent.enforces_policies() && !options.disable_addons;
        components.start("kube-controller-manager", move |stop| {
            let (controllers, range) = (controllers.clone(), range.clone());
            let (identities, signing) = (identities.clone(), signing.clone());
            let contested = contested.map(|address| {
                let election = Election { address: Some(address), ..parts::controllers::election() };
                (election, Arc::default())
            });
            async move {
                let contested = (contested, policies);
                parts::controllers::run(controllers, &range, identities, signing, contested, stop).await
            }
        });
    }
    if !options.disable_scheduler {
        let (file, identities) = (options.scheduler_config.clone(), identities.clone());
        components.start("kube-scheduler", move |stop| {
            let (file, identities) = (file.clone(), identities.clone());
            async move {
                let configuration = parts::scheduler::configuration(file.as_deref())?;
                let own = |address| {
                    let election = parts::scheduler::election(&configuration)?;
                    Ok::<_, Failure>(Election { address: Some(address), ..election })
                };
                let election = contested.map(own).transpose()?;
                parts::scheduler::run(configuration, identities, election, Arc::default(), stop).await
            }
        });
    }
}

/// Starts the load balancer, unless another one is wanted.
pub fn start_balancer(components: &mut Components, options: &Options, identities: &Identities, place: SocketAddr) {
    if options.disable_service_lb {
        return;
    }
    let contested = contested(options, place);
    let reserved = vec![place.port(), options.agent.kubelet_port, parts::agent::PROXY_HEALTH_PORT];
    let identities = identities.clone();
    components
        .start("service-lb", move |stop| parts::balancer::run(reserved.clone(), identities.clone(), contested, stop));
}
