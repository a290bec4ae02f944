//! A runtime between the kubelet and the real one that counts every call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::stream::BoxStream;
use node::cri::{Error, Event, Interface, Runtime, v1};
use node::mounts::View;

use super::Figures;

/// A runtime whose calls are counted.
pub struct Counted {
    inner: Arc<dyn Runtime>,
    figures: Arc<Figures>,
}

impl Counted {
    /// Counts the calls to a runtime.
    pub fn new(inner: Arc<dyn Runtime>, figures: Arc<Figures>) -> Self {
        Self { inner, figures }
    }
}

impl Figures {
    pub(super) fn call(&self, operation: &str, took: Duration, failed: bool) {
        self.calls.increment(&[operation]);
        self.call_times.observe(&[operation], took.as_secs_f64());
        if failed {
            self.failed_calls.increment(&[operation]);
        }
    }
}

/// One call, counted under upstream's name for it.
macro_rules! counted {
    ($self:ident, $operation:literal, $call:expr) => {{
        let start = Instant::now();
        let result = $call.await;
        $self.figures.call($operation, start.elapsed(), result.is_err());
        result
    }};
}

#[async_trait]
impl Runtime for Counted {
    async fn version(&self) -> Result<v1::VersionResponse, Error> {
        counted!(self, "version", self.inner.version())
    }

    async fn status(&self) -> Result<v1::StatusResponse, Error> {
        counted!(self, "status", self.inner.status())
    }

    async fn events(&self) -> Result<BoxStream<'static, Result<Event, Error>>, Error> {
        counted!(self, "get_container_events", self.inner.events())
    }

    async fn run_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String, Error> {
        counted!(self, "run_podsandbox", self.inner.run_sandbox(config, handler))
    }

    async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        counted!(self, "stop_podsandbox", self.inner.stop_sandbox(id))
    }

    async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        counted!(self, "remove_podsandbox", self.inner.remove_sandbox(id))
    }

    async fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, Error> {
        counted!(self, "podsandbox_status", self.inner.sandbox_status(id))
    }

    async fn sandbox_interfaces(&self, id: &str) -> Result<Vec<Interface>, Error> {
        counted!(self, "podsandbox_status", self.inner.sandbox_interfaces(id))
    }

    async fn list_sandboxes(&self, filter: v1::PodSandboxFilter) -> Result<Vec<v1::PodSandbox>, Error> {
        counted!(self, "list_podsandbox", self.inner.list_sandboxes(filter))
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, Error> {
        counted!(self, "create_container", self.inner.create_container(sandbox, config, sandbox_config))
    }

    async fn start_container(&self, id: &str) -> Result<(), Error> {
        counted!(self, "start_container", self.inner.start_container(id))
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        counted!(self, "stop_container", self.inner.stop_container(id, grace))
    }

    async fn remove_container(&self, id: &str) -> Result<(), Error> {
        counted!(self, "remove_container", self.inner.remove_container(id))
    }

    async fn list_containers(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>, Error> {
        counted!(self, "list_containers", self.inner.list_containers(filter))
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, Error> {
        counted!(self, "container_status", self.inner.container_status(id))
    }

    async fn update_resources(&self, id: &str, resources: v1::LinuxContainerResources) -> Result<(), Error> {
        counted!(self, "update_container", self.inner.update_resources(id, resources))
    }

    async fn reopen_log(&self, id: &str) -> Result<(), Error> {
        counted!(self, "reopen_container_log", self.inner.reopen_log(id))
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<v1::ExecSyncResponse, Error> {
        counted!(self, "exec_sync", self.inner.exec_sync(id, command, timeout))
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error> {
        counted!(self, "exec", self.inner.exec(request))
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<String, Error> {
        counted!(self, "attach", self.inner.attach(request))
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, Error> {
        counted!(self, "port_forward", self.inner.port_forward(request))
    }

    async fn container_stats(&self, filter: v1::ContainerStatsFilter) -> Result<Vec<v1::ContainerStats>, Error> {
        counted!(self, "list_container_stats", self.inner.container_stats(filter))
    }

    async fn sandbox_stats(&self, filter: v1::PodSandboxStatsFilter) -> Result<Vec<v1::PodSandboxStats>, Error> {
        counted!(self, "list_podsandbox_stats", self.inner.sandbox_stats(filter))
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, Error> {
        counted!(self, "list_images", self.inner.list_images())
    }

    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, Error> {
        counted!(self, "image_status", self.inner.image_status(image))
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox: v1::PodSandboxConfig,
    ) -> Result<String, Error> {
        counted!(self, "pull_image", self.inner.pull_image(image, auth, sandbox))
    }

    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), Error> {
        counted!(self, "remove_image", self.inner.remove_image(image))
    }

    async fn view_image(&self, image: &str, pod: &str, volume: &str) -> Result<Option<View>, Error> {
        counted!(self, "view_image", self.inner.view_image(image, pod, volume))
    }

    async fn release_views(&self, pod: &str) -> Result<(), Error> {
        counted!(self, "release_views", self.inner.release_views(pod))
    }

    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, Error> {
        counted!(self, "image_fs_info", self.inner.image_fs_info())
    }
}
