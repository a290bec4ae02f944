//! Real Helm with a chart of ours that has a definition, custom resources and hooks.

use std::path::Path;

use serde_json::Value;
use testkit::Server;

use super::{installed, output, programs, run, server};

struct Helm<'a> {
    program: &'a Path,
    server: &'a Server,
    chart: String,
}

impl Helm<'_> {
    async fn run(&self, arguments: &[&str]) -> String {
        run(self.server, self.program, arguments).await
    }

    /// Upgrades, which must fail; what Helm says of it.
    async fn refused(&self, setting: &str) -> String {
        let arguments = ["upgrade", "h", &self.chart, "--wait", "--set", setting];
        let output = output(self.server, self.program, &arguments).await;
        assert!(!output.status.success(), "an upgrade with {setting} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The status of every revision.
    async fn history(&self) -> Vec<String> {
        let history: Value = serde_json::from_str(&self.run(&["history", "h", "-o", "json"]).await).expect("JSON");
        let revisions = history.as_array().expect("revisions").iter();
        revisions.map(|revision| revision["status"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Names and crews of ships.
    async fn ships(&self) -> String {
        let columns = "jsonpath={range .items[*]}{.metadata.name}={.spec.crew} {end}";
        self.server.kubectl().run(&["get", "ships", "-o", columns]).await
    }

    /// Which hooks ran, by what they left.
    async fn hooks(&self) -> String {
        let names = "jsonpath={range .items[*]}{.metadata.name}@{.data.revision} {end}";
        self.server.kubectl().run(&["get", "configmaps", "-o", names]).await
    }
}

#[tokio::test]
async fn helm_installs_upgrades_rolls_back_and_removes_a_chart_with_definitions_and_hooks() {
    let Some(program) = installed("venv/bin/helm") else { return };
    let server = server().await;
    let chart = programs().join("chart").to_string_lossy().into_owned();
    let helm = Helm { program: &program, server: &server, chart: chart.clone() };

    helm.run(&["install", "h", &chart, "--wait"]).await;
    assert_eq!(helm.ships().await, "h-argo=3 ");
    let hooks = helm.hooks().await;
    assert!(hooks.contains("h-pre-install@1 ") && hooks.contains("h-post-install@1 "), "{hooks}");

    helm.run(&["upgrade", "h", &chart, "--wait", "--set", "crew=5", "--set", "ships={argo,pinta}"]).await;
    assert_eq!(helm.ships().await, "h-argo=5 h-pinta=5 ");
    assert!(helm.hooks().await.contains("h-pre-upgrade@2 "));

    let said = helm.refused("hook.fails=true").await;
    assert!(said.contains("post-upgrade hooks failed") && said.contains("a ship has at most 100 sailors"), "{said}");
    let said = helm.refused("crew=101").await;
    assert!(said.contains(r#"cannot patch "h-argo" with kind Ship"#), "{said}");

    helm.run(&["rollback", "h", "1", "--wait"]).await;
    assert_eq!(helm.ships().await, "h-argo=3 ");
    assert!(helm.hooks().await.contains("h-post-rollback@"), "the hook of a rollback");
    assert_eq!(helm.history().await, ["superseded", "superseded", "failed", "failed", "deployed"]);

    helm.run(&["uninstall", "h", "--wait"]).await;
    assert_eq!(helm.ships().await, "", "no ship is left; the definition is, as Helm promises");
    // A rollback brings back the hooks of then, with what was written into them.
    assert!(helm.hooks().await.contains("h-pre-delete@1 "));
}
