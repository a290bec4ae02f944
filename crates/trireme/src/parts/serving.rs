//! The HTTPS endpoint of a part that runs as a process of its own: its flags, and what is known of the part's well-being.
//!
//! Beside the API server parts have no endpoint: one process has one set of figures, and the API server shows it.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use client::Client;
use informer::clock;
use informer::election::Fence;
use parking_lot::Mutex;
use serving::{Check, Config, Pages, Running, Trust};

use super::host_name;
use crate::component::Failure;
use crate::standalone::connect;

/// Where and for whom a part serves health and figures.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "serving")]
#[command(next_help_heading = "Serving")]
pub struct Options {
    /// Port for health and figures, over HTTPS; 0 serves nothing [default: 10259 for the scheduler, 10257 for the controllers].
    #[arg(long, value_name = "PORT")]
    secure_port: Option<u16>,
    /// Address for that port.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Without a certificate, a part makes one that nobody else signed.
    #[command(flatten)]
    tls: crate::tls::Options,
    /// Authorities of client certificates, instead of those that the API server publishes.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Whom to ask about tokens [default: as --kubeconfig].
    #[arg(long, value_name = "FILE")]
    authentication_kubeconfig: Option<PathBuf>,
    /// Whom to ask about permissions [default: as --kubeconfig].
    #[arg(long, value_name = "FILE")]
    authorization_kubeconfig: Option<PathBuf>,
    /// Paths that need no permission.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    authorization_always_allow_paths: Vec<String>,
}

impl Options {
    /// Starts the endpoint, unless it is not wanted.
    pub async fn start(&self, port: u16, client: Client, pages: Pages) -> Result<Option<Running>, Failure> {
        let address = SocketAddr::new(self.bind_address, self.secure_port.unwrap_or(port));
        if self.secure_port == Some(0) {
            return Ok(None);
        }
        let client_of = |file: &Option<PathBuf>| match file {
            None => Ok(client.clone()),
            Some(file) => connect(file),
        };
        let handshake = self.tls.handshake().map_err(|(option, why)| format!("--{option}: {why}"))?;
        let certificate = match self.tls.files() {
            Some(files) => files.read()?,
            None => {
                let host = host_name().unwrap_or_else(|| "localhost".to_owned());
                serving::own_certificate(&host, address, jiff::Timestamp::now())?
            }
        };
        let config = Config {
            address,
            certificate,
            handshake,
            trust: match &self.client_ca_file {
                None => Trust::Published,
                Some(file) => Trust::Given(read(file)?),
            },
            authentication: client_of(&self.authentication_kubeconfig)?,
            authorization: client_of(&self.authorization_kubeconfig)?,
            always_allowed: self.authorization_always_allow_paths.clone(),
            clock: clock::Real::shared(),
            pages,
        };
        let running = serving::start(config).await?;
        tracing::info!("serving health and figures on https://{}", running.address());
        Ok(Some(running))
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()).into())
}

/// What is known of a part's well-being.
#[derive(Default)]
pub struct Vitals {
    /// Whether the part has taken in what there was when it began.
    pub synced: Arc<AtomicBool>,
    fence: Mutex<Option<Fence>>,
}

impl Vitals {
    /// The part leads as long as this holds.
    pub fn leads(&self, fence: Fence) {
        *self.fence.lock() = Some(fence);
    }

    /// Whether it ever led.
    pub fn has_led(&self) -> bool {
        self.fence.lock().is_some()
    }

    /// Fails while the part believes to lead, but somebody else may.
    pub fn leader_check(self: &Arc<Self>, lease: &'static str) -> Check {
        let vitals = self.clone();
        Check::new("leaderElection", move || match &*vitals.fence.lock() {
            Some(fence) if !fence.holds() => Err(format!("failed election to renew leadership on lease {lease}")),
            _ => Ok(()),
        })
    }
}

/// Appends the figures that every part has.
pub fn figures(text: &mut String) {
    informer::metrics::write(text);
    client::metrics::write(text);
    threads::write(text);
    apiserver::metrics::process::write(text);
}
