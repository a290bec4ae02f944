//! What is asked of a server before anything else, and what of it is remembered.

use std::path::Path;

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use testkit::Https;

use crate::Shell;

/// What was asked, and what came of it, as `-v=6` tells.
fn requests(log: &str) -> Vec<String> {
    let part = |line: &str, name: &str| {
        let rest = line.split_once(&format!(" {name}=\""))?.1;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let request = |line: &str| {
        let url = part(line, "url")?;
        let path = url.splitn(4, '/').nth(3)?.split('?').next()?.to_owned();
        Some(format!("{path} {}", part(line, "status")?))
    };
    log.lines().filter_map(request).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_still_as_it_was_is_not_sent_again() {
    let (cluster, shell) = Shell::with_cluster().await;
    let list = "api/v1/namespaces/default/configmaps 200 OK";
    let asked = requests(&shell.run("get cm -v=6").await.err);
    assert_eq!(asked, ["api 200 OK", "apis 200 OK", list]);
    assert_eq!(requests(&shell.run("get cm -v=6").await.err), [list], "what is served is remembered");
    std::fs::remove_dir_all(shell.home().join(".kube/cache/discovery")).expect("what is remembered");
    let asked = requests(&shell.run("get cm -v=6").await.err);
    assert_eq!(asked, ["api 304 Not Modified", "apis 304 Not Modified", list]);
    // The address of a schema changes with it, and what it had holds for a year.
    let explained = shell.run("explain deploy -v=6").await;
    assert!(explained.out.starts_with("GROUP:      apps\nKIND:       Deployment\n"), "{}", explained.out);
    assert_eq!(requests(&explained.err), ["openapi/v3 200 OK", "openapi/v3/apis/apps/v1 200 OK"]);
    let again = shell.run("explain deploy -v=6").await;
    assert_eq!(again.out, explained.out);
    assert_eq!(requests(&again.err), ["openapi/v3 304 Not Modified"]);
    cluster.stop().await;
}

/// Has the index that is kept name an old schema, as that of a server does which does not know the new one yet.
fn age(http: &Path) {
    let files = std::fs::read_dir(http).expect("a directory").map(|file| file.expect("a file").path());
    let (file, mut kept) = files
        .map(|file| (file.clone(), std::fs::read(file).expect("a file").split_off(32)))
        .find(|(_, kept)| String::from_utf8_lossy(kept).contains("serverRelativeURL"))
        .expect("an index");
    let hash = b"/openapi/v3/apis/apps/v1?hash=";
    let at = kept.windows(hash.len()).position(|part| part == hash).expect("an address");
    kept[at + hash.len()] = b'x';
    let sum = digest(&SHA256, &kept);
    std::fs::write(file, [sum.as_ref(), &kept].concat()).expect("a file");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_an_old_schema_is_sent_to_the_new_one() {
    let (cluster, shell) = Shell::with_cluster().await;
    let explained = shell.ok("explain deploy").await;
    age(&shell.home().join(".kube/cache/http"));
    let again = shell.run("explain deploy -v=6").await;
    assert_eq!(again.out, explained, "{}", again.err);
    let schema = "openapi/v3/apis/apps/v1";
    let (moved, found) = (format!("{schema} 301 Moved Permanently"), format!("{schema} 200 OK"));
    assert_eq!(requests(&again.err), ["openapi/v3 304 Not Modified", &*moved, &*found]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_version_is_refused_where_the_user_wants_that() {
    let (cluster, shell) = Shell::with_cluster().await;
    let said = shell.run("get ns default -o name --match-server-version -v=6").await;
    assert_eq!((said.code, said.out.as_str()), (0, "namespace/default\n"), "{}", said.err);
    assert_eq!(requests(&said.err)[0], "version 200 OK");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_said_or_served_for_a_server_of_another_version() {
    let old = Bytes::from_static(br#"{"major":"1","minor":"36","gitVersion":"v1.36.1"}"#);
    let server = Https::start(|_| move |_: http::Request<Bytes>| http::Response::new(old.clone())).await;
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("")).expect("a file");
    let shell = Shell::new(&file, home.path());
    for line in ["version", "get cm a", "proxy --port=0", "delete --raw /api/v1/namespaces/a"] {
        let said = shell.fail(&format!("{line} --match-server-version")).await;
        assert!(said.starts_with("error: server version (&version.Info{Major:\"1\", Minor:\"36\", "), "{line}: {said}");
    }
    assert_eq!(shell.run("version --client --match-server-version").await.code, 0);
}

#[tokio::test]
async fn alpha_has_no_commands() {
    let shell = Shell::new("/nonexistent".as_ref(), "/".as_ref());
    for line in ["alpha", "alpha --help", "alpha foo", "help alpha"] {
        let said = shell.run(line).await;
        let expected = (0, "", "No alpha commands are available in this version of kubectl\n");
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), expected, "{line}");
    }
    assert!(!shell.ok("--help").await.contains("alpha"));
}
