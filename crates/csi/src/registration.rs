//! How a plug-in makes itself known: it serves a socket in the kubelet's directory, is asked who it is, and is told the result.

use std::path::Path;
use std::time::Duration;

use v1::registration_client::RegistrationClient;

use crate::Error;
use crate::socket::{channel, within};

/// The messages of the wire contract, generated from `proto/registration.proto`.
#[allow(clippy::all, clippy::unwrap_used)]
pub mod v1 {
    tonic::include_proto!("pluginregistration");
}

/// What storage drivers say they are.
pub const CSI_PLUGIN: &str = "CSIPlugin";
const LIMIT: Duration = Duration::from_secs(10);

/// Asks who is behind a socket.
pub async fn info(socket: &Path) -> Result<v1::PluginInfo, Error> {
    let mut client = RegistrationClient::new(channel(socket)?);
    within("GetInfo", LIMIT, client.get_info(v1::InfoRequest {})).await
}

/// Tells a plug-in what came of its registration.
pub async fn notify(socket: &Path, outcome: Result<(), &str>) -> Result<(), Error> {
    let mut client = RegistrationClient::new(channel(socket)?);
    let status = v1::RegistrationStatus {
        plugin_registered: outcome.is_ok(),
        error: outcome.err().unwrap_or_default().to_owned(),
    };
    within("NotifyRegistrationStatus", LIMIT, client.notify_registration_status(status)).await.map(drop)
}
