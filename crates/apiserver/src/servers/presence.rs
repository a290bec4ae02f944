//! One server among the others, from its start to its end: it is found when it is ready, and not found any more before it stops.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use machinery::status::ApiError;
use rest::Api;
use threads::prompt::{self, Lane};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::identity::Identity;
use super::{EndpointReconciler, Servers};
use crate::bootstrap::{self, Place};
use crate::loopback::Loopback;

/// How long a server that stops tries to be taken out. Without a store it cannot be, and its key goes by itself.
const LEAVE: Duration = Duration::from_secs(5);

pub(crate) struct Presence {
    api: Arc<Api>,
    loopback: Loopback,
    place: Place,
    servers: Arc<Servers>,
    identity: Identity,
    stop: CancellationToken,
    renewing: Vec<JoinHandle<()>>,
}

impl Presence {
    /// Of a server that is not ready yet. What one at its place left behind is taken away.
    pub(crate) async fn begin(
        api: &Arc<Api>,
        loopback: &Loopback,
        place: Place,
        reconciler: EndpointReconciler,
        identity: Identity,
    ) -> Result<Self, store::Error> {
        let servers = Arc::new(Servers::new(api.store.clone(), place.advertise, reconciler));
        servers.begin().await?;
        Ok(Self {
            api: api.clone(),
            loopback: loopback.clone(),
            place,
            servers,
            identity,
            stop: CancellationToken::new(),
            renewing: Vec::new(),
        })
    }

    pub(crate) fn servers(&self) -> Arc<Servers> {
        self.servers.clone()
    }

    /// Who is in the endpoints before this server is ready: itself, if there cannot be another.
    pub(crate) fn at_start(&self) -> BTreeSet<IpAddr> {
        if self.shares() { BTreeSet::new() } else { self.servers.live() }
    }

    fn shares(&self) -> bool {
        self.servers.reconciler == EndpointReconciler::Lease
    }

    /// Is found from now on. An election that nobody contests is not held, and a server that has no others says nothing of itself.
    pub(crate) async fn enter(&mut self) -> Result<(), ApiError> {
        if !self.shares() {
            return Ok(());
        }
        self.servers.enter().await.map_err(|error| ApiError::unavailable(error.to_string()))?;
        self.list().await?;
        // Promises: who is late is taken for dead.
        let known = prompt::spawn(Lane::Promises, self.servers.clone().run(self.stop.clone()));
        let (identity, api, loopback) = (self.identity.clone(), Arc::downgrade(&self.api), self.loopback.clone());
        let stop = self.stop.clone();
        let named = prompt::spawn(Lane::Promises, async move {
            stop.run_until_cancelled(identity.run(api, loopback)).await;
        });
        self.renewing = vec![known, named];
        Ok(())
    }

    /// Is not found any more.
    pub(crate) async fn leave(self) {
        self.stop.cancel();
        futures::future::join_all(self.renewing).await;
        if self.servers.reconciler != EndpointReconciler::Lease {
            return;
        }
        let leave = async {
            self.servers.leave().await.map_err(|error| ApiError::unavailable(error.to_string()))?;
            bootstrap::list_servers(&self.api, &self.loopback, self.place, &self.servers.live()).await?;
            self.identity.remove(&self.loopback).await;
            Ok::<_, ApiError>(())
        };
        match tokio::time::timeout(LEAVE, leave).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "this server cannot be taken out of the endpoints"),
            Err(_) => tracing::warn!("this server was not taken out of the endpoints in time"),
        }
    }

    async fn list(&self) -> Result<(), ApiError> {
        bootstrap::list_servers(&self.api, &self.loopback, self.place, &self.servers.live()).await
    }
}
