//! No kustomization reads what is outside of its root, whatever its paths and links say.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use kustomize::{Options, Restrictor, build};

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: outside}\n";

fn outcome(root: &Path, options: Options) -> Result<String, String> {
    build(root, options, &mut |_| {}).map(|built| built.yaml).map_err(|error| error.to_string())
}

fn folder(kustomization: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).expect("a folder");
    fs::write(inside.join("kustomization.yaml"), kustomization).expect("written");
    fs::write(folder.path().join("outside.yaml"), MAP).expect("written");
    (folder, inside)
}

#[test]
fn files_outside_are_refused_also_behind_links() {
    let (_kept, inside) = folder("resources: [link.yaml]\n");
    symlink("../outside.yaml", inside.join("link.yaml")).expect("a link");
    let refused = outcome(&inside, Options::default()).expect_err("outside");
    assert!(refused.contains("security; file"), "{refused}");
    let free = Options { restrictor: Restrictor::None, ..Options::default() };
    assert!(outcome(&inside, free).expect("no restriction").contains("name: outside"));
}

#[test]
fn links_that_stay_inside_are_followed() {
    let (_kept, inside) = folder("resources: [link.yaml]\n");
    fs::write(inside.join("real.yaml"), MAP).expect("written");
    symlink("real.yaml", inside.join("link.yaml")).expect("a link");
    assert!(outcome(&inside, Options::default()).expect("inside").contains("name: outside"));
}

#[test]
fn nothing_is_fetched() {
    for remote in [
        "https://example.com/base.yaml",
        "github.com/example/repo//base?ref=v1",
        "git@github.com:example/repo.git",
        "https://github.com/example/repo.git/base",
    ] {
        let (_kept, inside) = folder(&format!("resources: [\"{remote}\"]\n"));
        let refused = outcome(&inside, Options::default()).expect_err("remote");
        assert!(refused.contains("remote resources are not read"), "{refused}");
    }
}

#[test]
fn a_link_to_an_ancestor_is_a_cycle() {
    let (_kept, inside) = folder("resources: [again]\n");
    symlink("..", inside.join("again")).expect("a link");
    let refused = outcome(&inside, Options::default()).expect_err("a cycle");
    assert!(refused.contains("cycle detected"), "{refused}");
}
