//! The services of the contract, over a ledger that notices broken promises.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use csi::registration::v1 as registration;
use csi::v1;
use csi::v1::controller_server::{Controller, ControllerServer};
use csi::v1::identity_server::{Identity, IdentityServer};
use csi::v1::node_server::{Node, NodeServer};
use csi::v1::volume_capability::AccessType;
use csi::v1::volume_capability::access_mode::Mode;
use hyper_util::rt::{TokioExecutor, TokioIo};
use registration::registration_server::{Registration, RegistrationServer};
use tokio_util::task::AbortOnDropHandle;
use tonic::codegen::Service as _;
use tonic::{Request, Response, Status};

use super::{Call, Ledger, State, disks};

#[derive(Debug, Clone)]
struct Services(Arc<State>);

type Answered = Result<http::Response<tonic::body::Body>, std::convert::Infallible>;

/// Serves everything on a socket, until what this answers is dropped.
pub(super) fn serve(socket: &Path, state: Arc<State>) -> AbortOnDropHandle<()> {
    let services = Services(state);
    listen(socket, move |request| answer(services.clone(), request))
}

/// Answers every request on a socket, until what this answers is dropped.
pub(super) fn listen<F>(
    socket: &Path,
    answer: impl Fn(http::Request<hyper::body::Incoming>) -> F + Clone + Send + 'static,
) -> AbortOnDropHandle<()>
where
    F: Future<Output = Answered> + Send + 'static,
{
    let _ = std::fs::remove_file(socket);
    let listener = tokio::net::UnixListener::bind(socket).expect("a socket of the test's own");
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let answer = hyper::service::service_fn(answer.clone());
            connections.spawn(async move {
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    }))
}

async fn answer(services: Services, request: http::Request<hyper::body::Incoming>) -> Answered {
    let service = request.uri().path().split('/').nth(1).unwrap_or_default().to_owned();
    match service.as_str() {
        "csi.v1.Identity" => IdentityServer::new(services).call(request).await,
        "csi.v1.Controller" => ControllerServer::new(services).call(request).await,
        "csi.v1.Node" => NodeServer::new(services).call(request).await,
        _ => RegistrationServer::new(services).call(request).await,
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn call(name: &'static str, volume: &str, target: &str) -> Call {
    let (volume, target) = (volume.to_owned(), target.to_owned());
    Call { name, volume, target, context: BTreeMap::new(), ok: false, at: std::time::Instant::now() }
}

fn is_block(capability: Option<&v1::VolumeCapability>) -> bool {
    matches!(capability.and_then(|one| one.access_type.as_ref()), Some(AccessType::Block(_)))
}

impl Services {
    /// A path of this node.
    fn place(&self, target: &str) -> (String, String) {
        (self.0.node.clone(), target.to_owned())
    }

    fn path(&self, volume: &str) -> PathBuf {
        self.0.volumes.join(volume.replace('/', "_"))
    }
}

#[tonic::async_trait]
impl Registration for Services {
    async fn get_info(&self, _: Request<registration::InfoRequest>) -> Answer<registration::PluginInfo> {
        Ok(Response::new(registration::PluginInfo {
            r#type: csi::registration::CSI_PLUGIN.to_owned(),
            name: self.0.name.clone(),
            endpoint: self.0.dir.join("csi.sock").to_string_lossy().into_owned(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Answer<registration::RegistrationStatusResponse> {
        let status = request.into_inner();
        let outcome = if status.plugin_registered { Ok(()) } else { Err(status.error) };
        self.0.registered.send_modify(|all| all.push(outcome));
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl Identity for Services {
    async fn get_plugin_info(&self, _: Request<v1::GetPluginInfoRequest>) -> Answer<v1::GetPluginInfoResponse> {
        let name = self.0.name.clone();
        Ok(Response::new(v1::GetPluginInfoResponse { name, vendor_version: "1".to_owned(), ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Answer<v1::GetPluginCapabilitiesResponse> {
        Ok(Response::new(v1::GetPluginCapabilitiesResponse::default()))
    }
}

#[tonic::async_trait]
impl Controller for Services {
    async fn create_volume(&self, request: Request<v1::CreateVolumeRequest>) -> Answer<v1::CreateVolumeResponse> {
        let request = request.into_inner();
        let bytes = request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
        let block = is_block(request.volume_capabilities.first());
        let volume = v1::Volume {
            capacity_bytes: bytes,
            volume_id: request.name.clone(),
            volume_context: request.parameters.clone(),
            ..Default::default()
        };
        let work = || disks::create(&self.path(&request.name), block, bytes);
        self.0.call(call("CreateVolume", &request.name, ""), work).await?;
        Ok(Response::new(v1::CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(&self, request: Request<v1::DeleteVolumeRequest>) -> Answer<v1::DeleteVolumeResponse> {
        let id = request.into_inner().volume_id;
        let work = || {
            let used = self.0.ledger.lock().staged.get(&id).is_some_and(|places| !places.is_empty());
            if used {
                return Err(self.0.broken(format!("{id} is deleted while it is staged")));
            }
            disks::delete(&self.path(&id))
        };
        self.0.call(call("DeleteVolume", &id, ""), work).await?;
        Ok(Response::new(v1::DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<v1::ControllerPublishVolumeRequest>,
    ) -> Answer<v1::ControllerPublishVolumeResponse> {
        let request = request.into_inner();
        let mode = request.volume_capability.and_then(|one| one.access_mode).map(|mode| mode.mode());
        let shared = matches!(mode, Some(Mode::MultiNodeReaderOnly | Mode::MultiNodeMultiWriter));
        let work = || {
            let mut ledger = self.0.ledger.lock();
            let nodes = ledger.attached.entry(request.volume_id.clone()).or_default();
            nodes.insert(request.node_id.clone());
            if nodes.len() > 1 && !shared {
                let promise = format!("{} is attached to {nodes:?}", request.volume_id);
                drop(ledger);
                return Err(self.0.broken(promise));
            }
            Ok(())
        };
        self.0.call(call("ControllerPublishVolume", &request.volume_id, &request.node_id), work).await?;
        let publish_context = [("attached-to".to_owned(), request.node_id)].into();
        Ok(Response::new(v1::ControllerPublishVolumeResponse { publish_context }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<v1::ControllerUnpublishVolumeRequest>,
    ) -> Answer<v1::ControllerUnpublishVolumeResponse> {
        let request = request.into_inner();
        let work = || {
            let mut ledger = self.0.ledger.lock();
            if Ledger::is_on(&ledger.staged, &request.volume_id, &request.node_id) {
                drop(ledger);
                return Err(self.0.broken(format!("{} is detached while it is staged", request.volume_id)));
            }
            ledger.attached.entry(request.volume_id.clone()).or_default().remove(&request.node_id);
            Ok(())
        };
        self.0.call(call("ControllerUnpublishVolume", &request.volume_id, &request.node_id), work).await?;
        Ok(Response::new(v1::ControllerUnpublishVolumeResponse {}))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<v1::ControllerGetCapabilitiesRequest>,
    ) -> Answer<v1::ControllerGetCapabilitiesResponse> {
        Ok(Response::new(v1::ControllerGetCapabilitiesResponse::default()))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<v1::ControllerExpandVolumeRequest>,
    ) -> Answer<v1::ControllerExpandVolumeResponse> {
        let request = request.into_inner();
        let capacity_bytes = request.capacity_range.unwrap_or_default().required_bytes;
        let path = self.path(&request.volume_id);
        let work = || disks::create(&path, path.is_file(), capacity_bytes);
        self.0.call(call("ControllerExpandVolume", &request.volume_id, ""), work).await?;
        let node_expansion_required = self.0.traits.expand;
        Ok(Response::new(v1::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required }))
    }
}

#[tonic::async_trait]
impl Node for Services {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        let request = request.into_inner();
        let (id, target) = (&request.volume_id, &request.staging_target_path);
        let mut call = call("NodeStageVolume", id, target);
        call.context = request.volume_context.clone();
        call.context.extend(request.publish_context.clone());
        call.context.extend(request.secrets.clone());
        let work = || {
            if !is_block(request.volume_capability.as_ref()) {
                disks::show(&self.path(id), Path::new(target), false)?;
            }
            self.0.ledger.lock().staged.entry(id.clone()).or_default().insert(self.place(target));
            Ok(())
        };
        self.0.call(call, work).await?;
        Ok(Response::new(v1::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        let (id, target) = (&request.volume_id, &request.staging_target_path);
        let work = || {
            let live = Ledger::is_on(&self.0.ledger.lock().published, id, &self.0.node);
            if live {
                return Err(self.0.broken(format!("{id} is unstaged while published on {}", self.0.node)));
            }
            node::mounts::unmount(Path::new(target)).map_err(disks::internal)?;
            disks::detach_device(&self.path(id))?;
            self.0.ledger.lock().staged.entry(id.clone()).or_default().remove(&self.place(target));
            Ok(())
        };
        self.0.call(call("NodeUnstageVolume", id, target), work).await?;
        Ok(Response::new(v1::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let (id, target) = (&request.volume_id, &request.target_path);
        let mut call = call("NodePublishVolume", id, target);
        call.context = request.volume_context.clone();
        call.context.extend(request.publish_context.clone());
        call.context.extend(request.secrets.clone());
        call.context.insert("readonly".to_owned(), request.readonly.to_string());
        let ephemeral = request.volume_context.get("csi.storage.k8s.io/ephemeral").is_some_and(|it| it == "true");
        let work = || {
            let place = self.place(&request.staging_target_path);
            let staged = self.0.ledger.lock().staged.get(id).is_some_and(|at| at.contains(&place));
            if self.0.traits.stage && !ephemeral && !staged {
                return Err(self.0.broken(format!("{id} is published at {target} and not staged")));
            }
            if is_block(request.volume_capability.as_ref()) {
                disks::show_device(&self.path(id), Path::new(target))?;
            } else {
                if ephemeral {
                    disks::create(&self.path(id), false, 0)?;
                }
                disks::show(&self.path(id), Path::new(target), request.readonly)?;
            }
            self.0.ledger.lock().published.entry(id.clone()).or_default().insert(self.place(target));
            Ok(())
        };
        self.0.call(call, work).await?;
        Ok(Response::new(v1::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        let (id, target) = (&request.volume_id, &request.target_path);
        let work = || {
            disks::hide(Path::new(target))?;
            self.0.ledger.lock().published.entry(id.clone()).or_default().remove(&self.place(target));
            Ok(())
        };
        self.0.call(call("NodeUnpublishVolume", id, target), work).await?;
        Ok(Response::new(v1::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        let request = request.into_inner();
        self.0.call(call("NodeGetVolumeStats", &request.volume_id, &request.volume_path), || Ok(())).await?;
        use v1::volume_usage::Unit;
        let usage = [(Unit::Bytes, 600, 1000, 400), (Unit::Inodes, 60, 100, 40)];
        let usage =
            usage.map(|(unit, available, total, used)| v1::VolumeUsage { available, total, used, unit: unit.into() });
        let usage = usage.to_vec();
        Ok(Response::new(v1::NodeGetVolumeStatsResponse { usage }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Answer<v1::NodeExpandVolumeResponse> {
        let request = request.into_inner();
        let capacity_bytes = request.capacity_range.unwrap_or_default().required_bytes;
        self.0.call(call("NodeExpandVolume", &request.volume_id, &request.volume_path), || Ok(())).await?;
        Ok(Response::new(v1::NodeExpandVolumeResponse { capacity_bytes }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        use v1::node_service_capability::rpc::Type;
        let traits = &self.0.traits;
        let has = [
            (traits.stage, Type::StageUnstageVolume),
            (traits.mount_group, Type::VolumeMountGroup),
            (traits.expand, Type::ExpandVolume),
            (true, Type::GetVolumeStats),
        ];
        let capability = |kind: Type| v1::NodeServiceCapability {
            r#type: Some(v1::node_service_capability::Type::Rpc(v1::node_service_capability::Rpc {
                r#type: kind.into(),
            })),
        };
        let capabilities = has.into_iter().filter(|(has, _)| *has).map(|(_, kind)| capability(kind)).collect();
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<v1::NodeGetInfoRequest>) -> Answer<v1::NodeGetInfoResponse> {
        self.0.call(call("NodeGetInfo", "", &self.0.node), || Ok(())).await?;
        let segments = self.0.traits.topology.clone();
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: self.0.node.clone(),
            max_volumes_per_node: self.0.max_volumes.load(Ordering::Relaxed),
            accessible_topology: (!segments.is_empty()).then_some(v1::Topology { segments }),
        }))
    }
}
