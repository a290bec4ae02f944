use super::*;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

fn pod(name: &str, uid: &str, revision: &str, node: &str) -> Arc<Pod> {
    Arc::new(Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            uid: Some(uid.into()),
            resource_version: Some(revision.into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { node_name: Some(node.into()), ..PodSpec::default() }),
        ..Pod::default()
    })
}

/// An informer, and what its one handler was called with.
fn observed() -> (Informer<Pod>, Arc<Mutex<Vec<String>>>) {
    let informer = Informer::<Pod>::empty("pods");
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, cache) = (told.clone(), informer.clone());
    informer.subscribe(move |change| {
        let object = change.object();
        let word = match change {
            Change::Added(_) => "added",
            Change::Modified { .. } => "modified",
            Change::Deleted(_) => "deleted",
        };
        let cached = cache.get(&Key::of(&object.metadata)).is_some();
        log.lock().push(format!("{word} {} cached={cached}", object.metadata.uid.as_deref().unwrap_or_default()));
    });
    (informer, told)
}

#[test]
fn handlers_hear_of_changes_after_the_cache_holds_them() {
    let (informer, told) = observed();
    informer.shared().apply(pod("a", "1", "1", "n1"));
    informer.shared().apply(pod("a", "1", "1", "n1"));
    informer.shared().apply(pod("a", "1", "2", "n2"));
    informer.shared().remove(pod("a", "1", "3", "n2"));
    informer.shared().remove(pod("a", "1", "3", "n2"));
    assert_eq!(*told.lock(), ["added 1 cached=true", "modified 1 cached=true", "deleted 1 cached=false"]);
}

#[test]
fn a_relist_tells_of_the_differences_alone() {
    let (informer, told) = observed();
    informer.shared().replace(vec![pod("a", "1", "1", "n"), pod("b", "2", "2", "n"), pod("c", "3", "3", "n")], vec![]);
    told.lock().clear();
    informer.shared().replace(vec![pod("a", "1", "1", "n"), pod("b", "9", "7", "n")], vec![]);
    assert_eq!(
        *told.lock(),
        ["deleted 3 cached=false", "deleted 2 cached=true", "added 9 cached=true"],
        "c went; b was replaced by another object of its name; a is as it was"
    );
}

#[test]
fn indexes_follow_the_objects() {
    let (informer, _) = observed();
    informer.shared().apply(pod("a", "1", "1", "n1"));
    informer.add_index("node", |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    informer.shared().apply(pod("b", "2", "2", "n1"));
    assert_eq!(informer.by_index("node", "n1").len(), 2);
    assert_eq!(informer.count("node", "n1"), 2);
    informer.shared().apply(pod("a", "1", "3", "n2"));
    assert_eq!(informer.by_index("node", "n1").len(), 1);
    assert_eq!(informer.by_index("node", "n2").len(), 1);
    informer.shared().remove(pod("b", "2", "4", "n1"));
    assert!(informer.by_index("node", "n1").is_empty());
    assert_eq!(informer.by_namespace("default").len(), 1);
}

#[test]
fn a_late_handler_is_told_of_everything_there_is() {
    let (informer, _) = observed();
    informer.shared().apply(pod("a", "1", "1", "n1"));
    let count = Arc::new(Mutex::new(0));
    let counter = count.clone();
    informer.subscribe(move |_| *counter.lock() += 1);
    assert_eq!(*count.lock(), 1);
}

#[test]
fn a_panicking_handler_does_not_stop_the_others() {
    let informer = Informer::<Pod>::empty("pods");
    informer.subscribe(|_| panic!("a handler's own mistake"));
    let count = Arc::new(Mutex::new(0));
    let counter = count.clone();
    informer.subscribe(move |_| *counter.lock() += 1);
    informer.shared().apply(pod("a", "1", "1", "n1"));
    assert_eq!(*count.lock(), 1);
}

#[test]
fn an_index_that_fails_on_one_object_finds_the_others() {
    let informer = Informer::<Pod>::empty("pods");
    informer.add_index("node", |pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).expect("a node");
        vec![node]
    });
    let odd = Arc::new(Pod { spec: None, ..Pod::clone(&pod("odd", "1", "1", "")) });
    informer.shared().apply(odd.clone());
    informer.shared().apply(pod("a", "2", "2", "n1"));
    assert_eq!(informer.by_index("node", "n1").len(), 1);
    assert_eq!(informer.len(), 2, "it is in the cache all the same");
    informer.shared().apply(pod("odd", "1", "3", "n1"));
    assert_eq!(informer.by_index("node", "n1").len(), 2, "a better version is found");
    informer.shared().remove(odd);
    assert_eq!(informer.len(), 1);
}
