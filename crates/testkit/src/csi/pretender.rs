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

/// What it was told about its registration, in order.
type Told = watch::Sender<Vec<Result<(), String>>>;

/// A plug-in that is only its registration.
#[derive(Debug)]
pub struct Pretender {
    told: Arc<Told>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Debug, Clone)]
struct Word {
    info: PluginInfo,
    told: Arc<Told>,
}

impl Pretender {
    pub fn start(socket: &Path, info: PluginInfo) -> Self {
        let told: Arc<Told> = Arc::default();
        let word = Word { info, told: told.clone() };
        let serving = listen(socket, move |request| {
            let word = word.clone();
            async move { RegistrationServer::new(word).call(request).await }
        });
        Self { told, _serving: serving }
    }

    /// Waits for the first word of the kubelet.
    pub async fn told(&self) -> Result<(), String> {
        let mut told = self.told.subscribe();
        let told = crate::eventually("a word of the kubelet", told.wait_for(|told| !told.is_empty())).await;
        told.expect("the plug-in is there").first().cloned().expect("not empty")
    }
}

#[tonic::async_trait]
impl Registration for Word {
    async fn get_info(&self, _: Request<registration::InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        let told = request.into_inner();
        self.told.send_modify(|all| all.push(if told.plugin_registered { Ok(()) } else { Err(told.error) }));
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}
