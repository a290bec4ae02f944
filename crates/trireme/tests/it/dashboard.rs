//! The dashboard for Grafana: whatever it plots, the server counts, under upstream's names.

use std::collections::BTreeSet;

use testkit::{Server, ServerOptions};

use crate::node::BINARY;

/// Names of families in an expression: words that are followed by a selector.
fn families(expression: &str) -> impl Iterator<Item = &str> {
    expression.match_indices('{').map(|(at, _)| {
        let before = &expression[..at];
        let begin =
            before.rfind(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').map_or(0, |at| at + 1);
        &before[begin..]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_figure_of_the_dashboard_is_served() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/dashboard.json")).expect("a dashboard");
    let targets = dashboard["panels"].as_array().expect("panels").iter().flat_map(|panel| panel["targets"].as_array());
    let expressions: Vec<&str> = targets.flatten().filter_map(|target| target["expr"].as_str()).collect();
    let wanted: BTreeSet<&str> = expressions.iter().flat_map(|expression| families(expression)).collect();
    assert!(wanted.len() >= 12, "{wanted:?}");
    let arguments = vec!["--disable-agent".to_owned()];
    let mut server = Server::start(ServerOptions { binary: BINARY.into(), arguments }).await;
    let figures = server.kubectl().run(&["get", "--raw", "/metrics"]).await;
    for name in wanted {
        let family = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(figures.contains(&format!("# TYPE {family} ")), "{family}");
    }
    assert!(server.stop().await, "{}", server.log_text());
}
