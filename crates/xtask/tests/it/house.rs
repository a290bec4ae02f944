//! Which crate may use which, and who may start programs.

use std::collections::BTreeSet;

use crate::source::{crates, production};

/// The crates in the order of ARCHITECTURE.md, bottom up: bold names at the beginning of a paragraph, before its dash.
fn drawn() -> Vec<String> {
    let text = std::fs::read_to_string(xtask::root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section =
        text.split("\n## ").find(|section| section.starts_with("The crates\n")).expect("a list of the crates");
    let heads = section.lines().filter(|line| line.starts_with("**")).filter_map(|line| line.split_once(" — "));
    heads.flat_map(|(names, _)| names.split(", ").map(|name| name.trim_matches('*').to_owned())).collect()
}

/// What a crate needs to be built, of ours.
fn needs(name: &str, ours: &BTreeSet<String>) -> Vec<String> {
    let path = xtask::root().join("crates").join(name).join("Cargo.toml");
    let text = std::fs::read_to_string(path).expect("a manifest");
    let sections = text.split("\n[").filter(|section| {
        let head = section.lines().next().unwrap_or_default();
        head == "dependencies]" || head == "build-dependencies]"
    });
    let lines = sections.flat_map(|section| section.lines().skip(1));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next()).map(str::to_owned);
    names.filter(|name| ours.contains(name)).collect()
}

#[test]
fn every_crate_is_drawn_once() {
    let mut drawn = drawn();
    drawn.sort();
    assert_eq!(drawn, crates(), "ARCHITECTURE.md lists the crates in bold, bottom up");
}

#[test]
fn no_crate_reaches_up() {
    let order = drawn();
    let ours: BTreeSet<String> = crates().into_iter().collect();
    for (at, name) in order.iter().enumerate() {
        for used in needs(name, &ours) {
            assert!(order[..at].contains(&used), "{name} uses {used}, which ARCHITECTURE.md does not list above it");
        }
    }
    // What would fail: the API server and the parts that ask it are drawn, and not as siblings.
    assert!(needs("apiserver", &ours).contains(&"machinery".to_owned()), "no dependency was read");
}

/// `node` is the machine. The others run programs for developers and tests, except for those that a user of kubectl names: credential
/// plugins of a kubeconfig, an editor, a diff, plug-ins.
#[test]
fn only_node_starts_programs() {
    const MAY: [&str; 7] = [
        "crates/node/",
        "crates/client/src/config/exec.rs",
        "crates/cliruntime/src/program.rs",
        "crates/bench/",
        "crates/devnet/",
        "crates/testkit/",
        "crates/xtask/",
    ];
    let mut starting = 0;
    for (path, text) in production() {
        if !["process::Command", "Command::new"].iter().any(|word| text.contains(word)) {
            continue;
        }
        assert!(MAY.iter().any(|may| path.starts_with(may)), "{path} starts a program");
        starting += 1;
    }
    assert!(starting > 2, "no program was found to be started");
}

/// Prometheus' text form has one writer, so that numbers and quotes are the same in all of it. Who reads the form back is no writer.
#[test]
fn only_figures_writes_the_text_of_scrapers() {
    const MAY: [&str; 2] = ["crates/figures/", "crates/apiserver/src/metrics/protobuf.rs"];
    let mut writing = 0;
    for (path, text) in production() {
        if !["# TYPE ", "# HELP ", "_bucket{{"].iter().any(|word| text.contains(word)) {
            continue;
        }
        // A benchmark looks for one bucket by its name.
        let reads = path.starts_with("crates/bench/") || path.starts_with("crates/xtask/");
        assert!(reads || MAY.iter().any(|may| path.starts_with(may)), "{path} writes the text form by itself");
        writing += 1;
    }
    assert!(writing > 0, "nothing was found that writes it");
}

/// A request has its `Exchange`, which says whose trace it is: nothing on its way asks the task that it runs on.
#[test]
fn the_api_server_asks_no_task_for_its_trace() {
    const ROOMS: [&str; 5] = ["aggregator", "apiserver", "gates", "rest", "storage"];
    let mut asking = 0;
    for (path, text) in production() {
        if !["hops::scope", "hops::current", "hops::turn", "task_local!"].iter().any(|word| text.contains(word)) {
            continue;
        }
        let room = ROOMS.iter().find(|room| path.starts_with(&format!("crates/{room}/")));
        assert_eq!(room, None, "{path} asks the task instead of the exchange");
        asking += 1;
    }
    assert!(asking > 2, "parts that act on their own were not found to do so");
}
