//! An object that a part cannot read is set aside, said so, and healed; its neighbours never notice. On both transports.

use std::fmt::Debug;

use client::{Client, Patch};
use informer::{Informer, Informers, Key};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use testkit::{Cluster, build, eventually};

/// A ConfigMap without `poison` among its data: no kind of ours is as easy to spoil.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
struct Picky(ConfigMap);

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = ConfigMap::deserialize(deserializer)?;
        match map.data.as_ref().and_then(|data| data.get("poison")) {
            Some(_) => Err(D::Error::custom("data has poison")),
            None => Ok(Self(map)),
        }
    }
}

impl Resource for Picky {
    const API_VERSION: &'static str = ConfigMap::API_VERSION;
    const GROUP: &'static str = ConfigMap::GROUP;
    const KIND: &'static str = ConfigMap::KIND;
    const VERSION: &'static str = ConfigMap::VERSION;
    const URL_PATH_SEGMENT: &'static str = ConfigMap::URL_PATH_SEGMENT;
    type Scope = NamespaceResourceScope;
}

impl Metadata for Picky {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

async fn set(client: &Client, name: &str, data: serde_json::Value) {
    let patch = Patch::Merge(json!({"data": data}));
    client.patch::<ConfigMap>("default", name, &patch).await.expect("a patch");
}

/// Waits until the informer has seen a ConfigMap that was made now, and so all that was written before.
async fn catch_up(client: &Client, informer: &Informer<Picky>, name: &str) {
    let (told, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let wanted = Key::new("default", name);
    informer.subscribe(move |change| {
        if Key::of(&change.object().0.metadata) == wanted {
            let _ = told.send(());
        }
    });
    client.create(&build::config_map(name, "a", "b")).await.expect("a ConfigMap");
    eventually("the informer goes on", seen.recv()).await;
}

#[tokio::test]
async fn what_cannot_be_read_is_set_aside_and_healed() {
    let cluster = Cluster::start().await;
    let admin = cluster.client();
    for (transport, client) in [("inside", cluster.in_process()), ("https", cluster.client())] {
        let name = |part: &str| format!("{transport}-{part}");
        // There when the informer begins, known to it before, and known never: by list and by watch.
        let (early, known, late) = (name("early"), name("known"), name("late"));
        for name in [&early, &known] {
            admin.create(&build::config_map(name, "a", "b")).await.expect("a ConfigMap");
        }
        set(&admin, &early, json!({"poison": "x"})).await;
        let informers = Informers::new(client);
        let informer = informers.of::<Picky>();
        eventually("the informer is complete", informer.synced()).await;
        set(&admin, &known, json!({"poison": "x"})).await;
        admin.create(&build::config_map(&late, "a", "b")).await.expect("a ConfigMap");
        catch_up(&admin, &informer, &name("one")).await;
        set(&admin, &late, json!({"poison": "x"})).await;
        catch_up(&admin, &informer, &name("two")).await;

        let aside = |informer: &Informer<Picky>| {
            let mut names: Vec<_> = informer.set_aside().into_iter().filter_map(|odd| odd.object.name).collect();
            names.sort();
            names
        };
        assert_eq!(aside(&informer), [early.clone(), known.clone(), late.clone()]);
        let held = |name: &str| informer.get(&Key::new("default", name));
        assert!(held(&early).is_none(), "it was never read");
        let version = held(&known).expect("what is known stays").0.clone();
        assert!(version.data.is_none_or(|data| !data.contains_key("poison")), "as it was before");
        let mut figures = String::new();
        informer::metrics::write(&mut figures);
        assert!(figures.contains("trireme_informer_undecodable_objects{resource=\"configmaps\"} 3\n"), "{figures}");
        testkit::objects::<Event>(&admin, "default", "an Event for each", |events| {
            let about = |name: &str| {
                events.iter().any(|event| {
                    event.involved_object.name.as_deref() == Some(name)
                        && event.reason.as_deref() == Some("FailedDecode")
                        && event.message.as_deref().is_some_and(|message| message.contains("data has poison"))
                })
            };
            about(&early) && about(&known) && about(&late)
        })
        .await;

        set(&admin, &early, json!({"poison": null, "good": "x"})).await;
        admin.delete::<ConfigMap>("default", &known, &client::DeleteOptions::default()).await.expect("a deletion");
        set(&admin, &late, json!({"poison": null})).await;
        catch_up(&admin, &informer, &name("three")).await;
        assert_eq!(aside(&informer), Vec::<String>::new());
        assert!(held(&early).is_some() && held(&known).is_none() && held(&late).is_some());
    }
    cluster.stop().await;
}
