//! The container runtime, spoken to by the Container Runtime Interface v1.
//!
//! [`Runtime`] is what the kubelet sees: one method per call it makes, typed, with a deadline each. [`Client`] is the
//! real thing over gRPC on a unix socket; a simulation implements the same trait. [`v1`] holds the wire messages.

mod client;
mod error;
mod events;
mod interfaces;
mod progress;
mod views;

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

pub use client::Client;
pub use error::Error;
pub use events::{Event, EventKind};
pub use interfaces::Interface;

use crate::mounts::View;

/// The messages of the wire contract, generated from `proto/cri.proto`.
#[allow(clippy::all, clippy::unwrap_used)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// The label and annotation vocabulary with which a kubelet marks what it makes, so that it knows it again after a
/// restart. The names are shared with every other tool that looks at a node's containers.
pub mod labels {
    /// Label: the pod's name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Label: the pod's namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// Label: the pod's UID.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Label: the container's name in the pod.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

#[async_trait]
pub trait Runtime: Send + Sync {
    /// Name and version of the runtime.
    async fn version(&self) -> Result<v1::VersionResponse, Error>;
    /// Whether the runtime and its network are ready, and what it can do.
    async fn status(&self) -> Result<v1::StatusResponse, Error>;
    /// What happens to containers and sandboxes from now on. Ends when the connection does.
    async fn events(&self) -> Result<BoxStream<'static, Result<Event, Error>>, Error>;

    /// Makes and starts a sandbox; returns its id.
    async fn run_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String, Error>;
    /// Stops a sandbox and everything in it; no error when it is stopped or gone already.
    async fn stop_sandbox(&self, id: &str) -> Result<(), Error>;
    /// Removes a sandbox and everything in it; no error when it is gone already.
    async fn remove_sandbox(&self, id: &str) -> Result<(), Error>;
    async fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, Error>;
    /// How a sandbox is linked to the node; nothing where the runtime does not tell.
    async fn sandbox_interfaces(&self, id: &str) -> Result<Vec<Interface>, Error>;
    /// All sandboxes that carry the labels.
    async fn list_sandboxes(&self, filter: v1::PodSandboxFilter) -> Result<Vec<v1::PodSandbox>, Error>;

    /// Makes a container in a sandbox; returns its id.
    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, Error>;
    /// Starts a container that was made.
    async fn start_container(&self, id: &str) -> Result<(), Error>;
    /// Sends the stop signal, and the killing one when `grace` has passed; returns when the container is down.
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error>;
    /// Removes a container; no error when it is gone already.
    async fn remove_container(&self, id: &str) -> Result<(), Error>;
    /// All containers that carry the labels.
    async fn list_containers(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>, Error>;
    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, Error>;
    /// Changes the limits of a container in place.
    async fn update_resources(&self, id: &str, resources: v1::LinuxContainerResources) -> Result<(), Error>;
    /// Makes the runtime open the log file anew, after it was rotated away.
    async fn reopen_log(&self, id: &str) -> Result<(), Error>;

    /// Runs a command in a container to its end. A `timeout` of zero means none.
    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<v1::ExecSyncResponse, Error>;
    /// Address of a streaming server for a command in a container.
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error>;
    /// Address of a streaming server for a container's own streams.
    async fn attach(&self, request: v1::AttachRequest) -> Result<String, Error>;
    /// Address of a streaming server for ports of a sandbox.
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, Error>;

    /// Usage of all containers that pass the filter.
    async fn container_stats(&self, filter: v1::ContainerStatsFilter) -> Result<Vec<v1::ContainerStats>, Error>;
    /// Usage of all sandboxes that pass the filter.
    async fn sandbox_stats(&self, filter: v1::PodSandboxStatsFilter) -> Result<Vec<v1::PodSandboxStats>, Error>;

    async fn list_images(&self) -> Result<Vec<v1::Image>, Error>;
    /// One image, or nothing when it is not there.
    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, Error>;
    /// Pulls an image; returns the reference it can be used by.
    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox: v1::PodSandboxConfig,
    ) -> Result<String, Error>;
    /// Removes an image; no error when it is gone already.
    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), Error>;
    /// The files of an image, for a volume of a pod; nothing where the runtime mounts images into containers by itself. They stay
    /// until the pod's views are released.
    async fn view_image(&self, image: &str, pod: &str, volume: &str) -> Result<Option<View>, Error>;
    /// Gives back what was made to view images for a pod. Nothing of it may be mounted any more.
    async fn release_views(&self, pod: &str) -> Result<(), Error>;
    /// Usage of the file systems images live on.
    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, Error>;
}

impl std::fmt::Debug for v1::AuthConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthConfig").field("server_address", &self.server_address).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for v1::KeyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyValue").field("key", &self.key).finish_non_exhaustive()
    }
}
