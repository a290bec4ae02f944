//! A definition that goes takes its objects with it: they are deleted, and when the last one has gone the definition goes too.

use std::sync::Arc;
use std::time::Duration;

use apiextensions::definition::{CLEANUP, Conditions, condition_is};
use machinery::status::ApiError;
use machinery::{Value, value};
use rest::Api;
use rest::registry::Resource;
use serde_json::json;
use storage::cache::{Filter, Start};

use crate::loopback::Loopback;

/// How long the last objects may take before the definition says so.
const PATIENCE: Duration = Duration::from_secs(60);
/// When a cleanup that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Begins to clean up after a definition, unless that is under way.
pub fn begin(
    cleanups: &Cleanups,
    api: &Arc<Api>,
    loopback: &Loopback,
    definitions: &Arc<Resource>,
    name: &str,
    uid: &str,
) {
    let Some(guard) = cleanups.begin(uid) else { return };
    let (api, loopback, definitions) = (Arc::downgrade(api), loopback.clone(), definitions.clone());
    let (name, uid) = (name.to_owned(), uid.to_owned());
    tokio::spawn(async move {
        let _guard = guard;
        while let Some(api) = api.upgrade() {
            let cleanup = Cleanup { api: &api, loopback: &loopback, definitions: &definitions, name: &name, uid: &uid };
            match cleanup.run().await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, definition = name, "the objects of a definition are not gone yet"),
            }
            drop(api);
            tokio::time::sleep(RETRY).await;
        }
    });
}

/// Which definitions are being cleaned up after, by their uid.
#[derive(Debug, Default, Clone)]
pub struct Cleanups(Arc<parking_lot::Mutex<std::collections::HashSet<String>>>);

/// Ends with the cleanup.
#[derive(Debug)]
pub struct UnderWay(Cleanups, String);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}

impl Cleanups {
    fn begin(&self, uid: &str) -> Option<UnderWay> {
        self.0.lock().insert(uid.to_owned()).then(|| UnderWay(self.clone(), uid.to_owned()))
    }
}

struct Cleanup<'a> {
    api: &'a Arc<Api>,
    loopback: &'a Loopback,
    definitions: &'a Arc<Resource>,
    name: &'a str,
    uid: &'a str,
}

impl Cleanup<'_> {
    async fn run(&self) -> Result<(), ApiError> {
        let Some(object) = self.api.read(self.definitions, self.name).await? else { return Ok(()) };
        let definition = object.to_value();
        if value::text(&definition, "metadata.uid") != self.uid {
            return Ok(());
        }
        let progress = "CustomResource deletion is in progress";
        self.say(("True", "InstanceDeletionInProgress", progress), false).await?;
        if !condition_is(&definition, "Established", "True") {
            return self.say(("False", "NeverEstablished", "resource was never established"), true).await;
        }
        match self.delete_all(&definition).await {
            Ok(true) => self.say(("False", "InstanceDeletionCompleted", "removed all instances"), true).await,
            Ok(false) => {
                let why = "could not confirm zero CustomResources remaining: timed out waiting for the condition";
                self.say(("True", "InstanceDeletionCheck", why), false).await?;
                Err(ApiError::timeout(why))
            }
            Err(error) => {
                let why = format!("could not issue all deletes: {}", error.message);
                self.say(("True", "InstanceDeletionFailed", &why), false).await?;
                Err(error)
            }
        }
    }

    /// Deletes every object and waits for them to go; whether they have.
    async fn delete_all(&self, definition: &Value) -> Result<bool, ApiError> {
        let text = |path: &str| value::text(definition, path).to_owned();
        let Some(resource) = self.api.registry.custom(&text("spec.group"), &text("spec.names.plural")) else {
            return Ok(true);
        };
        let everything = Filter::everything();
        let revision = self.api.caches.settle().await?;
        let mut changes = resource.cache.subscribe(&*self.api.store, &everything, Start::Now, revision).await?;
        let (all, _) = resource.cache.list(&everything, None, 0);
        for object in all {
            let key = resource.key(&object.meta().namespace, &object.meta().name);
            self.api.delete_own(&resource, &key).await?;
        }
        let emptied = async {
            loop {
                self.api.caches.settle().await?;
                if resource.cache.is_empty() {
                    return Ok(true);
                }
                if changes.live.recv().await.is_none() {
                    return Ok(false);
                }
            }
        };
        tokio::time::timeout(PATIENCE, emptied).await.unwrap_or(Ok(false))
    }

    /// Writes how far the cleanup is; when it is over, the definition is let go.
    async fn say(&self, (status, reason, message): (&str, &str, &str), over: bool) -> Result<(), ApiError> {
        let Some(object) = self.api.read(self.definitions, self.name).await? else { return Ok(()) };
        let mut definition = object.to_value();
        if value::text(&definition, "metadata.uid") != self.uid {
            return Ok(());
        }
        let mut finalizers = value::list(&definition, "metadata.finalizers").to_vec();
        Conditions::of(&mut definition, &self.api.now()).set("Terminating", status, reason, message);
        self.loopback.update(self.definitions, definition, "status").await?;
        if over {
            finalizers.retain(|finalizer| finalizer != CLEANUP);
            let freed = json!({"metadata": {"uid": self.uid, "finalizers": finalizers}});
            self.loopback.merge(self.definitions, self.name, freed).await?;
        }
        Ok(())
    }
}
