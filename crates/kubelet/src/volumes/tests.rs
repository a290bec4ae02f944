//! Volumes of a whole pod, made and removed on a real file system.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::cri_config::Abilities;
use serde_json::json;
use std::os::unix::fs::MetadataExt;

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u-1", "labels": {"a": "b"}},
        "spec": {
            "securityContext": {"fsGroup": 4321},
            "containers": [{"name": "c", "image": "i", "terminationMessagePath": "/dev/termination-log", "volumeMounts": [
                {"name": "empty", "mountPath": "/e", "subPathExpr": "$(WHO)/x"},
                {"name": "config", "mountPath": "/c/key", "subPath": "key", "readOnly": true},
                {"name": "memory", "mountPath": "/m"},
                {"name": "token", "mountPath": "/t"},
            ]}],
            "volumes": [
                {"name": "empty", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "config", "configMap": {"name": "cm", "defaultMode": 0o600}},
                {"name": "token", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token"}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ]}},
            ],
        },
    }))
    .unwrap()
}

fn resolved(value: &str) -> Resolved {
    let mut resolved = Resolved::default();
    let map = serde_json::from_value(json!({"data": {"key": value}})).unwrap();
    resolved.references.config_maps.insert("cm".into(), Arc::new(map));
    resolved.tokens.insert(("token".into(), 0), "secret-token".into());
    resolved
}

#[test]
fn volumes_are_made_updated_shown_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (pod, facts) = (pod(), NodeFacts { memory: 1 << 30, ..Default::default() });
    let (paths, errors) = setup(&root, &pod, &resolved("1"), &facts);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(paths["empty"].metadata().unwrap().gid(), 4321);
    assert_eq!(node::mounts::capacity(&paths["memory"]).unwrap().bytes, 1 << 20);
    let token = paths["token"].join("token").metadata().unwrap();
    assert_eq!((token.mode() & 0o777, token.gid()), (0o640, 4321));
    assert_eq!(std::fs::read_to_string(paths["token"].join("labels")).unwrap(), "a=\"b\"");

    let env = [("WHO".to_owned(), "me".to_owned())].into();
    let container = spec::containers(&pod)[0].clone();
    let ips = ["10.0.0.1".to_owned()];
    let mounts = mounts::of_container(&pod, &container, &around(&root, &paths, &env, &ips, &facts)).unwrap();
    let host = |inside: &str| mounts.iter().find(|m| m.container_path == inside).unwrap().host_path.clone();
    assert!(node::mounts::is_mounted(Path::new(&host("/e"))).unwrap());
    std::fs::write(format!("{}/file", host("/e")), "x").unwrap();
    assert!(paths["empty"].join("me/x/file").exists());
    for made in ["me", "me/x"] {
        let meta = paths["empty"].join(made).metadata().unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.gid()), (0o2777, 4321), "{made} has its volume's group");
    }
    assert_eq!(std::fs::read_to_string(host("/c/key")).unwrap(), "1");
    assert!(std::fs::read_to_string(host("/etc/hosts")).unwrap().contains("10.0.0.1\tp"));
    assert!(Path::new(&host("/dev/termination-log")).exists());

    let (paths, _) = setup(&root, &pod, &resolved("2"), &facts);
    assert_eq!(std::fs::read_to_string(paths["config"].join("key")).unwrap(), "2");
    // The last is a sub path, made with all of its volume's mode.
    let sub = paths["empty"].join("me/x");
    for (path, mode) in [(&paths["empty"], 0o2777), (&paths["memory"], 0o3777), (&sub, 0o2777)] {
        let meta = path.metadata().unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.gid()), (mode, 4321), "{path:?} after it was looked at again");
    }
    // A file shown by sub path stays what it was when the container started.
    assert_eq!(std::fs::read_to_string(host("/c/key")).unwrap(), "1");

    remove(&root, "u-1").unwrap();
    remove(&root, "u-1").unwrap();
    assert!(pods_on_disk(&root).is_empty());
}

#[test]
fn a_volume_that_cannot_be_made_says_so_and_leaves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let mut resolved = resolved("1");
    resolved.references.config_maps.clear();
    let (paths, errors) = setup(&root, &pod(), &resolved, &NodeFacts::default());
    assert_eq!(paths.len(), 3);
    assert_eq!(errors[0].to_string(), "MountVolume.SetUp failed for volume \"config\" : configmap \"cm\" not found");
    remove(&root, "u-1").unwrap();
}

#[test]
fn a_directory_that_was_made_by_half_gets_its_group_and_one_that_was_made_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (pod, facts) = (pod(), NodeFacts::default());
    let place = |name: &str| pod_dir(&root, "u-1").join("volumes/kubernetes.io~empty-dir").join(name);
    // What a kubelet leaves that is killed before it sets the group.
    std::fs::create_dir_all(place("empty")).unwrap();
    std::fs::create_dir_all(place("memory")).unwrap();
    node::mounts::tmpfs(&place("memory"), None, 0o1777).unwrap();
    setup(&root, &pod, &resolved("1"), &facts);
    for (name, mode) in [("empty", 0o2777), ("memory", 0o3777)] {
        let meta = place(name).metadata().unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.gid()), (mode, 4321), "{name}");
        // From now on it is the pod's.
        std::os::unix::fs::chown(place(name), None, Some(7)).unwrap();
    }
    setup(&root, &pod, &resolved("1"), &facts);
    assert_eq!(["empty", "memory"].map(|name| place(name).metadata().unwrap().gid()), [7, 7]);
    // The node was started anew: what was in memory is gone, and the file that says it was there is not.
    node::mounts::unmount(&place("memory")).unwrap();
    setup(&root, &pod, &resolved("1"), &facts);
    assert_eq!(place("memory").metadata().unwrap().gid(), 4321);
    remove(&root, "u-1").unwrap();
}

#[test]
fn a_volume_that_no_container_uses_is_not_made_and_keeps_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut pod = pod();
    let spec = pod.spec.as_mut().unwrap();
    spec.containers[0].volume_mounts.as_mut().unwrap().retain(|mount| mount.name == "empty");
    let (paths, errors) = setup(dir.path(), &pod, &Resolved::default(), &NodeFacts::default());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(paths.keys().collect::<Vec<_>>(), ["empty"]);
    remove(dir.path(), "u-1").unwrap();
}

#[test]
fn a_link_in_a_volume_cannot_show_the_node_to_the_container() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (pod, facts) = (pod(), NodeFacts::default());
    let (paths, _) = setup(&root, &pod, &resolved("1"), &facts);
    std::os::unix::fs::symlink("/etc", paths["empty"].join("me")).unwrap();
    let env = [("WHO".to_owned(), "me".to_owned())].into();
    let container = spec::containers(&pod)[0].clone();
    let error = mounts::of_container(&pod, &container, &around(&root, &paths, &env, &[], &facts)).unwrap_err();
    assert_eq!(error.to_string(), "failed to prepare subPath for volumeMount \"empty\" of container \"c\"");
    remove(&root, "u-1").unwrap();
}

/// Without images, on a runtime that can do nothing special.
fn around<'a>(
    root: &'a Path,
    paths: &'a Paths,
    env: &'a BTreeMap<String, String>,
    ips: &'a [String],
    facts: &'a NodeFacts,
) -> mounts::Around<'a> {
    static NONE: std::sync::LazyLock<mounts::Images> = std::sync::LazyLock::new(mounts::Images::new);
    static PLAIN: std::sync::LazyLock<std::collections::HashSet<String>> = std::sync::LazyLock::new(Default::default);
    let abilities = Abilities::default();
    mounts::Around { root, paths, images: &NONE, relabelled: &PLAIN, env, ips, facts, abilities }
}

#[test]
fn a_directory_in_huge_pages_has_pages_that_the_pod_asks_for() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let asks = |medium: &str, pages: &[&str]| -> Pod {
        let requests: BTreeMap<String, &str> = pages.iter().map(|page| (format!("hugepages-{page}"), "4Mi")).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u-2"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}, "volumeMounts": [
                    {"name": "huge", "mountPath": "/h"},
                ]}],
                "volumes": [{"name": "huge", "emptyDir": {"medium": medium}}],
            },
        }))
        .unwrap()
    };
    let refused = |medium: &str, pages: &[&str]| {
        let (_, errors) = setup(&root, &asks(medium, pages), &Resolved::default(), &NodeFacts::default());
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert!(refused("HugePages", &[]).ends_with("there is no resource request for huge pages"));
    assert!(refused("HugePages-1Gi", &["2Mi"]).ends_with("there is no resource request for huge pages"));
    let several = refused("HugePages", &["2Mi", "1Gi"]);
    assert!(
        several.ends_with("medium: HugePages can't be used if container requests multiple huge page sizes"),
        "{several}"
    );
    let (paths, errors) = setup(&root, &asks("HugePages", &["2Mi"]), &Resolved::default(), &NodeFacts::default());
    assert!(errors.is_empty(), "{errors:?}");
    let mounts = node::mounts::list().unwrap();
    assert_eq!(
        mounts.iter().find(|mount| mount.target == paths["huge"]).map(|mount| mount.kind.as_str()),
        Some("hugetlbfs")
    );
    remove(&root, "u-2").unwrap();
}
