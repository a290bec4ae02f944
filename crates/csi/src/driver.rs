//! A driver's node service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::socket::{channel, within};
use crate::v1::node_client::NodeClient;
use crate::v1::node_service_capability::{Type, rpc};
use crate::{Error, v1};

/// What every call is given, its turn included.
const LIMIT: Duration = Duration::from_secs(120);
/// Calls that run at once.
const IN_FLIGHT: usize = 64;

/// What a driver can do on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    /// It wants volumes to be staged once per node before pods get them.
    pub stage: bool,
    pub stats: bool,
    pub expand: bool,
    /// It gives volumes to a pod's group by itself.
    pub mount_group: bool,
    /// It tells volumes of one pod from volumes of one node.
    pub single_node_multi_writer: bool,
}

/// A driver behind a unix socket.
#[derive(Debug, Clone)]
pub struct Driver {
    socket: PathBuf,
    limit: Duration,
    calls: Arc<Semaphore>,
}

/// One call: a turn, a connection, a request with its limit.
macro_rules! call {
    ($driver:expr, $name:literal, $method:ident, $request:expr) => {{
        let answer = async {
            let (_turn, mut client) = $driver.client().await?;
            let mut request = Request::new($request);
            // Told to the driver a moment later than it is kept here, so that one clock decides.
            request.set_timeout($driver.limit.saturating_add(Duration::from_secs(1)));
            client.$method(request).await
        };
        within($name, $driver.limit, answer).await
    }};
}

impl Driver {
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), limit: LIMIT, calls: Arc::new(Semaphore::new(IN_FLIGHT)) }
    }

    /// With another time limit for each call.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    async fn client(&self) -> Result<(SemaphorePermit<'_>, NodeClient<Channel>), Status> {
        let turn = self.calls.acquire().await.map_err(|closed| Status::internal(closed.to_string()))?;
        let channel = channel(&self.socket).map_err(|error| (*error.status).clone())?;
        Ok((turn, NodeClient::new(channel)))
    }

    /// Who this node is to the driver, and how much it takes.
    pub async fn info(&self) -> Result<v1::NodeGetInfoResponse, Error> {
        call!(self, "NodeGetInfo", node_get_info, v1::NodeGetInfoRequest {})
    }

    pub async fn abilities(&self) -> Result<Abilities, Error> {
        let answer = call!(self, "NodeGetCapabilities", node_get_capabilities, v1::NodeGetCapabilitiesRequest {})?;
        let has = |wanted: rpc::Type| {
            answer.capabilities.iter().any(|one| matches!(&one.r#type, Some(Type::Rpc(rpc)) if rpc.r#type() == wanted))
        };
        Ok(Abilities {
            stage: has(rpc::Type::StageUnstageVolume),
            stats: has(rpc::Type::GetVolumeStats),
            expand: has(rpc::Type::ExpandVolume),
            mount_group: has(rpc::Type::VolumeMountGroup),
            single_node_multi_writer: has(rpc::Type::SingleNodeMultiWriter),
        })
    }

    pub async fn stage(&self, request: v1::NodeStageVolumeRequest) -> Result<(), Error> {
        call!(self, "NodeStageVolume", node_stage_volume, request).map(drop)
    }

    pub async fn unstage(&self, request: v1::NodeUnstageVolumeRequest) -> Result<(), Error> {
        call!(self, "NodeUnstageVolume", node_unstage_volume, request).map(drop)
    }

    pub async fn publish(&self, request: v1::NodePublishVolumeRequest) -> Result<(), Error> {
        call!(self, "NodePublishVolume", node_publish_volume, request).map(drop)
    }

    pub async fn unpublish(&self, request: v1::NodeUnpublishVolumeRequest) -> Result<(), Error> {
        call!(self, "NodeUnpublishVolume", node_unpublish_volume, request).map(drop)
    }

    /// Makes a volume's contents as large as the volume has become; answers how large that is.
    pub async fn expand(&self, request: v1::NodeExpandVolumeRequest) -> Result<i64, Error> {
        Ok(call!(self, "NodeExpandVolume", node_expand_volume, request)?.capacity_bytes)
    }

    pub async fn stats(&self, request: v1::NodeGetVolumeStatsRequest) -> Result<Vec<v1::VolumeUsage>, Error> {
        Ok(call!(self, "NodeGetVolumeStats", node_get_volume_stats, request)?.usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_nobody_serves_is_given_up_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        // It accepts and never answers.
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let driver = Driver::new(&path).with_limit(Duration::from_millis(50));
        let error = driver.info().await.unwrap_err();
        assert_eq!(error.status.code(), tonic::Code::DeadlineExceeded);
        assert!(!error.is_final());
    }

    #[tokio::test]
    async fn a_link_instead_of_a_socket_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("csi.sock"), dir.path().join("link.sock"));
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = Driver::new(&link).info().await.unwrap_err();
        assert!(error.status.message().ends_with("is not a socket"), "{error}");
        let error = Driver::new(&dir.path().join("none")).info().await.unwrap_err();
        assert_eq!(error.status.code(), tonic::Code::Unavailable);
    }
}
