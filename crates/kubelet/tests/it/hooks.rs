//! Hooks of a container's life, and probes by every kind of question.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Pod;
use node::cri::Runtime as _;
use serde_json::{Value, json};

use crate::inside::container;
use crate::rig::{Rig, condition, phase};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
/// Serves pages, and prints every request.
const SERVE: &str = "mkdir /www; for word in page started-by-command stopped-by-command started-by-request stopped-by-request; do \
                     touch /www/$word; done; httpd -f -vv -p 8080 -h /www";

#[tokio::test]
async fn hooks_run_after_the_start_and_before_the_end() {
    let rig = Rig::start().await;
    let serving = container(SERVE, &json!({"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}));
    rig.pod("listener", json!({"containers": [serving]})).await;
    let listener = rig.ready("listener").await;
    let address = listener.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap();
    let exec =
        |word: &str| json!({"exec": {"command": ["wget", "-q", "-O", "-", format!("http://{address}:8080/{word}")]}});
    let get = |word: &str| json!({"httpGet": {"host": address, "port": 8080, "path": format!("/{word}")}});
    let hooks = |start: Value, stop: Value| json!({"containers": [container(LOOP, &json!({"lifecycle": {"postStart": start, "preStop": stop}}))]});
    rig.pod("by-command", hooks(exec("started-by-command"), exec("stopped-by-command"))).await;
    rig.pod("by-request", hooks(get("started-by-request"), get("stopped-by-request"))).await;
    let mut wasted = hooks(json!({"exec": {"command": ["false"]}}), json!({"sleep": {"seconds": 1}}));
    wasted["restartPolicy"] = json!("Never");
    rig.pod("wasted", wasted).await;
    let heard = |word: &str| rig.log(&listener, "main", 0).contains(word);
    for name in ["by-command", "by-request"] {
        rig.ready(name).await;
        // Nobody is told that it runs before its hook has run.
        assert!(heard(&format!("started-{name}")), "{}", rig.log(&listener, "main", 0));
        assert!(!heard(&format!("stopped-{name}")));
        rig.delete(name).await;
        assert!(heard(&format!("stopped-{name}")), "{}", rig.log(&listener, "main", 0));
    }
    rig.until("wasted", "ended", |pod| phase(pod) == "Succeeded").await;
    rig.event("wasted", "FailedPostStartHook: ").await;
    rig.stop().await;
}

/// A container that is told to end may still get traffic: whether it is ready is asked until it has ended, and whether it lives is not.
#[tokio::test]
async fn a_pod_that_ends_is_still_asked_whether_it_is_ready() {
    let rig = Rig::start().await;
    let look = |extra: Value| {
        let mut probe = json!({"exec": {"command": ["test", "-f", "/ok"]}, "periodSeconds": 1, "failureThreshold": 1});
        probe.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        probe
    };
    // It leaves once its readiness was seen to have gone.
    let script =
        "trap 'rm /ok; until test -f /seen; do sleep 0.1; done; exit 0' TERM; touch /ok; while :; do sleep 0.1; done";
    let probes = json!({"readinessProbe": look(json!({})), "livenessProbe": look(json!({"initialDelaySeconds": 1}))});
    let spec = json!({"terminationGracePeriodSeconds": 60, "containers": [container(script, &probes)]});
    rig.pod("leaving", spec).await;
    rig.ready("leaving").await;
    rig.admin.delete::<Pod>("default", "leaving", &client::DeleteOptions::default()).await.unwrap();
    let gone = |pod: &Pod| condition(pod, "Ready") == Some("False") && pod.metadata.deletion_timestamp.is_some();
    let leaving = rig.until("leaving", "not ready while it ends", gone).await;
    assert_eq!(phase(&leaving), "Running");
    let statuses = leaving.status.unwrap().container_statuses.unwrap();
    let id = statuses[0].container_id.as_deref().unwrap().trim_start_matches("containerd://");
    let seen = ["touch".to_owned(), "/seen".to_owned()];
    rig.runtime().exec_sync(id, &seen, Duration::from_secs(10)).await.unwrap();
    rig.gone("leaving").await;
    let events = rig.events("leaving").await;
    assert!(events.iter().any(|event| event.starts_with("Unhealthy: Readiness probe failed")), "{events:#?}");
    assert!(!events.iter().any(|event| event.starts_with("Unhealthy: Liveness")), "{events:#?}");
    rig.stop().await;
}

/// A server of gRPC's health service: good as a whole, bad as `bad`. Counts how often it was asked each.
async fn health_server() -> (u16, Arc<[AtomicUsize; 2]>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked: Arc<[AtomicUsize; 2]> = Arc::default();
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counted = counted.clone();
            let service = service_fn(move |request: http::Request<Incoming>| {
                let counted = counted.clone();
                async move {
                    let question = request.into_body().collect().await.unwrap().to_bytes();
                    let bad = question.ends_with(b"bad");
                    counted[usize::from(bad)].fetch_add(1, Ordering::Relaxed);
                    // A frame with field 1, the status: 1 is SERVING, 2 is NOT_SERVING.
                    let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, if bad { 2 } else { 1 }]);
                    let trailers = http::HeaderMap::from_iter([(
                        http::HeaderName::from_static("grpc-status"),
                        http::HeaderValue::from_static("0"),
                    )]);
                    let frames = [Ok::<_, Infallible>(Frame::data(message)), Ok(Frame::trailers(trailers))];
                    let body = StreamBody::new(futures::stream::iter(frames));
                    let answer = http::Response::builder().header("content-type", "application/grpc").body(body);
                    Ok::<_, Infallible>(answer.unwrap())
                }
            });
            tokio::spawn(async move {
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (port, asked)
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).map_or(0, |all| all[0].restart_count)
}

#[tokio::test]
async fn probes_ask_in_every_way() {
    let rig = Rig::start().await;
    let (port, asked) = health_server().await;
    let probed = "echo probed > /proc/1/fd/1";
    let answering = format!("printf '#!/bin/sh\\n{probed}\\n' > /p; busybox chmod +x /p; nc -ll -p 8080 -e /p");
    // Two in a row: one slow answer on a busy machine ends nobody.
    let probe = |kind: &str, question: Value| json!({kind: question, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 2, "terminationGracePeriodSeconds": 1});
    let shell = |script: &str| json!({"command": ["sh", "-c", script]});
    let grpc = |service: &str| json!({"port": port, "service": service});
    // Those that pass are asked again and again and never restarted.
    let late = |mut probe: Value| {
        probe["initialDelaySeconds"] = json!(2);
        probe
    };
    for (name, script, probe) in [
        ("live-request", SERVE, late(probe("httpGet", json!({"path": "/page", "port": 8080})))),
        ("live-connection", answering.as_str(), late(probe("tcpSocket", json!({"port": 8080})))),
        ("live-command", LOOP, probe("exec", shell(probed))),
        ("dead-request", SERVE, late(probe("httpGet", json!({"path": "/absent", "port": 8080})))),
        ("dead-connection", LOOP, probe("tcpSocket", json!({"port": 8080}))),
        ("dead-command", LOOP, probe("exec", shell("echo sick; exit 1"))),
    ] {
        rig.pod(name, json!({"containers": [container(script, &json!({"livenessProbe": probe}))]})).await;
    }
    for (name, service) in [("live-grpc", ""), ("dead-grpc", "bad")] {
        let own = container(LOOP, &json!({"livenessProbe": probe("grpc", grpc(service))}));
        // Its address is the node's, where the test listens.
        rig.pod(name, json!({"hostNetwork": true, "containers": [own]})).await;
    }
    let ready = |probe: Value| json!({"containers": [container(LOOP, &json!({"readinessProbe": probe}))]});
    rig.pod("ready-later", ready(json!({"exec": shell("true"), "periodSeconds": 1, "initialDelaySeconds": 2}))).await;
    let never = json!({"exec": shell(&format!("{probed}; false")), "periodSeconds": 1});
    rig.pod("never-ready", ready(never)).await;

    for (name, why) in [
        ("dead-request", "Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 404"),
        ("dead-connection", "Unhealthy: Liveness probe failed: dial tcp "),
        ("dead-command", "Unhealthy: Liveness probe failed: sick"),
        ("dead-grpc", "Unhealthy: Liveness probe failed: service unhealthy (responded with \"NOT_SERVING\")"),
    ] {
        rig.until(name, "restarted", |pod| restarts(pod) > 0).await;
        rig.event(name, why).await;
    }
    let later = rig.ready("ready-later").await;
    let status = later.status.as_ref().unwrap();
    let started = status.container_statuses.as_ref().unwrap()[0].state.as_ref().unwrap().running.as_ref().unwrap();
    let ready = status.conditions.as_ref().unwrap().iter().find(|condition| condition.type_ == "Ready").unwrap();
    let (started, ready) = (started.started_at.as_ref().unwrap(), ready.last_transition_time.as_ref().unwrap());
    assert!(ready.0.as_second() - started.0.as_second() >= 2, "{started:?} {ready:?}");
    let times = |name: &'static str, word: &'static str| {
        let rig = &rig;
        async move {
            let pod = rig.until(name, "started", |pod| phase(pod) == "Running").await;
            rig.eventually(name, || rig.log(&pod, "main", 0).matches(word).count() > 2).await;
        }
    };
    times("live-request", "url:/page").await;
    times("live-connection", "probed").await;
    times("live-command", "probed").await;
    times("never-ready", "probed").await;
    rig.eventually("live-grpc", || asked[0].load(Ordering::Relaxed) > 2).await;
    assert!(asked[1].load(Ordering::Relaxed) > 0);
    for name in ["live-request", "live-connection", "live-command", "live-grpc", "ready-later", "never-ready"] {
        let pod: Pod = rig.admin.get("default", name).await.unwrap();
        assert_eq!(restarts(&pod), 0, "{name}");
        let ready = if name == "never-ready" { "False" } else { "True" };
        assert_eq!(condition(&pod, "Ready"), Some(ready), "{name}");
    }
    rig.stop().await;
}
