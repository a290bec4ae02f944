//! Drivers that mean no good, or do not know better: each is told what is wrong with it, and nobody else notices.

use std::io::Write as _;
use std::os::unix::net::UnixListener;

use k8s_openapi::api::storage::v1::CSINode;
use serde_json::json;
use testkit::csi::{PluginInfo, Pretender, Traits, Trouble};

use crate::rig::{NODE, Rig};
use crate::storage::{DRIVER, LOOP, claim, driver, volume, with_volume};

fn plugin(name: &str, endpoint: &str, versions: &[&str]) -> PluginInfo {
    PluginInfo {
        r#type: "CSIPlugin".to_owned(),
        name: name.to_owned(),
        endpoint: endpoint.to_owned(),
        supported_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
    }
}

#[tokio::test]
async fn plug_ins_that_hang_talk_nonsense_or_take_names_are_refused_and_stop_nobody() {
    let rig = Rig::start().await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    let registry = rig.dir.path().join("kubelet/plugins_registry");
    let at = |name: &str| registry.join(name);
    // One never answers, one answers anything to anybody.
    let _hangs = UnixListener::bind(at("hangs-reg.sock")).unwrap();
    let garbage = UnixListener::bind(at("garbage-reg.sock")).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = garbage.accept() {
            let _ = stream.write_all(&[0xff; 512]);
        }
    });
    let own = driver.socket().to_string_lossy().into_owned();
    let refused = async |socket: &str, info: PluginInfo| -> String {
        let pretender = Pretender::start(&at(socket), info);
        let why = pretender.registered().await.expect_err("it is refused");
        std::fs::remove_file(at(socket)).unwrap();
        why
    };
    let begin = |name: &str| {
        let begin = "RegisterPlugin error -- plugin validation failed with err: kubernetes.io/csi: ValidatePlugin for CSI driver";
        format!("{begin} {name:?} failed.")
    };
    assert_eq!(
        refused("old-reg.sock", plugin("old.example", &own, &["0.3.0", "2.0.0"])).await,
        format!(
            "{} None of the versions specified [\"0.3.0\" \"2.0.0\"] are supported. err=highest supported version reported is 0.3.0, must be v1.x",
            begin("old.example")
        )
    );
    assert_eq!(
        refused("none-reg.sock", plugin("none.example", &own, &[])).await,
        format!("{} Plugin returned an empty list for supported versions", begin("none.example"))
    );
    assert_eq!(
        refused("clash-reg.sock", plugin(DRIVER, &own, &["1.0.0"])).await,
        format!(
            "{} Another driver with the same name is already registered with a higher supported version: \"1.0.0\"",
            begin(DRIVER)
        )
    );
    let other = PluginInfo { r#type: "Other".to_owned(), ..plugin("other", &own, &["1.0.0"]) };
    let why = refused("other-reg.sock", other).await;
    assert!(
        why.starts_with("RegisterPlugin error -- no handler registered for plugin type: Other at socket "),
        "{why}"
    );
    // A name that would be a path is no name of a driver.
    let why = refused("path-reg.sock", plugin("../../evil", &own, &["1.0.0"])).await;
    assert!(why.contains("CSINode"), "{why}");
    let nobody = rig.dir.path().join("nobody.sock").to_string_lossy().into_owned();
    let why = refused("nobody-reg.sock", plugin("nobody.example", &nobody, &["1.0.0"])).await;
    assert!(why.contains("code = Unavailable"), "{why}");
    let drivers = rig.admin.get::<CSINode>("", NODE).await.unwrap().spec.drivers;
    assert_eq!(drivers.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [DRIVER]);
    // What is registered works beside all of that.
    volume(&rig, &driver, "v", json!({})).await;
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    rig.ready("p").await;
    rig.delete("p").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn handles_that_are_paths_and_sockets_that_became_links_lead_nowhere() {
    let rig = Rig::start().await;
    let mut driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    let handle = "../../../escape";
    let source = json!({"csi": {"driver": DRIVER, "volumeHandle": handle, "fsType": "ext4"}});
    std::fs::create_dir_all(driver.contents(&handle.replace('/', "_"))).unwrap();
    volume(&rig, &driver, "v", source).await;
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    rig.ready("p").await;
    let root = rig.dir.path().join("kubelet");
    for call in driver.calls().iter().filter(|call| call.volume == handle) {
        assert!(call.target.starts_with(&*root.to_string_lossy()) && !call.target.contains(".."), "{call:?}");
    }
    rig.delete("p").await;
    // The driver's socket is swapped for a link to a socket: nobody is asked through it.
    let (socket, moved) = (driver.socket(), rig.dir.path().join("moved.sock"));
    std::fs::rename(&socket, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &socket).unwrap();
    let before = driver.calls().len();
    rig.pod("q", with_volume(LOOP, claim("v"))).await;
    let why = rig.event("q", "FailedMount: MountVolume.MountDevice failed for volume \"v\" : ").await;
    assert!(why.ends_with("csi.sock is not a socket"), "{why}");
    assert_eq!(driver.calls().len(), before, "nothing came through the link");
    std::fs::remove_file(&socket).unwrap();
    driver.revive();
    rig.ready("q").await;
    rig.delete("q").await;
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
}

#[tokio::test]
async fn a_full_disk_of_the_node_or_of_the_driver_is_told_and_a_pod_goes_on_when_there_is_room() {
    let mut root = std::path::PathBuf::new();
    let rig = Rig::start_with(|config| {
        root.clone_from(&config.node.root);
        std::fs::create_dir_all(&root).unwrap();
        node::mounts::tmpfs(&root, Some(8 << 20), 0o755).unwrap();
    })
    .await;
    let driver = driver(&rig, Traits::default(), json!({"attachRequired": false})).await;
    for name in ["v", "w"] {
        volume(&rig, &driver, name, json!({})).await;
    }
    rig.pod("before", with_volume(LOOP, claim("w"))).await;
    rig.ready("before").await;
    let filler = root.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    rig.pod("p", with_volume(LOOP, claim("v"))).await;
    let why = rig.event("p", "FailedMount: MountVolume.MountDevice failed for volume \"v\" : ").await;
    assert!(why.contains("failed to save volume info data: No space left on device"), "{why}");
    assert_eq!(driver.names("v"), [] as [&str; 0], "nothing is asked that would not be remembered");
    rig.delete("p").await;
    // The driver's disk is next.
    let full = "no space left on device".to_owned();
    driver.trouble("NodeStageVolume", Trouble::Refuse(tonic::Code::ResourceExhausted, full));
    // Its room comes back when nobody has it open.
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    let code = "rpc error: code = ResourceExhausted desc = no space left on device";
    rig.pod("q", with_volume(LOOP, claim("v"))).await;
    rig.event("q", &format!("FailedMount: MountVolume.MountDevice failed for volume \"v\" : {code}")).await;
    rig.ready("q").await;
    for name in ["q", "before"] {
        rig.delete(name).await;
    }
    assert_eq!((driver.broken_promises(), driver.in_use()), (vec![], vec![]));
    rig.stop().await;
    node::mounts::unmount_below(&root).unwrap();
}
