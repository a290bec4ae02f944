//! The `kube` crate, unmodified, against a real server: typed and dynamic clients, patches, watcher and reflector.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Client, Config, ResourceExt as _};
use serde_json::json;
use testkit::eventually;

use crate::server::Server;

async fn client(server: &Server) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

fn deployment(name: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}}}}))
    .expect("a deployment")
}

fn map(name: &str, value: &str) -> ConfigMap {
    let data = BTreeMap::from([("k".to_owned(), value.to_owned())]);
    ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        data: Some(data),
        ..Default::default()
    }
}

#[tokio::test]
async fn typed_calls_and_every_kind_of_patch() {
    let server = Server::default().await;
    let deployments: Api<Deployment> = Api::namespaced(client(&server).await, "default");
    let made = deployments.create(&PostParams::default(), &deployment("web")).await.expect("created");
    assert!(made.uid().is_some());
    let images = |deployment: &Deployment| -> Vec<String> {
        let spec = deployment.spec.template.spec.as_ref().expect("a spec");
        spec.containers.iter().map(|container| container.image.clone().unwrap_or_default()).collect()
    };
    let manager = PatchParams::default();
    let one = json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}}});
    let patched = deployments.patch("web", &manager, &Patch::Strategic(&one)).await.expect("a strategic patch");
    // A patch puts what it names first, as upstream's does.
    assert_eq!(images(&patched).len(), 2);
    assert!(images(&patched).contains(&"b:2".to_owned()));
    let patched = deployments.patch("web", &manager, &Patch::Merge(&one)).await.expect("a merge patch");
    assert_eq!(images(&patched), ["b:2"]);
    let scaled = deployments.patch_scale("web", &manager, &Patch::Merge(json!({"spec": {"replicas": 4}}))).await;
    assert_eq!(scaled.expect("a scale").spec.and_then(|spec| spec.replicas), Some(4));
    let status = json!({"status": {"observedGeneration": 9}});
    let patched = deployments.patch_status("web", &manager, &Patch::Merge(&status)).await.expect("a status");
    assert_eq!(patched.status.and_then(|status| status.observed_generation), Some(9));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    deployments.patch("web", &dry, &Patch::Merge(json!({"spec": {"replicas": 9}}))).await.expect("a dry run");
    assert_eq!(deployments.get("web").await.expect("there").spec.replicas, Some(4));
    let listed = deployments.list(&ListParams::default().fields("metadata.name=web")).await.expect("a list");
    assert_eq!(listed.items.len(), 1);
    let missing = deployments.get("none").await.expect_err("not there");
    assert!(matches!(missing, kube::Error::Api(status) if status.code == 404 && status.reason == "NotFound"));
    deployments.delete("web", &DeleteParams::default()).await.expect("deleted");
    server.stop().await;
}

#[tokio::test]
async fn applies_conflict_and_are_forced() {
    let server = Server::default().await;
    let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
    let configuration =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": value}});
    let made = maps.patch("m", &PatchParams::apply("one"), &Patch::Apply(configuration("1"))).await.expect("applied");
    let again = maps.patch("m", &PatchParams::apply("one"), &Patch::Apply(configuration("1"))).await.expect("applied");
    assert_eq!(made.resource_version(), again.resource_version(), "the same apply changes nothing");
    let refused = maps.patch("m", &PatchParams::apply("two"), &Patch::Apply(configuration("2"))).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 409), "a conflict");
    let forced = maps.patch("m", &PatchParams::apply("two").force(), &Patch::Apply(configuration("2"))).await;
    assert_eq!(forced.expect("forced").data.expect("data")["k"], "2");
    server.stop().await;
}

#[tokio::test]
async fn dynamic_objects_need_no_types() {
    let server = Server::default().await;
    let kind = GroupVersionKind::gvk("batch", "v1", "CronJob");
    let jobs: Api<DynamicObject> =
        Api::namespaced_with(client(&server).await, "default", &ApiResource::from_gvk(&kind));
    let job = serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": {"schedule": "0 3 * * *",
            "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}))
    .expect("a job");
    let made = jobs.create(&PostParams::default(), &job).await.expect("created");
    assert_eq!(made.data["spec"]["concurrencyPolicy"], "Allow");
    let metadata = jobs.get_metadata("nightly").await.expect("metadata");
    assert_eq!(metadata.metadata.uid, made.metadata.uid);
    let discovered = kube::discovery::Discovery::new(client(&server).await).run().await.expect("discovery");
    assert!(discovered.resolve_gvk(&kind).is_some_and(|(resource, _)| resource.plural == "cronjobs"));
    server.stop().await;
}

#[tokio::test]
async fn watches_watchers_and_reflectors_follow() {
    let server = Server::default().await;
    let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
    let first = maps.create(&PostParams::default(), &map("first", "1")).await.expect("created");
    let version = first.resource_version().expect("a version");
    let mut raw = maps.watch(&WatchParams::default(), &version).await.expect("a watch").boxed();

    let (reader, writer) = reflector::store();
    // By a list and a watch, and by one watch that begins with a list.
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut seen = watcher(maps.clone(), config).touched_objects().boxed();
        let object: ConfigMap = eventually("an object", seen.try_next()).await.expect("no error").expect("no end");
        assert_eq!(object.name_any(), "first");
    }
    let stream = watcher(maps.clone(), watcher::Config::default()).default_backoff();
    let follow = tokio::spawn(reflector(writer, stream).touched_objects().for_each(|_| async {}));
    eventually("the reflector's first list", reader.wait_until_ready()).await.expect("a reflector");
    assert_eq!(reader.state().len(), 1);

    maps.create(&PostParams::default(), &map("second", "1")).await.expect("created");
    maps.patch("second", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "2"}}))).await.expect("patched");
    maps.delete("first", &DeleteParams::default()).await.expect("deleted");
    let mut kinds = Vec::new();
    while kinds.len() < 3 {
        match eventually("an event", raw.try_next()).await.expect("no error").expect("no end") {
            WatchEvent::Added(object) => kinds.push(("added", object.name_any())),
            WatchEvent::Modified(object) => kinds.push(("modified", object.name_any())),
            WatchEvent::Deleted(object) => kinds.push(("deleted", object.name_any())),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => panic!("{error:?}"),
        }
    }
    let expected = [("added", "second"), ("modified", "second"), ("deleted", "first")];
    assert_eq!(kinds.iter().map(|(kind, name)| (*kind, name.as_str())).collect::<Vec<_>>(), expected);
    let settled = async {
        let key = reflector::ObjectRef::new("second").within("default");
        while reader.get(&key).and_then(|map| map.data.clone()).is_none_or(|data| data["k"] != "2")
            || reader.state().len() != 1
        {
            tokio::task::yield_now().await;
        }
    };
    eventually("the reflector's view", settled).await;
    follow.abort();
    let pods: Api<Pod> = Api::all(client(&server).await);
    assert!(pods.list_metadata(&ListParams::default().limit(1)).await.expect("a list").items.is_empty());
    server.stop().await;
}
