//! The kubelet's HTTPS API: logs, exec, attach, port-forward, pods, figures and health.
//!
//! ```text
//! TLS ─► auth (certificate or TokenReview ▸ SubjectAccessReview) ─► route ─► logs      the runtime's log files
//!                                                                        ├► system_logs  /var/log
//!                                                                        ├► streaming  the runtime's streaming server
//!                                                                        ├► listing    Pods, the runtime
//!                                                                        ├► local_path directories of volumes
//!                                                                        └► stats ▸ metrics  runtime, cgroups, kernel
//! ```
//! Every request passes authentication and authorization, health checks included. The server holds no state of pods: what
//! it needs to know it asks of [`Pods`] and of the runtime at the moment it is asked. Nothing here runs while nobody asks.
//!
//! Deliberately absent: anonymous access, an unencrypted port, the debugging handlers of profiles and flags.

mod answer;
mod auth;
mod listing;
mod local_path;
mod logs;
mod metrics;
mod pods;
mod route;
pub mod stats;
mod streaming;
mod system_logs;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use client::Client;
use http::header::{ALLOW, HeaderValue};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use informer::Clock;
use machinery::query::Query;
use node::cri::Runtime;
use rules::zpages::Component;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use answer::Answer;
use auth::{Auth, Refusal};
use listing::PodList;
use metrics::Requests;
pub use pods::Pods;
use route::Route;
pub use serving::Running;
use serving::{Check, Probes, Service, Shown};
use stats::Stats;
use stats::types::PodReference;
use streaming::What;

/// The most followed logs and streams at once.
const MAX_OPEN: usize = 1_000;
const TOO_MANY: &str = "too many streams are open on this node";

/// What the server needs.
pub struct Config {
    /// Where to listen; port 0 takes any. Upstream's port is 10250.
    pub address: SocketAddr,
    pub node_name: String,
    /// The serving certificate; connections made after it changed see the new one.
    pub certificate: watch::Receiver<pki::Pair>,
    /// The authority of client certificates, in PEM.
    pub client_authority: String,
    /// Asks the API server who somebody is and what they may do. Its identity must be allowed to create TokenReviews and
    /// SubjectAccessReviews, as every node's is.
    pub client: Client,
    pub runtime: Arc<dyn Runtime>,
    /// The pods of this node.
    pub pods: Arc<dyn Pods>,
    pub clock: Arc<dyn Clock>,
    pub stats: Arc<Stats>,
    /// Where the machine's logs are; nothing to show none.
    pub system_logs: Option<PathBuf>,
    /// Where volumes of the local-path provisioner are, which may be removed; nothing where there are none.
    pub local_path: Option<PathBuf>,
    /// The whole document of `/configz`: `{"kubeletconfig": …}`, the configuration in force.
    pub configuration: serde_json::Value,
    /// What it says of itself at `/statusz` and `/flagz`; the paths are added here.
    pub component: Component,
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificates cannot be used.
    #[error("serving certificate: {0}")]
    Certificate(#[from] pki::Error),
}

pub struct Server;

impl Server {
    pub async fn start(config: Config) -> Result<Running, Error> {
        let listen = |source| Error::Listen { address: config.address, source };
        let socket = TcpListener::bind(config.address).await.map_err(listen)?;
        let tls = follow_certificate(config.certificate, config.client_authority)?;
        let (clock, stop) = (config.clock.clone(), CancellationToken::new());
        let pods = config.pods.clone();
        let syncs = Check::new("syncloop", move || pods.check());
        let inner = Arc::new(Inner {
            probes: Probes::new(vec![Check::ping(), Check::new("log", || Ok(())), syncs], Vec::new(), Vec::new()),
            auth: Auth::new(config.node_name.clone(), config.client, config.clock.clone()),
            stats: config.stats,
            node_name: config.node_name,
            runtime: config.runtime,
            pods: config.pods,
            clock: config.clock,
            system_logs: config.system_logs,
            local_path: config.local_path,
            configuration: config.configuration,
            component: Component { paths: Route::SHOWN.map(str::to_owned).into(), ..config.component },
            requests: Requests::default(),
            streams: Arc::new(Semaphore::new(MAX_OPEN)),
            stop: stop.clone(),
        });
        serving::serve(socket, tls, inner, clock, stop).map_err(listen)
    }
}

/// The server's side of TLS, made anew whenever the certificate changes.
fn follow_certificate(
    mut certificate: watch::Receiver<pki::Pair>,
    authority: String,
) -> Result<watch::Receiver<pki::Reception>, Error> {
    let handshake = pki::Handshake::default();
    let first = pki::Reception::new(&certificate.borrow_and_update(), &authority, &handshake)?;
    let (current, seen) = watch::channel(first);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = current.closed() => return,
                changed = certificate.changed() => if changed.is_err() { return },
            }
            match pki::Reception::new(&certificate.borrow_and_update(), &authority, &handshake) {
                Ok(reception) => drop(current.send(reception)),
                // The one in use may still be good for a while.
                Err(error) => tracing::error!(%error, "a new serving certificate cannot be used"),
            }
        }
    });
    Ok(seen)
}

/// Everything a request may need.
struct Inner {
    node_name: String,
    probes: Probes,
    auth: Auth,
    runtime: Arc<dyn Runtime>,
    pods: Arc<dyn Pods>,
    stats: Arc<Stats>,
    clock: Arc<dyn Clock>,
    system_logs: Option<PathBuf>,
    local_path: Option<PathBuf>,
    configuration: serde_json::Value,
    component: Component,
    requests: Requests,
    streams: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Service for Inner {
    async fn answer(&self, shown: &Shown, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let _under_way = self.requests.begin(&method, route::bucket(&path));
        if let Err(refusal) = self.auth.check(shown, request.headers(), &method, &path).await {
            let status = match refusal {
                Refusal::Unauthorized => StatusCode::UNAUTHORIZED,
                Refusal::Forbidden { .. } => StatusCode::FORBIDDEN,
                Refusal::Unknown { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            };
            return answer::text(status, refusal.to_string());
        }
        let Some(route) = Route::of(&path) else {
            return answer::text(StatusCode::NOT_FOUND, "404: Page Not Found");
        };
        if !route.allows(&method) {
            let mut answer = answer::text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
            let allowed = if matches!(route, Route::LocalPath(_)) { "DELETE" } else { "GET" };
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            return answer;
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        match route {
            Route::Healthz => {
                let unknown = || answer::text(StatusCode::NOT_FOUND, "404 page not found\n");
                self.probes.answer(&path, &query).unwrap_or_else(unknown)
            }
            Route::Pods => answer::json(&PodList::new(self.pods.all())),
            Route::RunningPods => match listing::running(&*self.runtime).await {
                Ok(pods) => answer::json(&PodList::new(pods)),
                Err(error) => answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            Route::Summary => {
                let brief = query.flag("only_cpu_and_memory");
                match self.summary(brief).await {
                    Ok(summary) => answer::json(&summary),
                    Err(error) => answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
                }
            }
            Route::Metrics => {
                let mut page = answer::page(request.headers());
                self.write_own_figures(&mut page).await;
                answer::scraped(page)
            }
            Route::ResourceMetrics => {
                let summary = self.summary(true).await.inspect_err(|error| tracing::warn!(%error, "no figures"));
                let figures = metrics::resource(summary.ok().as_ref());
                answer::figures(request.headers(), |page| page.push_str(&figures))
            }
            Route::CadvisorMetrics => match self.summary(false).await {
                Ok(summary) => {
                    let groups = self.stats.groups(&summary, &*self.pods, self.clock.now()).await;
                    let machine = metrics::cadvisor::Machine {
                        processors: std::thread::available_parallelism().map_or(1, usize::from),
                        memory: stats::memory_total(),
                        swap: stats::swap_total(),
                    };
                    let figures = metrics::cadvisor::render(&groups, machine);
                    answer::figures(request.headers(), |page| page.push_str(&figures))
                }
                Err(error) => answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            Route::HealthMetrics => answer::figures(request.headers(), |page| page.push_str(&self.probes.figures())),
            Route::ProbeMetrics => answer::figures(request.headers(), |page| self.pods.probe_metrics(page)),
            Route::Configz => answer::json(&self.configuration),
            Route::About => {
                let unknown = || answer::text(StatusCode::NOT_FOUND, "404: Page Not Found");
                serving::about(&self.component, &path, request.headers()).unwrap_or_else(unknown)
            }
            Route::Hops => answer::json(&hops::trail(query.get("uid"))),
            Route::SystemLogs(path) => match self.streams.clone().try_acquire_owned() {
                Ok(permit) => system_logs::answer(self.system_logs.as_deref(), path, permit).await,
                Err(_) => answer::text(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY),
            },
            Route::LocalPath(name) => local_path::answer(self.local_path.as_deref(), name).await,
            Route::ContainerLogs(place) => logs::answer(self, &place, &query).await,
            Route::Exec(place) => streaming::answer(self, What::Exec, &place, &query, request).await,
            Route::Attach(place) => streaming::answer(self, What::Attach, &place, &query, request).await,
            Route::PortForward(place) => streaming::answer(self, What::PortForward, &place, &query, request).await,
        }
    }
}

impl Inner {
    async fn summary(&self, brief: bool) -> Result<stats::types::Summary, node::cri::Error> {
        self.stats.summary(&*self.runtime, &*self.pods, self.clock.now(), brief).await
    }

    async fn write_own_figures(&self, page: &mut String) {
        let pods = self.pods.all();
        figures::samples(page, "kubelet_node_name", "gauge", "[ALPHA] The node's name. The count is always 1.")
            .add(&[("node", &self.node_name)], 1.0);
        metrics::count_pods(page, &pods);
        let pods: Vec<PodReference> = pods.iter().map(PodReference::of).collect();
        let volumes = self.stats.volumes.persistent(&pods, self.clock.now()).await;
        metrics::volumes::render(page, volumes.iter().flatten());
        self.requests.render(page);
        self.pods.metrics(page);
    }
}
