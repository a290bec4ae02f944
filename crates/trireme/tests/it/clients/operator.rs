//! An operator made with the `kube` crate's runtime: a controller with a finalizer that keeps a ConfigMap per ship by server-side apply.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Object, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, Config, Resource as _, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::eventually;

use super::{programs, server};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ShipSpec {
    port: String,
    crew: Option<i64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShipStatus {
    phase: Option<String>,
    observed_generation: Option<i64>,
}

type Ship = Object<ShipSpec, ShipStatus>;

const MANAGER: &str = "harbour-master";

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("harbour.example.com", "v1", "Ship"))
}

fn ships(client: &Client) -> Api<Ship> {
    Api::namespaced_with(client.clone(), "default", &kind())
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

/// Keeps the ship's log and says so in its status.
async fn sail(client: &Client, recorder: &Recorder, ship: &Ship) -> Result<Action, kube::Error> {
    let name = ship.name_any();
    let owner = ship.controller_owner_ref(&kind()).expect("a ship that is stored has a uid");
    let log = ConfigMap {
        metadata: kube::api::ObjectMeta {
            name: Some(format!("{name}-log")),
            owner_references: Some(vec![owner]),
            ..Default::default()
        },
        data: Some(BTreeMap::from([("crew".to_owned(), ship.spec.crew.unwrap_or_default().to_string())])),
        ..Default::default()
    };
    let apply = PatchParams::apply(MANAGER).force();
    maps(client).patch(&format!("{name}-log"), &apply, &Patch::Apply(log)).await?;
    let status = json!({
        "apiVersion": "harbour.example.com/v1", "kind": "Ship",
        "status": {"phase": "Sailing", "observedGeneration": ship.metadata.generation},
    });
    ships(client).patch_status(&name, &apply, &Patch::Apply(status)).await?;
    let event = Event {
        type_: EventType::Normal,
        reason: "Sailing".to_owned(),
        note: Some(format!("bound for {}", ship.spec.port)),
        action: "Sail".to_owned(),
        secondary: None,
    };
    recorder.publish(&event, &ship.object_ref(&kind())).await?;
    Ok(Action::await_change())
}

/// Runs while the finalizer holds the ship.
async fn sink(client: &Client, ship: &Ship) -> Result<Action, kube::Error> {
    let sea = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sea"}, "data": {"last": ship.name_any()}});
    maps(client).patch("sea", &PatchParams::apply(MANAGER).force(), &Patch::Apply(sea)).await?;
    Ok(Action::await_change())
}

async fn operate(client: Client) {
    let recorder = Recorder::new(client.clone(), MANAGER.into());
    let context = Arc::new((client.clone(), recorder));
    let reconcile = |ship: Arc<Ship>, context: Arc<(Client, Recorder)>| async move {
        let (client, recorder) = &*context;
        finalizer(&ships(client), "harbour.example.com/log", ship, |event| async {
            match event {
                Finalizer::Apply(ship) => sail(client, recorder, &ship).await,
                Finalizer::Cleanup(ship) => sink(client, &ship).await,
            }
        })
        .await
    };
    Controller::new_with(ships(&client), watcher::Config::default().streaming_lists(), kind())
        .owns(maps(&client), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), context)
        .for_each(|_| async {})
        .await;
}

/// Waits for what a condition says of an object.
async fn seen<K>(what: &str, api: Api<K>, name: &str, condition: impl kube::runtime::wait::Condition<K>)
where
    K: Clone + std::fmt::Debug + Send + for<'de> Deserialize<'de> + kube::Resource + 'static,
    K::DynamicType: Default,
{
    eventually(what, await_condition(api, name, condition)).await.expect("a watch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_of_the_kube_crate_runs_unmodified() {
    let server = server().await;
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a configuration");
    let client = Client::try_from(config).expect("a client");

    let text = std::fs::read_to_string(programs().join("crd.yaml")).expect("the definition");
    let definition: DynamicObject = serde_saphyr::from_str(&text).expect("a definition");
    let definitions: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(client.clone());
    let apply = PatchParams::apply("test");
    definitions.patch(&definition.name_any(), &apply, &Patch::Apply(&definition)).await.expect("a definition");
    seen("the definition", definitions, &definition.name_any(), conditions::is_crd_established()).await;
    let operator = tokio::spawn(operate(client.clone()));

    let spec = ShipSpec { port: "colchis".to_owned(), crew: None };
    let ship = ships(&client).create(&PostParams::default(), &Object::new("argo", &kind(), spec)).await;
    let uid = ship.expect("a ship").uid().expect("a uid");
    let crew = |crew: &'static str| {
        move |log: Option<&ConfigMap>| log.and_then(|log| log.data.as_ref()).is_some_and(|data| data["crew"] == crew)
    };
    seen("the log of a ship with the default crew", maps(&client), "argo-log", crew("3")).await;
    let log = maps(&client).get("argo-log").await.expect("the log");
    assert_eq!(log.owner_references()[0].uid, uid);

    let change = Patch::Merge(json!({"spec": {"crew": 50}}));
    ships(&client).patch("argo", &PatchParams::default(), &change).await.expect("a crew");
    seen("the log of a larger crew", maps(&client), "argo-log", crew("50")).await;
    // What is owned is watched: a log that somebody removes comes back.
    maps(&client).delete("argo-log", &DeleteParams::default()).await.expect("no log");
    let before = log.uid();
    let back = move |log: Option<&ConfigMap>| log.is_some_and(|log| log.uid() != before);
    seen("the log again", maps(&client), "argo-log", back).await;

    ships(&client).delete("argo", &DeleteParams::default()).await.expect("an end");
    let last =
        |sea: Option<&ConfigMap>| sea.is_some_and(|sea| sea.data.as_ref().is_some_and(|data| data["last"] == "argo"));
    seen("the finalizer's work", maps(&client), "sea", last).await;
    let gone = |log: Option<&ConfigMap>| log.is_none();
    seen("the end of the log, which its owner takes with it", maps(&client), "argo-log", gone).await;
    assert!(
        ships(&client).get_opt("argo").await.expect("an answer").is_none(),
        "the finalizer is gone and so is the ship"
    );
    operator.abort();
}
