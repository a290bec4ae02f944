use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many calls are made when each ends with the next of these.
async fn check(outcomes: Vec<Result<(), Error>>, calls: usize, succeeds: bool) {
    let (outcomes, made) = (Mutex::new(outcomes.into_iter()), AtomicUsize::new(0));
    let retry = Retry { attempts: 3, pause: Duration::ZERO };
    let outcome = retry
        .run(|| {
            made.fetch_add(1, Ordering::Relaxed);
            let next = outcomes.lock().next().expect("not more calls than outcomes");
            async move { next }
        })
        .await;
    assert_eq!((made.into_inner(), outcome.is_ok()), (calls, succeeds));
}

#[test]
fn a_pod_finds_its_cluster() {
    let account = tempfile::tempdir().expect("a directory");
    let (host, port) = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT");
    let inside = |name: &str| {
        let known = [(host, "fd00::1"), (port, "6443")];
        known.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
    };
    let outside = Remote::in_cluster(account.path(), |_| None).expect_err("no cluster").to_string();
    assert!(outside.starts_with("unable to load in-cluster configuration"), "{outside}");
    assert!(matches!(Remote::in_cluster(account.path(), inside), Err(Error::File { .. })));
    let key = pki::PrivateKey::generate().expect("a key");
    let day = Duration::from_secs(86_400);
    let authority = pki::Authority::new("ca", key, jiff::Timestamp::UNIX_EPOCH, day).expect("an authority");
    std::fs::write(account.path().join("ca.crt"), authority.certificate().to_pem()).expect("a file");
    std::fs::write(account.path().join("token"), "secret\n").expect("a file");
    let remote = Remote::in_cluster(account.path(), inside).expect("a cluster");
    assert_eq!(remote.address(), "https://[fd00::1]:6443/");
    let shown = remote.authorization.as_ref().expect("a token");
    assert!(shown.is_sensitive() && shown == "Bearer secret");
    assert!(!format!("{remote:?}").contains("secret"));
}

#[tokio::test]
async fn only_what_passes_is_tried_again() {
    let refused = || Err(Error::Connection("refused".to_owned()));
    check(vec![Ok(())], 1, true).await;
    check(vec![refused(), Err(Error::Timeout), Ok(())], 3, true).await;
    check(vec![refused(), Err(Error::Status(503)), refused()], 3, false).await;
    check(vec![Err(Error::Status(403))], 1, false).await;
    check(vec![Err(Error::Status(302))], 1, false).await;
    check(vec![Err(Error::Answer("junk".to_owned()))], 1, false).await;
}
