//! Images as directories, for runtimes that cannot mount an image into a container themselves: containerd before 2.2.
//!
//! containerd has the files of an image as a snapshot anyway. A read-only view of it says how to mount them; the mount itself
//! is ours. A view carries the pod it was made for, and a mark that keeps containerd from tidying it away.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures::TryStreamExt;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::events::NAMESPACE;
use super::{Error, v1};
use crate::mounts::View;

#[allow(clippy::all, clippy::unwrap_used)]
mod wire {
    tonic::include_proto!("containerd.services.snapshots.v1");
}

use wire::snapshots_client::SnapshotsClient;

const DEADLINE: Duration = Duration::from_secs(60);
/// The label with the pod's uid.
const POD: &str = "trireme.pod";
/// The label that keeps a snapshot which no container uses.
const KEEP: &str = "containerd.io/gc.root";
/// Where files of images can be when the runtime does not say.
const SNAPSHOTTERS: [&str; 2] = ["overlayfs", "native"];

/// Whether this runtime mounts images into containers when it is info to, with paths inside them too.
pub(super) fn mounts_itself(runtime: &v1::VersionResponse) -> bool {
    let mut numbers = runtime.runtime_version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    runtime.runtime_name != "containerd" || version >= (2, 2)
}

/// The snapshot that has all files of an image, out of what the runtime tells about it; empty for an image without files.
pub(super) fn chain(info: &BTreeMap<String, String>) -> Option<String> {
    let info: serde_json::Value = serde_json::from_str(info.get("info")?).ok()?;
    Some(info.get("chainID")?.as_str()?.to_owned())
}

/// Where the runtime keeps files of images, the likeliest first.
pub(super) fn snapshotters(info: &BTreeMap<String, String>) -> Vec<String> {
    let config: serde_json::Value =
        info.get("config").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let configured = config.pointer("/containerd/snapshotter").and_then(serde_json::Value::as_str).map(str::to_owned);
    let others = SNAPSHOTTERS.iter().map(|name| (*name).to_owned()).filter(|name| Some(name) != configured.as_ref());
    configured.iter().cloned().chain(others).collect()
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    request.set_timeout(DEADLINE);
    request
}

/// A view of a snapshot, made for a volume of a pod; the same one every time.
pub(super) async fn view(
    channel: Channel,
    snapshotters: &[String],
    chain: &str,
    pod: &str,
    volume: &str,
) -> Result<View, Error> {
    if chain.is_empty() {
        return Ok(View::Empty);
    }
    let failed = |status: Status| Error::new("View", status);
    let mut client = SnapshotsClient::new(channel);
    let key = format!("trireme-{pod}-{volume}-{chain}");
    let labels = [(POD, pod), (KEEP, "2000-01-01T00:00:00Z")];
    let labels: BTreeMap<String, String> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let mut missing = Status::not_found(format!("no snapshotter has {chain}"));
    for snapshotter in snapshotters.iter().cloned() {
        let wanted = wire::ViewSnapshotRequest {
            snapshotter: snapshotter.clone(),
            key: key.clone(),
            parent: chain.to_owned(),
            labels: labels.clone(),
        };
        let answer = match client.view(request(wanted)).await {
            Err(status) if status.code() == Code::AlreadyExists => {
                client.mounts(request(wire::MountsRequest { snapshotter, key: key.clone() })).await
            }
            other => other,
        };
        match answer {
            Ok(answer) => return read(answer.into_inner().mounts).map_err(failed),
            // A snapshotter that is not there is an argument that is not known.
            Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => missing = status,
            Err(status) => return Err(failed(status)),
        }
    }
    Err(failed(missing))
}

/// Removes every view that was made for a pod. What is mounted of them must not be any more.
pub(super) async fn release(channel: Channel, snapshotters: &[String], pod: &str) -> Result<(), Error> {
    let mut client = SnapshotsClient::new(channel);
    for snapshotter in snapshotters {
        let filters = vec![format!("labels.{POD:?}=={pod:?}")];
        let wanted = wire::ListSnapshotsRequest { snapshotter: snapshotter.clone(), filters };
        let listed = match client.list(request(wanted)).await {
            Ok(stream) => stream.into_inner().try_collect::<Vec<_>>().await,
            Err(status) => Err(status),
        };
        let found = match listed {
            Ok(found) => found,
            Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => continue,
            Err(status) => return Err(Error::new("List", status)),
        };
        for info in found.into_iter().flat_map(|part| part.info) {
            let wanted = wire::RemoveSnapshotRequest { snapshotter: snapshotter.clone(), key: info.name };
            match client.remove(request(wanted)).await {
                Err(status) if status.code() != Code::NotFound => return Err(Error::new("Remove", status)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// How to mount a view, of the two ways that a snapshotter of files has.
fn read(mounts: Vec<wire::Mount>) -> Result<View, Status> {
    let [mount] = &mounts[..] else {
        return Err(Status::unimplemented(format!("an image of {} mounts", mounts.len())));
    };
    match mount.r#type.as_str() {
        "bind" => Ok(View::Layers { lowest_last: vec![PathBuf::from(&mount.source)], options: Vec::new() }),
        "overlay" => {
            let lower = mount.options.iter().find_map(|option| option.strip_prefix("lowerdir="));
            let lower = lower.ok_or_else(|| Status::unimplemented("an overlay without layers"))?;
            let ours = |option: &&String| !option.contains("dir=") && *option != "ro";
            Ok(View::Layers {
                lowest_last: lower.split(':').map(PathBuf::from).collect(),
                options: mount.options.iter().filter(ours).cloned().collect(),
            })
        }
        other => Err(Status::unimplemented(format!("images as {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_old_containerd_needs_help() {
        let check = |name: &str, version: &str, expect: bool| {
            let runtime = v1::VersionResponse {
                runtime_name: name.into(),
                runtime_version: version.into(),
                ..Default::default()
            };
            assert_eq!(mounts_itself(&runtime), expect, "{name} {version}");
        };
        check("containerd", "1.6.20~ds1", false);
        check("containerd", "v1.7.27", false);
        check("containerd", "v2.1.4", false);
        check("containerd", "v2.2.0-rc.1", true);
        check("containerd", "v10.0.0", true);
        check("cri-o", "1.33.0", true);
    }

    #[test]
    fn what_the_runtime_tells_is_read() {
        let info = |key: &str, text: &str| BTreeMap::from([(key.to_owned(), text.to_owned())]);
        assert_eq!(chain(&info("info", r#"{"chainID":"sha256:1","imageSpec":{}}"#)).as_deref(), Some("sha256:1"));
        assert_eq!(chain(&info("other", "{}")), None);
        let config = info("config", r#"{"containerd":{"snapshotter":"native"}}"#);
        assert_eq!(snapshotters(&config), ["native", "overlayfs"]);
        assert_eq!(snapshotters(&info("config", "nonsense")), SNAPSHOTTERS);
    }

    #[test]
    fn both_kinds_of_views_are_layers() {
        let mount = |kind: &str, source: &str, options: &[&str]| wire::Mount {
            r#type: kind.into(),
            source: source.into(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        let layers = |paths: &[&str], options: &[&str]| View::Layers {
            lowest_last: paths.iter().map(PathBuf::from).collect(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        let one = read(vec![mount("bind", "/s/1/fs", &["ro", "rbind"])]).unwrap();
        assert_eq!(one, layers(&["/s/1/fs"], &[]));
        let two = read(vec![mount("overlay", "overlay", &["index=off", "lowerdir=/s/2/fs:/s/1/fs"])]).unwrap();
        assert_eq!(two, layers(&["/s/2/fs", "/s/1/fs"], &["index=off"]));
        assert!(read(vec![]).is_err());
        assert!(read(vec![mount("zfs", "pool/1", &["ro"])]).is_err());
    }
}
