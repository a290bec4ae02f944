//! Sandboxes, containers and images under our own containerd, over its restarts.

use std::time::Duration;

use futures::StreamExt;
use node::containerd::{Containerd, Import};
use node::cri::{EventKind, Runtime, v1};

use crate::rig::{BUSYBOX, PAUSE, Rig, busybox};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_pod_runs_answers_logs_and_leaves_nothing() {
    let rig = Rig::start().await;
    let runtime = rig.containerd.client();
    rig.containerd.import_bytes(BUSYBOX, busybox).await.unwrap();
    let mut events = runtime.events().await.unwrap();

    let sandbox_config = rig.sandbox("one");
    let sandbox = runtime.run_sandbox(sandbox_config.clone(), "").await.unwrap();
    let status = runtime.sandbox_status(&sandbox).await.unwrap();
    let ip = status.network.unwrap().ip;
    assert!(ip.starts_with(rig.range.to_string().trim_end_matches("0/24")), "{ip}");

    let script = "echo out; echo err >&2; trap 'exit 7' TERM; while :; do sleep 0.1; done";
    let config = rig.shell("main", script);
    let id = runtime.create_container(&sandbox, config, sandbox_config).await.unwrap();
    runtime.start_container(&id).await.unwrap();

    let command = ["hostname".to_owned()];
    let said = runtime.exec_sync(&id, &command, Duration::from_secs(5)).await.unwrap();
    assert_eq!((said.exit_code, said.stdout.as_slice()), (0, b"one\n".as_slice()));
    let stats = runtime.container_stats(v1::ContainerStatsFilter::default()).await.unwrap();
    assert_eq!(stats.len(), 1);

    runtime.stop_container(&id, Duration::from_secs(5)).await.unwrap();
    let status = runtime.container_status(&id).await.unwrap();
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 7));

    let exited = async {
        let (mut started, mut exited) = (false, false);
        while !(started && exited) {
            let event = events.next().await.unwrap().unwrap();
            started |= event.id == id && event.kind == EventKind::Started;
            exited |= event.id == id && event.kind == EventKind::Exited;
        }
    };
    tokio::time::timeout(SOON, exited).await.expect("both events come");

    let log = std::fs::read_to_string(rig.dir.path().join("logs/one/main.log")).unwrap();
    assert!(log.contains(" stdout F out\n") && log.contains(" stderr F err\n"), "{log}");
    runtime.remove_container(&id).await.unwrap();
    runtime.remove_container(&id).await.unwrap();
    rig.stop().await;
}

#[tokio::test]
async fn containers_outlive_restarts_of_supervisor_and_containerd() {
    let mut rig = Rig::start().await;
    rig.containerd.import_bytes(BUSYBOX, busybox).await.unwrap();
    let runtime = rig.containerd.client();
    let sandbox_config = rig.sandbox("two");
    let sandbox = runtime.run_sandbox(sandbox_config.clone(), "").await.unwrap();
    let id = runtime.create_container(&sandbox, rig.shell("main", "sleep 1000"), sandbox_config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    let before = runtime.container_status(&id).await.unwrap();

    // The supervisor goes and comes back: it must adopt what runs.
    let pid = *rig.containerd.serving().borrow();
    rig.containerd.release();
    rig.containerd = Containerd::start(rig.config.clone()).await.unwrap();
    assert_eq!(*rig.containerd.serving().borrow(), pid);

    // containerd dies: it must be back, and the container must not have noticed.
    let mut serving = rig.containerd.serving();
    node::process::Process::open(pid).unwrap().signal(rustix::process::Signal::KILL).unwrap();
    let back = serving.wait_for(|now| *now != pid && *now != 0);
    tokio::time::timeout(SOON, back).await.expect("containerd comes back").unwrap();
    let after = rig.containerd.client().container_status(&id).await.unwrap();
    assert_eq!((after.state(), after.started_at), (v1::ContainerState::ContainerRunning, before.started_at));
    rig.stop().await;
}

#[tokio::test]
async fn archives_are_imported_only_when_they_changed() {
    let rig = Rig::start().await;
    assert_eq!(rig.containerd.import_bytes(PAUSE, || unreachable!()).await.unwrap(), Import::Unchanged);
    let archive = rig.dir.path().join("busybox.tar");
    std::fs::write(&archive, busybox()).unwrap();
    let imported = Import::Imported(vec![BUSYBOX.to_owned()]);
    assert_eq!(rig.containerd.import_file(&archive).await.unwrap(), imported);
    assert_eq!(rig.containerd.import_file(&archive).await.unwrap(), Import::Unchanged);
    // Another time with the same content is the same archive; a removed image has to come back.
    std::fs::write(&archive, busybox()).unwrap();
    assert_eq!(rig.containerd.import_file(&archive).await.unwrap(), Import::Unchanged);
    let image = v1::ImageSpec { image: BUSYBOX.into(), ..Default::default() };
    rig.containerd.client().remove_image(image).await.unwrap();
    assert_eq!(rig.containerd.import_file(&archive).await.unwrap(), imported);
    assert_eq!(rig.containerd.imported_images(), [BUSYBOX]);
    std::fs::write(rig.dir.path().join("broken.tar"), b"not an archive").unwrap();
    assert!(rig.containerd.import_directory(rig.dir.path()).await.is_err());
    rig.stop().await;
}

/// A registry that takes connections and says nothing, or begins to answer and falls silent.
async fn silent(begins: bool) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked).await;
            if begins {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.oci.image.manifest.v1+json\r\n";
                let _ = stream.write_all(format!("{head}Content-Length: 1000\r\n\r\n{{").as_bytes()).await;
            }
            kept.push(stream);
        }
    });
    port
}

#[tokio::test]
async fn a_pull_that_stands_still_is_given_up() {
    let rig = Rig::start().await;
    let runtime = rig.containerd.client().with_pull_patience(Duration::from_secs(2));
    for begins in [false, true] {
        let image = format!("127.0.0.1:{}/still:1", silent(begins).await);
        let spec = v1::ImageSpec { image: image.clone(), ..Default::default() };
        let pulled =
            tokio::time::timeout(Duration::from_secs(60), runtime.pull_image(spec, None, rig.sandbox("still")));
        let error = pulled.await.expect("it is given up").unwrap_err().to_string();
        let expect = format!("Cancel pulling image {image:?} because of no progress for 2s, latest progress: ");
        assert!(error.contains(&expect), "{error}");
    }
    rig.stop().await;
}
