//! Somebody who says to the kubelet whatever a test wants: a plug-in with any name, type, versions and endpoint.

use std::path::Path;
use std::sync::Arc;

use csi::registration::v1 as registration;
pub use csi::registration::v1::PluginInfo;
use registration::registration_server::{Registration, RegistrationServer};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tonic::codegen::Service as _;
use tonic::{Request, Response, Status};

use super::services::listen;

/// What the kubelet said about the registration, in order.
type Registrations = watch::Sender<Vec<Result<(), String>>>;

/// A plug-in that is only its registration.
#[derive(Debug)]
pub struct Pretender {
    registrations: Arc<Registrations>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Debug, Clone)]
struct Registrar {
    info: PluginInfo,
    registrations: Arc<Registrations>,
}

impl Pretender {
    pub fn start(socket: &Path, info: PluginInfo) -> Self {
        let registrations: Arc<Registrations> = Arc::default();
        let registrar = Registrar { info, registrations: registrations.clone() };
        let serving = listen(socket, move |request| {
            let registrar = registrar.clone();
            async move { RegistrationServer::new(registrar).call(request).await }
        });
        Self { registrations, _serving: serving }
    }

    /// Waits for the first word of the kubelet.
    pub async fn registered(&self) -> Result<(), String> {
        let mut changes = self.registrations.subscribe();
        let all = crate::eventually("a word of the kubelet", changes.wait_for(|all| !all.is_empty())).await;
        all.expect("the plug-in is there").first().cloned().expect("not empty")
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<registration::InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.registrations
            .send_modify(|all| all.push(if status.plugin_registered { Ok(()) } else { Err(status.error) }));
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}
