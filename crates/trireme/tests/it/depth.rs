//! Objects as deep as they can be: a walk that calls itself needs a stack, and the end of one would be the end of the process.

use testkit::{Server, ServerOptions};

use crate::node::BINARY;

/// A text inside itself. Written, not built: a tree of this depth would end the test before the server.
fn nested(levels: usize, open: &str, inner: &str, close: &str) -> String {
    [&open.repeat(levels), inner, &close.repeat(levels)].concat()
}

/// A definition whose schema has this many levels. Each is two of the text.
fn definition(levels: usize) -> String {
    let schema = nested(levels, r#"{"type":"object","properties":{"a":"#, r#"{"type":"object"}"#, "}}");
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{{"name":"ships.deep{levels}.example.com"}},
        "spec":{{"group":"deep{levels}.example.com","scope":"Namespaced",
        "names":{{"plural":"ships","singular":"ship","kind":"Ship"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
    )
}

/// A ship whose cargo has this many levels.
fn ship(levels: usize) -> String {
    let cargo = nested(levels, r#"{"a":"#, "{}", "}");
    format!(r#"{{"apiVersion":"deep60.example.com/v1","kind":"Ship","metadata":{{"name":"s"}},"a":{cargo}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_depth_ends_the_server() {
    let arguments = ["--disable-agent", "--disable-scheduler"].map(str::to_owned).to_vec();
    let server = Server::start(ServerOptions { binary: BINARY.into(), arguments }).await;
    let kubectl = server.kubectl();
    // The last ones are deeper than the decoder lets through.
    for levels in [60, 120, 180, 240, 249, 260, 2000] {
        let output = kubectl.output(&["create", "--validate=false", "-f", "-"], &definition(levels)).await;
        assert!(output.success || output.stderr.contains("rror"), "{levels}: {output:?}");
        assert_eq!(kubectl.run(&["get", "--raw", "/livez"]).await, "ok", "after {levels} levels");
    }
    kubectl.run(&["wait", "crd/ships.deep60.example.com", "--for=condition=Established"]).await;
    for levels in [50, 300, 490, 600] {
        let output = kubectl.output(&["create", "--validate=false", "-f", "-"], &ship(levels)).await;
        assert!(output.success || output.stderr.contains("rror"), "{levels}: {output:?}");
        assert_eq!(kubectl.run(&["get", "--raw", "/livez"]).await, "ok", "after {levels} levels");
        kubectl.output(&["delete", "ships.deep60.example.com", "s"], "").await;
    }
}
