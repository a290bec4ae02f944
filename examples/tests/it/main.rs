//! A cluster inside a test: a real API server with a store of its own, gone when the test ends.

use std::collections::BTreeMap;
use std::path::Path;

use examples::{ANNOTATION, LABEL, plan};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use testkit::{Cluster, objects};
use tokio_util::sync::CancellationToken;

fn map(labels: &[&str], keys: &[&str], annotation: Option<&str>) -> ConfigMap {
    let pairs = |names: &[&str]| -> BTreeMap<String, String> {
        names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect()
    };
    let annotations = annotation.map(|count| BTreeMap::from([(ANNOTATION.to_owned(), count.to_owned())]));
    let metadata = ObjectMeta {
        name: Some("m".to_owned()),
        namespace: Some("default".to_owned()),
        labels: Some(pairs(labels)),
        annotations,
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data: Some(pairs(keys)), ..ConfigMap::default() }
}

#[test]
fn only_who_asks_gets_a_count_and_only_a_new_one() {
    for (object, expected) in [
        (map(&[LABEL], &["a", "b"], None), Some("2")),
        (map(&[LABEL], &["a", "b"], Some("1")), Some("2")),
        (map(&[LABEL], &["a", "b"], Some("2")), None),
        (map(&[], &["a", "b"], None), None),
    ] {
        assert_eq!(plan(&object).as_deref(), expected, "{object:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_counts_in_a_cluster() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let stop = CancellationToken::new();
    let running = tokio::spawn(examples::run(client.clone(), stop.clone()));
    client.create(&map(&[LABEL], &["a", "b"], None)).await.expect("a ConfigMap");
    let counted = |maps: &[std::sync::Arc<ConfigMap>]| {
        maps.iter()
            .any(|map| map.metadata.annotations.iter().flatten().any(|(key, count)| key == ANNOTATION && count == "2"))
    };
    objects::<ConfigMap>(&client, "default", "a ConfigMap with its count", counted).await;
    stop.cancel();
    running.await.expect("the controller ends");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_manifest_can_be_applied() {
    let cluster = Cluster::start().await;
    let kubectl = cluster.kubectl();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let mut applied = 0;
    for entry in std::fs::read_dir(folder).expect("the manifests") {
        let path = entry.expect("an entry").path();
        let said = kubectl.run(&["apply", "-f", &path.to_string_lossy()]).await;
        applied += said.lines().filter(|line| line.ends_with("created")).count();
    }
    assert_eq!(applied, 8);
    cluster.stop().await;
}
