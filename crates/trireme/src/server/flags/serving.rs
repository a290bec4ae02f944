//! Options of how the API server serves, and of how it speaks to kubelets.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use apiserver::serve;
use clap::Args;

use super::super::Error;
use super::{certificates, duration, text, wrong};
use crate::tls;

/// How connections and requests are served.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Serving")]
pub struct Options {
    #[command(flatten)]
    pub tls: tls::Options,
    /// Where apiserver.crt and apiserver.key are put for others to read, unless --tls-cert-file names the certificate to serve with.
    ///
    /// The certificate is followed by its authority, so that who believes the file believes the server. It is written again when it is renewed.
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
    /// A certificate for clients that ask for one of these names, as FILE,KEYFILE:NAME,… ; may be given several times.
    #[arg(long, value_name = "FILES", value_parser = tls::named_files)]
    pub tls_sni_cert_key: Vec<tls::NamedFiles>,
    /// Requests at once on one connection of HTTP/2; 0 for as many as by default.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub http2_max_streams_per_connection: u32,
    /// How likely a request over HTTP/2 has its client told to open another connection, 0 to 0.02, so that servers behind a balancer share the load.
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0)]
    pub goaway_chance: f64,
    /// Pages of which origins may read answers: regular expressions, such as ^https://page\.example(:|$).
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub cors_allowed_origins: Vec<String>,
    /// What browsers are told about connections that are not encrypted: max-age=31536000,includeSubDomains,preload.
    #[arg(long, value_name = "DIRECTIVES", value_delimiter = ',')]
    pub strict_transport_security_directives: Vec<String>,
    /// How long a request may take until its answer begins.
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration)]
    pub request_timeout: Duration,
    /// How many seconds a watch lives at least when its client does not say how long.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub min_request_timeout: u64,
    /// The name by which this server is known outside, for what it says of itself.
    #[arg(long, value_name = "NAME")]
    pub external_hostname: Option<String>,
    /// The version that /version says, which upstream's `--version=v…` asks for.
    #[arg(long, value_name = "VERSION", hide = true)]
    pub reported_version: Option<String>,
    /// How this server speaks to kubelets.
    #[command(flatten)]
    pub kubelets: Kubelets,
    /// How servers of a cluster pass requests to each other.
    #[command(flatten)]
    pub peers: Peers,
}

/// How servers of a cluster pass requests to each other.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Peers")]
pub struct Peers {
    /// Authorities of the other servers' certificates, which must be good for kubernetes.default.svc [default: the cluster's own].
    #[arg(long, value_name = "FILE")]
    pub peer_ca_file: Option<PathBuf>,
    /// Where the other servers reach this one, if not where everybody does. It counts together with --peer-advertise-port only.
    #[arg(long, value_name = "IP")]
    pub peer_advertise_ip: Option<IpAddr>,
    /// The port of --peer-advertise-ip.
    #[arg(long, value_name = "PORT")]
    pub peer_advertise_port: Option<u16>,
}

/// How this server speaks to kubelets.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Kubelets")]
pub struct Kubelets {
    /// Certificate that kubelets are shown [default: one of the cluster's own].
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    pub kubelet_client_key: Option<PathBuf>,
    /// Authorities of kubelets' certificates [default: the cluster's own; nobody's is checked where --kubelet-client-certificate is given alone, as upstream has it].
    #[arg(long, value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Which address of a node its kubelet is asked at: the first of these types that it has.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "InternalIP,ExternalIP,Hostname",
        value_parser = ["Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"])]
    pub kubelet_preferred_address_types: Vec<String>,
}

/// Serving, checked and read.
pub struct Read {
    pub handshake: pki::Handshake,
    listener: serve::Settings,
    request_timeout: Duration,
    min_request_timeout: u64,
    /// Where the cluster's own certificate is put for others to read.
    pub cert_dir: Option<PathBuf>,
    /// The certificate to serve with, if it is not the cluster's own.
    pub own: Option<tls::Files>,
    pub named: Vec<tls::NamedFiles>,
    /// What kubelets are shown, if it is not the cluster's own.
    pub kubelet_client: Option<pki::Pair>,
    kubelet_authority: Option<String>,
    kubelet_addresses: Vec<String>,
    peer_authority: Option<String>,
    peer_advertise: Option<SocketAddr>,
}

impl Options {
    /// Checks the options and reads the files that they name.
    pub fn read(&self) -> Result<Read, Error> {
        let chance = self.goaway_chance;
        if !(0.0..=0.02).contains(&chance) {
            return Err(wrong("goaway-chance", "can not be less than 0 or greater than 0.02"));
        }
        if self.request_timeout.is_zero() {
            return Err(wrong("request-timeout", "can not be zero"));
        }
        let origins = serve::Headers::default().allow_origins(&self.cors_allowed_origins);
        let headers = origins.map_err(|why| wrong("cors-allowed-origins", why))?;
        let headers = headers.demand_transport_security(&self.strict_transport_security_directives);
        let headers = headers.map_err(|why| wrong("strict-transport-security-directives", why))?;
        let max_streams = match self.http2_max_streams_per_connection {
            0 => serve::Settings::default().max_streams,
            number => number,
        };
        let own = self.tls.files();
        if let Some(files) = &own {
            usable("tls-cert-file", files)?;
        }
        for named in &self.tls_sni_cert_key {
            usable("tls-sni-cert-key", &named.files)?;
        }
        Ok(Read {
            handshake: self.tls.handshake().map_err(|(option, why)| wrong(option, why))?,
            listener: serve::Settings { max_streams, goaway_chance: chance, headers },
            request_timeout: self.request_timeout,
            min_request_timeout: self.min_request_timeout,
            cert_dir: self.cert_dir.clone().filter(|_| own.is_none()),
            own,
            named: self.tls_sni_cert_key.clone(),
            kubelet_client: self.kubelets.client()?,
            kubelet_authority: self.kubelets.authority()?,
            kubelet_addresses: self.kubelets.kubelet_preferred_address_types.clone(),
            peer_authority: self.peers.authority()?,
            peer_advertise: self.peers.address(),
        })
    }
}

/// A certificate that can be shown.
fn usable(option: &'static str, files: &tls::Files) -> Result<pki::Pair, Error> {
    let pair = files.read().map_err(|why| wrong(option, why))?;
    let shown = serve::Shown::new(&pair);
    shown.map(|_| pair).map_err(|error| wrong(option, format!("{}: {error}", files.certificate.display())))
}

impl Kubelets {
    fn client(&self) -> Result<Option<pki::Pair>, Error> {
        let (Some(certificate), Some(key)) = (&self.kubelet_client_certificate, &self.kubelet_client_key) else {
            return Ok(None);
        };
        let chain_pem = certificates("kubelet-client-certificate", certificate)?;
        let pair = pki::Pair { chain_pem, key_pem: text("kubelet-client-key", key)? };
        let fits = pki::outgoing_config(pki::Believed::Everybody, Some(&pair));
        fits.map(|_| Some(pair)).map_err(|error| wrong("kubelet-client-key", format!("{}: {error}", key.display())))
    }

    fn authority(&self) -> Result<Option<String>, Error> {
        self.kubelet_certificate_authority
            .as_deref()
            .map(|path| certificates("kubelet-certificate-authority", path))
            .transpose()
    }
}

impl Peers {
    fn authority(&self) -> Result<Option<String>, Error> {
        self.peer_ca_file.as_deref().map(|path| certificates("peer-ca-file", path)).transpose()
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.peer_advertise_ip?, self.peer_advertise_port?))
    }
}

impl Read {
    /// The settings of an API server that serves so.
    pub fn configure(&self, config: &mut apiserver::Config, keys: &pki::Cluster) -> Result<(), Error> {
        config.listener = self.listener.clone();
        config.request_timeout = self.request_timeout;
        config.min_request_timeout = self.min_request_timeout;
        config.kubelet_addresses = self.kubelet_addresses.clone();
        config.peer_advertise = self.peer_advertise;
        if config.peer_authority.is_some() && self.peer_authority.is_some() {
            config.peer_authority.clone_from(&self.peer_authority);
        }
        let shown = self.kubelet_client.as_ref().unwrap_or(&keys.kubelet_client);
        let believed = match (&self.kubelet_authority, &self.kubelet_client) {
            (Some(authority), _) => pki::Believed::Authorities(authority),
            (None, Some(_)) => pki::Believed::Everybody,
            (None, None) => return Ok(()),
        };
        config.kubelet_client = pki::outgoing_config(believed, Some(shown))?;
        Ok(())
    }
}
