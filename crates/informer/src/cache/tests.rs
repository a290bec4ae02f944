use std::cell::{Cell, RefCell};

use super::*;
use client::Original;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::object::{FieldPaths, Object};
use serde_json::json;

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

fn whole(name: &str, uid: &str, revision: &str, node: &str) -> Item<Pod> {
    Item::Struct(pod(name, uid, revision, node))
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
    informer.shared().apply(whole("a", "1", "1", "n1"));
    informer.shared().apply(whole("a", "1", "1", "n1"));
    informer.shared().apply(whole("a", "1", "2", "n2"));
    informer.shared().remove(&whole("a", "1", "3", "n2"));
    informer.shared().remove(&whole("a", "1", "3", "n2"));
    assert_eq!(*told.lock(), ["added 1 cached=true", "modified 1 cached=true", "deleted 1 cached=false"]);
}

#[tokio::test]
async fn a_relist_tells_of_the_differences_alone() {
    let (informer, told) = observed();
    let all = vec![whole("a", "1", "1", "n"), whole("b", "2", "2", "n"), whole("c", "3", "3", "n")];
    informer.shared().replace(all, vec![]).await;
    told.lock().clear();
    informer.shared().replace(vec![whole("a", "1", "1", "n"), whole("b", "9", "7", "n")], vec![]).await;
    assert_eq!(
        *told.lock(),
        ["deleted 3 cached=false", "deleted 2 cached=true", "added 9 cached=true"],
        "c went; b was replaced by another object of its name; a is as it was"
    );
}

#[tokio::test]
async fn who_is_told_of_a_relist_finds_all_of_it() {
    let informer = Informer::<Pod>::empty("pods");
    informer.shared().replace(vec![whole("a", "1", "1", "n"), whole("b", "2", "2", "n")], vec![]).await;
    let found: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, cache) = (found.clone(), informer.clone());
    informer.subscribe(move |change| {
        let mut names: Vec<String> = cache.list().iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        names.sort();
        let told_of = change.object().metadata.uid.clone().unwrap_or_default();
        log.lock().push(format!("{told_of}: {}", names.join(" ")));
    });
    found.lock().clear();
    informer.shared().replace(vec![whole("b", "2", "3", "n"), whole("c", "4", "4", "n")], vec![]).await;
    assert_eq!(*found.lock(), ["1: 2 4", "2: 2 4", "4: 2 4"], "what went is not told of before what came is there");
}

#[tokio::test]
async fn a_list_that_takes_several_turns_fills_the_cache_and_its_indexes() {
    let informer = Informer::<Pod>::empty("pods");
    informer.add_index("node", |pod| node(pod).into_iter().collect());
    let told = Arc::new(Mutex::new(0_usize));
    let (counter, cache) = (told.clone(), informer.clone());
    informer
        .subscribe(move |change| *counter.lock() += usize::from(cache.contains(&Key::of(&change.object().metadata))));
    let many = 2 * TURN + 1;
    let all = |revision, node: &str| (0..many).map(|at| text(&format!("p{at}"), revision, node)).collect::<Vec<_>>();
    informer.shared().replace(all(1, "n1"), vec![]).await;
    assert_eq!((informer.len(), *told.lock(), informer.count("node", "n1")), (many, many, many));
    let mut twice = all(2, "n2");
    twice.push(text("p0", 3, "n3"));
    informer.shared().replace(twice, vec![]).await;
    assert_eq!((informer.len(), *told.lock()), (many, 2 * many + 1));
    let found = ["n1", "n2", "n3"].map(|node| informer.count("node", node));
    assert_eq!(found, [0, many - 1, 1], "what is named twice is found where it was named last");
}

#[test]
fn indexes_follow_the_objects() {
    let (informer, _) = observed();
    informer.shared().apply(whole("a", "1", "1", "n1"));
    informer.add_index("node", |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    informer.shared().apply(whole("b", "2", "2", "n1"));
    assert_eq!(informer.by_index("node", "n1").len(), 2);
    assert_eq!(informer.count("node", "n1"), 2);
    informer.shared().apply(whole("a", "1", "3", "n2"));
    assert_eq!(informer.by_index("node", "n1").len(), 1);
    assert_eq!(informer.by_index("node", "n2").len(), 1);
    informer.shared().remove(&whole("b", "2", "4", "n1"));
    assert!(informer.by_index("node", "n1").is_empty());
    assert_eq!(informer.by_namespace("default").len(), 1);
}

#[test]
fn a_late_handler_is_told_of_everything_there_is() {
    let (informer, _) = observed();
    informer.shared().apply(whole("a", "1", "1", "n1"));
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
    informer.shared().apply(whole("a", "1", "1", "n1"));
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
    informer.shared().apply(Item::Struct(odd.clone()));
    informer.shared().apply(whole("a", "2", "2", "n1"));
    assert_eq!(informer.by_index("node", "n1").len(), 1);
    assert_eq!(informer.len(), 2, "it is in the cache all the same");
    informer.shared().apply(whole("odd", "1", "3", "n1"));
    assert_eq!(informer.by_index("node", "n1").len(), 2, "a better version is found");
    informer.shared().remove(&Item::Struct(odd));
    assert_eq!(informer.len(), 1);
}

thread_local! {
    static READS: Cell<usize> = const { Cell::new(0) };
}

/// How often a text was read since this was asked last.
fn reads() -> usize {
    READS.replace(0)
}

fn text_of(tree: &serde_json::Value, revision: u64) -> Item<Pod> {
    let object = Object::from_value(tree, revision, &FieldPaths::default()).expect("an object");
    let read = |original: &Original| {
        READS.set(READS.get() + 1);
        original.read()
    };
    Item::Text(Original::shared(Arc::new(object)), read)
}

fn tree(name: &str, node: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"node": node}},
        "spec": {"nodeName": node, "containers": []},
    })
}

/// As [`whole`], kept as a text; the uid is the name.
fn text(name: &str, revision: u64, node: &str) -> Item<Pod> {
    text_of(&tree(name, node), revision)
}

fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

thread_local! {
    static READ_FROM: RefCell<Option<Informer<Pod>>> = const { RefCell::new(None) };
}

#[test]
fn nothing_is_read_with_the_cache_locked() {
    let informer = Informer::<Pod>::empty("pods");
    READ_FROM.set(Some(informer.clone()));
    let item = |revision| {
        let object = Object::from_value(&tree("a", "n"), revision, &FieldPaths::default()).expect("an object");
        let read = |original: &Original| {
            let is_free = |informer: &Informer<Pod>| informer.shared().objects.try_write().is_some();
            READ_FROM.with_borrow(|informer| assert!(informer.as_ref().is_some_and(is_free)));
            READS.set(READS.get() + 1);
            original.read::<Pod>()
        };
        Item::Text(Original::shared(Arc::new(object)), read)
    };
    let cool = || (0..2).for_each(|_| informer.shared().ring.age());
    informer.shared().apply(item(1));
    cool();
    informer.add_index("node", |pod| node(pod).into_iter().collect());
    let looks: [fn(&Informer<Pod>) -> usize; 5] = [
        |informer| informer.list().len(),
        |informer| informer.by_namespace("default").len(),
        |informer| informer.select("default", &LabelSelector::parse("node=n").expect("a selector")).len(),
        |informer| informer.each().count(),
        |informer| informer.get(&Key::new("default", "a")).iter().count(),
    ];
    for look in looks {
        cool();
        assert_eq!(look(&informer), 1);
    }
    cool();
    informer.shared().apply(item(2));
    cool();
    informer.shared().remove(&item(3));
    assert_eq!(reads(), 1 + 1 + 5 + 2 + 2, "when it came, for the index, each look, and both versions twice");
    READ_FROM.set(None);
}

#[test]
fn a_struct_is_shared_while_somebody_asks_and_goes_when_nobody_does() {
    let informer = Informer::<Pod>::empty("pods");
    informer.shared().apply(text("a", 1, "n1"));
    let key = Key::new("default", "a");
    let first = informer.get(&key).expect("a pod");
    assert!(Arc::ptr_eq(&first, &informer.by_namespace("default")[0]));
    assert_eq!(reads(), 1, "when it came");

    informer.shared().ring.age();
    assert!(Arc::ptr_eq(&first, &informer.get(&key).expect("a pod")), "it was asked for");
    informer.shared().ring.age();
    informer.shared().ring.age();
    assert_eq!((Arc::strong_count(&first), informer.shared().ring.len(), reads()), (1, 0, 0), "it is ours alone");
    assert_eq!((informer.len(), informer.contains(&key)), (1, true), "the text is there");
    assert_eq!(informer.get(&key).as_deref(), Some(&*first));
    assert!(informer.get(&key).is_some());
    assert_eq!(reads(), 1, "it was read again, once for all");
}

#[test]
fn structs_are_bounded_and_those_in_use_stay() {
    let informer = Informer::<Pod>::empty("pods");
    informer.shared().apply(text("used", 1, "n"));
    let used = Key::new("default", "used");
    for at in 0..2 * STRUCTS {
        informer.shared().apply(text(&format!("p{at}"), 2, "n"));
        assert!(informer.get(&used).is_some());
    }
    assert_eq!(informer.shared().ring.len(), STRUCTS);
    assert_eq!(reads(), 2 * STRUCTS + 1, "each once, when it came");
    assert!(informer.get(&Key::new("default", "p0")).is_some());
    assert_eq!(reads(), 1);
    assert_eq!(informer.list().len(), 2 * STRUCTS + 1);
    assert_eq!(reads(), STRUCTS + 1, "what was kept is not read");
    assert_eq!(informer.shared().ring.len(), STRUCTS);
}

#[test]
fn a_look_at_everything_neither_keeps_structs_nor_drives_out_those_in_use() {
    let informer = Informer::<Pod>::empty("pods");
    informer.shared().apply(text("used", 1, "n"));
    for at in 1..STRUCTS {
        informer.shared().apply(text(&format!("p{at}"), 2, "n"));
    }
    let used = Key::new("default", "used");
    assert!(informer.get(&used).is_some());
    assert_eq!((informer.each().count(), reads()), (STRUCTS, STRUCTS), "each was read when it came");
    ["new", "newer"].into_iter().for_each(|name| drop(informer.shared().apply(text(name, 3, "n"))));
    assert!(informer.get(&used).is_some());
    assert_eq!(reads(), 2, "only the new ones");

    informer.shared().ring.age();
    assert_eq!(informer.shared().ring.len(), 1, "what nobody works with goes");
    assert_eq!(informer.each().count(), STRUCTS + 2);
    informer.shared().ring.age();
    assert_eq!(informer.shared().ring.len(), 0, "however often somebody looks at everything");
}

#[test]
fn a_change_of_what_is_only_a_text_tells_of_both_versions() {
    let informer = Informer::<Pod>::empty("pods");
    informer.add_index("node", |pod| node(pod).into_iter().collect());
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = told.clone();
    informer.subscribe(move |change| {
        let side = |pod: Option<&Arc<Pod>>| pod.and_then(|pod| node(pod)).unwrap_or_default();
        log.lock().push(format!("{}>{}", side(change.before()), side(change.after())));
    });
    let cool = || (0..2).for_each(|_| informer.shared().ring.age());
    informer.shared().apply(text("a", 1, "n1"));
    cool();
    informer.shared().apply(text("a", 2, "n2"));
    assert!(informer.by_index("node", "n1").is_empty());
    assert_eq!(informer.count("node", "n2"), 1);
    cool();
    informer.shared().remove(&text("a", 3, "n3"));
    assert_eq!(*told.lock(), [">n1", "n1>n2", "n3>"]);
    assert!(informer.is_empty() && informer.index_values("node").is_empty());
}

#[test]
fn looks_at_many_read_what_they_look_at_and_keep_none() {
    let informer = Informer::<Pod>::empty("pods");
    for at in 0..10 {
        informer.shared().apply(text(&format!("p{at}"), 1, &format!("n{}", at % 5)));
    }
    (0..2).for_each(|_| informer.shared().ring.age());
    reads();
    assert_eq!(
        (informer.count_in("default"), informer.count_in("other"), reads()),
        (10, 0, 0),
        "counting reads nothing"
    );
    assert_eq!((informer.each().count(), informer.each_in("default").count(), reads()), (10, 10, 20));
    assert_eq!(informer.shared().ring.len(), 0);
    let by = LabelSelector::parse("node=n1").expect("a selector");
    assert_eq!((informer.select("default", &by).len(), reads()), (2, 2), "what is not selected is not read");
    assert!(informer.select("other", &by).is_empty());
    informer.shared().apply(whole("struct", "1", "1", ""));
    assert_eq!(informer.select("default", &LabelSelector::parse("!node").expect("a selector")).len(), 1);
}

#[tokio::test]
async fn a_relist_reads_what_changed_and_sets_aside_what_cannot_be_read() {
    let informer = Informer::<Pod>::empty("pods");
    let odd = |revision| {
        let mut odd = tree("odd", "n");
        odd["spec"] = json!("none");
        text_of(&odd, revision)
    };
    let news = informer.shared().replace(vec![text("a", 1, "n"), text("b", 2, "n"), odd(3)], vec![]).await;
    assert_eq!(news.iter().map(|odd| odd.object.name.as_deref()).collect::<Vec<_>>(), [Some("odd")]);
    assert_eq!((informer.len(), reads()), (2, 3));
    let news = informer.shared().replace(vec![text("a", 1, "n"), text("b", 4, "n"), odd(3)], vec![]).await;
    assert_eq!((news.len(), reads()), (0, 2), "a is as it was");

    let mut bad = tree("a", "n");
    bad["spec"] = json!("none");
    assert!(informer.shared().apply(text_of(&bad, 5)).is_some());
    let known = informer.get(&Key::new("default", "a")).expect("it stays as it was known");
    assert_eq!(known.metadata.resource_version.as_deref(), Some("1"));
    assert_eq!(informer.set_aside().len(), 2);
    informer.shared().apply(text("a", 6, "n"));
    assert_eq!(informer.set_aside().len(), 1, "a good version heals it");
}

#[tokio::test(start_paused = true)]
async fn a_cache_in_which_nothing_happens_holds_no_structs() {
    let informer = Informer::<Pod>::empty("pods");
    let shared = informer.shared().clone();
    let cooling = tokio::spawn(async move { shared.cool().await });
    tokio::task::yield_now().await;
    for at in 0..10 {
        informer.shared().apply(text(&format!("p{at}"), 1, "n"));
    }
    assert_eq!(informer.shared().ring.len(), 10);
    // Time stands still as long as anybody has anything to do.
    tokio::time::sleep(3 * slot::COOLING).await;
    assert_eq!(informer.shared().ring.len(), 0);
    cooling.abort();
}
