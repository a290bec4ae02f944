//! The CRI over gRPC on a unix socket.
//!
//! The connection is made lazily and made again when it breaks, so a client outlives restarts of the runtime. Every call
//! has a deadline; calls that stop or remove treat "not there" as done, because the level asked for is reached.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::v1::image_service_client::ImageServiceClient;
use super::v1::runtime_service_client::RuntimeServiceClient;
use super::{Error, Event, Interface, Runtime, events, interfaces, progress, v1, views};
use crate::mounts::View;

/// What a call is given beyond the time its own argument asks for.
const DEADLINE: Duration = Duration::from_secs(120);
/// Lists of a full node with long annotations exceed gRPC's customary 4 MiB.
const MESSAGE: usize = 16 << 20;

/// A runtime behind a unix socket.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    pull_patience: Duration,
}

impl Client {
    /// A client for `unix:///path/to/socket` or a bare path. Connects with the first call.
    pub fn new(endpoint: &str) -> Result<Self, Error> {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        let endpoint = Endpoint::try_from(format!("unix://{path}"))
            .map_err(|e| Error::new("connect", Status::invalid_argument(e.to_string())))?;
        Ok(Self { channel: endpoint.connect_lazy(), pull_patience: progress::PATIENCE })
    }

    /// Pulls are given up after this long without progress.
    #[must_use]
    pub fn with_pull_patience(self, pull_patience: Duration) -> Self {
        Self { pull_patience, ..self }
    }

    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE)
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE)
    }
}

/// One unary call: request, deadline, error with the call's name. The deadline is kept on our side too: a runtime that
/// hangs may not honour the one in the header.
macro_rules! call {
    ($client:expr, $method:ident, $name:literal, $request:expr) => {
        call!($client, $method, $name, $request, DEADLINE)
    };
    ($client:expr, $method:ident, $name:literal, $request:expr, $deadline:expr) => {{
        let deadline: Duration = $deadline;
        let mut request = Request::new($request);
        request.set_timeout(deadline);
        name_trace(request.metadata_mut());
        match tokio::time::timeout(deadline, $client.$method(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Error::new($name, status)),
            Err(_) => Err(Error::new($name, Status::deadline_exceeded("context deadline exceeded"))),
        }
    }};
}

/// Names the trace that this task works for: runtimes that trace go on with it.
fn name_trace(metadata: &mut tonic::metadata::MetadataMap) {
    let context = hops::current();
    if !context.is_none()
        && let Ok(value) = context.header().parse()
    {
        metadata.insert(hops::TRACEPARENT, value);
    }
}

/// "Not there" is what the caller wanted.
fn gone<T>(result: Result<T, Error>) -> Result<(), Error> {
    match result {
        Err(e) if e.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

impl Client {
    /// Where the runtime may keep the files of images.
    async fn snapshotters(&self) -> Result<Vec<String>, Error> {
        let answer = call!(self.runtime(), status, "Status", v1::StatusRequest { verbose: true })?;
        Ok(views::snapshotters(&answer.info))
    }
}

#[async_trait]
impl Runtime for Client {
    async fn version(&self) -> Result<v1::VersionResponse, Error> {
        call!(self.runtime(), version, "Version", v1::VersionRequest { version: "0.1.0".into() })
    }

    async fn status(&self) -> Result<v1::StatusResponse, Error> {
        call!(self.runtime(), status, "Status", v1::StatusRequest { verbose: false })
    }

    async fn events(&self) -> Result<BoxStream<'static, Result<Event, Error>>, Error> {
        events::subscribe(self.channel.clone()).await
    }

    async fn run_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String, Error> {
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        // Making a sandbox includes the CNI plugins, which may wait for other machines.
        let response = call!(self.runtime(), run_pod_sandbox, "RunPodSandbox", request, DEADLINE * 2)?;
        Ok(response.pod_sandbox_id)
    }

    async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone(call!(self.runtime(), stop_pod_sandbox, "StopPodSandbox", request))
    }

    async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone(call!(self.runtime(), remove_pod_sandbox, "RemovePodSandbox", request))
    }

    async fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, Error> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let response = call!(self.runtime(), pod_sandbox_status, "PodSandboxStatus", request)?;
        response.status.ok_or_else(|| empty("PodSandboxStatus"))
    }

    async fn sandbox_interfaces(&self, id: &str) -> Result<Vec<Interface>, Error> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let response = call!(self.runtime(), pod_sandbox_status, "PodSandboxStatus", request)?;
        Ok(response.info.get("info").map(|info| interfaces::read(info)).unwrap_or_default())
    }

    async fn list_sandboxes(&self, filter: v1::PodSandboxFilter) -> Result<Vec<v1::PodSandbox>, Error> {
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        Ok(call!(self.runtime(), list_pod_sandbox, "ListPodSandbox", request)?.items)
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, Error> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(call!(self.runtime(), create_container, "CreateContainer", request)?.container_id)
    }

    async fn start_container(&self, id: &str) -> Result<(), Error> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        call!(self.runtime(), start_container, "StartContainer", request).map(drop)
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let seconds = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: seconds };
        gone(call!(self.runtime(), stop_container, "StopContainer", request, DEADLINE.saturating_add(grace)))
    }

    async fn remove_container(&self, id: &str) -> Result<(), Error> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        gone(call!(self.runtime(), remove_container, "RemoveContainer", request))
    }

    async fn list_containers(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>, Error> {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        Ok(call!(self.runtime(), list_containers, "ListContainers", request)?.containers)
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, Error> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let response = call!(self.runtime(), container_status, "ContainerStatus", request)?;
        response.status.ok_or_else(|| empty("ContainerStatus"))
    }

    async fn update_resources(&self, id: &str, resources: v1::LinuxContainerResources) -> Result<(), Error> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(resources),
            ..Default::default()
        };
        call!(self.runtime(), update_container_resources, "UpdateContainerResources", request).map(drop)
    }

    async fn reopen_log(&self, id: &str) -> Result<(), Error> {
        let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
        call!(self.runtime(), reopen_container_log, "ReopenContainerLog", request).map(drop)
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<v1::ExecSyncResponse, Error> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        // Without a limit of its own a command may run as long as the pod does.
        let deadline = if timeout.is_zero() { Duration::from_secs(86_400) } else { DEADLINE.saturating_add(timeout) };
        call!(self.runtime(), exec_sync, "ExecSync", request, deadline)
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error> {
        Ok(call!(self.runtime(), exec, "Exec", request)?.url)
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<String, Error> {
        Ok(call!(self.runtime(), attach, "Attach", request)?.url)
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, Error> {
        Ok(call!(self.runtime(), port_forward, "PortForward", request)?.url)
    }

    async fn container_stats(&self, filter: v1::ContainerStatsFilter) -> Result<Vec<v1::ContainerStats>, Error> {
        let request = v1::ListContainerStatsRequest { filter: Some(filter) };
        Ok(call!(self.runtime(), list_container_stats, "ListContainerStats", request)?.stats)
    }

    async fn sandbox_stats(&self, filter: v1::PodSandboxStatsFilter) -> Result<Vec<v1::PodSandboxStats>, Error> {
        let request = v1::ListPodSandboxStatsRequest { filter: Some(filter) };
        Ok(call!(self.runtime(), list_pod_sandbox_stats, "ListPodSandboxStats", request)?.stats)
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, Error> {
        Ok(call!(self.images(), list_images, "ListImages", v1::ListImagesRequest { filter: None })?.images)
    }

    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, Error> {
        let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
        Ok(call!(self.images(), image_status, "ImageStatus", request)?.image)
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox: v1::PodSandboxConfig,
    ) -> Result<String, Error> {
        let name = image.image.clone();
        let request = v1::PullImageRequest { image: Some(image), auth, sandbox_config: Some(sandbox) };
        // A slow pull may take as long as it needs; one that stands still is given up.
        let pull = async { call!(self.images(), pull_image, "PullImage", request, Duration::from_secs(86_400)) };
        tokio::select! {
            pulled = pull => Ok(pulled?.image_ref),
            progress = progress::stalled(self.channel.clone(), &name, self.pull_patience) => {
                let seconds = self.pull_patience.as_secs_f64();
                let why = format!(
                    "Cancel pulling image {name:?} because of no progress for {seconds}s, latest progress: {progress:?}"
                );
                Err(Error::of("PullImage", tonic::Code::Cancelled, why))
            }
        }
    }

    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), Error> {
        let request = v1::RemoveImageRequest { image: Some(image) };
        gone(call!(self.images(), remove_image, "RemoveImage", request))
    }

    async fn view_image(&self, image: &str, pod: &str, volume: &str) -> Result<Option<View>, Error> {
        if views::mounts_itself(&self.version().await?) {
            return Ok(None);
        }
        let wanted = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = v1::ImageStatusRequest { image: Some(wanted), verbose: true };
        let answer = call!(self.images(), image_status, "ImageStatus", request)?;
        let chain = views::chain(&answer.info).ok_or_else(|| empty("ImageStatus"))?;
        views::view(self.channel.clone(), &self.snapshotters().await?, &chain, pod, volume).await.map(Some)
    }

    async fn release_views(&self, pod: &str) -> Result<(), Error> {
        if views::mounts_itself(&self.version().await?) {
            return Ok(());
        }
        views::release(self.channel.clone(), &self.snapshotters().await?, pod).await
    }

    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, Error> {
        call!(self.images(), image_fs_info, "ImageFsInfo", v1::ImageFsInfoRequest {})
    }
}

/// A runtime that answers success without the answer breaks the contract.
fn empty(call: &'static str) -> Error {
    Error::new(call, Status::internal("the runtime returned an empty status"))
}
