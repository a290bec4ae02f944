//! A container's log, read from the file the runtime writes.

mod follow;
mod options;
mod record;
mod tail;

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::PodStatus;
use machinery::query::Query;
use tokio::sync::{mpsc, watch};

use super::Inner;
use super::answer::{self, Answer};
use super::pods::has_container;
use super::route::Place;
use follow::Log;
use options::{BadOptions, Options};

/// Pieces of output that wait for a slow reader.
const WAITING: usize = 4;

/// Answers a request for a log.
pub async fn answer(inner: &Inner, place: &Place, query: &Query) -> Answer {
    match log(inner, place, query).await {
        Ok(answer) => answer,
        Err(Refusal { status, message }) => answer::text(status, message),
    }
}

struct Refusal {
    status: StatusCode,
    message: String,
}

fn refuse(status: StatusCode) -> impl FnOnce(String) -> Refusal {
    move |message| Refusal { status, message }
}

async fn log(inner: &Inner, place: &Place, query: &Query) -> Result<Answer, Refusal> {
    let (pod_name, container) = (&place.pod, &place.container);
    let options = Options::parse(query, inner.clock.now()).map_err(|error| {
        let status = match error {
            BadOptions::Undecodable => StatusCode::BAD_REQUEST,
            BadOptions::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        };
        refuse(status)(error.to_string())
    })?;
    let absent = || refuse(StatusCode::NOT_FOUND)(format!("pod {pod_name:?} does not exist"));
    let pod = inner.pods.find(&place.namespace, pod_name).ok_or_else(absent)?;
    if !has_container(&pod, container) {
        return Err(refuse(StatusCode::NOT_FOUND)(format!("container {container:?} not found in pod {pod_name:?}")));
    }
    let status = pod.status.unwrap_or_default();
    let bad = |message: String| refuse(StatusCode::BAD_REQUEST)(message);
    let id = options::choose(pod_name, &status, container, options.previous).map_err(bad)?;
    let bare = id.split_once("://").map_or(id.as_str(), |(_, bare)| bare);
    let found = inner.runtime.container_status(bare).await.map_err(|error| {
        tracing::debug!(id, %error, "the runtime does not have the container");
        bad(format!("unable to retrieve container logs for {id}"))
    })?;
    let follow = options.follow;
    let opened = Log::open(&found.log_path, options).await;
    let log = opened.map_err(|error| bad(format!("failed to open log file {:?}: {error}", found.log_path)))?;
    let permit = inner.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| refuse(StatusCode::SERVICE_UNAVAILABLE)(super::TOO_MANY.to_owned()))?;
    let (sink, shown) = mpsc::channel(WAITING);
    let news = pod.metadata.uid.as_deref().filter(|_| follow).and_then(|uid| inner.pods.status(uid));
    let (container, stop) = (container.clone(), inner.stop.clone());
    tokio::spawn(async move {
        let _permit = permit;
        let ended = async {
            tokio::select! {
                () = ended(news, &container, &id) => {}
                () = stop.cancelled() => {}
            }
        };
        log.show(sink, ended).await;
    });
    let pieces = futures::stream::unfold(shown, async |mut shown| shown.recv().await.map(|piece| (piece, shown)));
    Ok(answer::stream(pieces))
}

/// Waits until this very container does not run any more, as far as the pod's worker knows.
async fn ended(news: Option<watch::Receiver<Arc<PodStatus>>>, container: &str, id: &str) {
    if let Some(mut news) = news {
        // The worker going away is an end too.
        let _ = news.wait_for(|status| !options::runs(status, container, id)).await;
    }
}
