//! What a server does as one of several: joins, lets others join, and follows the members of the etcd that they share.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Error, Opened};
use crate::cli::{Engine, Server as Options, Store as StoreOptions};
use crate::component::Components;
use crate::parts::Identities;
use crate::servers::{Admission, Managed, Reconciler, Settings};

/// Begins a cluster of several servers, joins one, or goes on with what was begun or joined before.
pub(super) async fn join_servers(options: &mut Options, advertise: IpAddr) -> Result<Option<Managed>, Error> {
    let record = crate::servers::prepare(options, advertise).await?;
    let encryption = &mut options.gates.encryption;
    let made = options.data_dir.join(crate::secrets::FILE);
    // What `trireme secrets encrypt` made, where no other is given.
    if encryption.encryption_provider_config.is_none() && made.exists() {
        encryption.encryption_provider_config = Some(made);
        encryption.encryption_provider_config_automatic_reload = true;
    }
    let Some(member) = record.and_then(|record| record.etcd) else { return Ok(None) };
    let managed = Managed::start(options, &member).await?;
    let reach = managed.directory.reach(managed.directory.endpoints());
    options.store = StoreOptions {
        store: Engine::Etcd,
        etcd_servers: reach.endpoints,
        etcd_cafile: reach.ca_file,
        etcd_certfile: reach.cert_file,
        etcd_keyfile: reach.key_file,
        etcd_prefix: options.store.etcd_prefix.clone(),
        etcd_compaction_interval: options.store.etcd_compaction_interval,
        history: options.store.history,
        history_size: options.store.history_size,
    };
    Ok(Some(managed))
}

/// Lets other servers join this one.
pub(super) fn admission(options: &Options, etcd: &Arc<store::etcd::Etcd>, managed: bool) -> Admission {
    let encryption = &options.gates.encryption;
    let reload = encryption.encryption_provider_config_automatic_reload;
    Admission {
        pki: options.data_dir.join("pki"),
        settings: Settings::of(options),
        encryption: encryption.encryption_provider_config.clone().map(|path| (path, reload)),
        etcd: managed.then(|| Arc::clone(etcd)),
        client: std::sync::OnceLock::new(),
    }
}

/// An embedded store has one server; an etcd may have many.
pub(super) fn endpoint_reconciler(options: &Options) -> apiserver::EndpointReconciler {
    match (options.servers.endpoint_reconciler_type, options.store.store) {
        (Some(Reconciler::None), _) => apiserver::EndpointReconciler::None,
        (_, Engine::Embedded) => apiserver::EndpointReconciler::Alone,
        (_, Engine::Etcd) => apiserver::EndpointReconciler::Lease,
    }
}

/// Lets other servers join from now on, and starts what follows the members of a managed etcd.
pub(super) fn start_member(
    components: &mut Components,
    opened: &Opened,
    admission: Option<&Admission>,
    identities: &Identities,
) {
    if let Some(admission) = admission {
        // Set once, by the one start that there is.
        let _ = admission.client.set(identities.administrator());
    }
    let Some((directory, etcd)) = opened.member() else { return };
    let client = identities.administrator();
    components.start("etcd members", move |stop| {
        crate::servers::follow(directory.clone(), etcd.clone(), client.clone(), stop)
    });
}
