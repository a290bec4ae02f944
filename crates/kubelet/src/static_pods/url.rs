//! A URL at which a pod, or a list of pods, can be read. HTTP announces no change, so it is asked from time to time; a server
//! that does not answer, or answers nonsense, leaves the pods as they are.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Kept, Source, parse};
use crate::probes::http_get::{self, Target};

/// The longest document that is read.
const MOST: usize = 10 << 20;
/// How long the server may take.
const LIMIT: Duration = Duration::from_secs(10);
/// After so many failures in a row nothing more is said of them.
const LOGGED: u32 = 3;

/// Where to ask, with what, and how often.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub url: String,
    /// Headers of the request, which may be secrets.
    pub headers: Vec<(String, String)>,
    pub every: Duration,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("url", &self.url).field("every", &self.every).finish_non_exhaustive()
    }
}

/// Asks until it is stopped.
pub(super) async fn run(config: Config, kept: Arc<Mutex<Kept>>, stop: CancellationToken) {
    let mut kept = kept.lock().await;
    let mut before = None;
    let mut failures = 0;
    loop {
        match ask(&config, &kept.node(), &mut before).await {
            Ok(news) => {
                failures = 0;
                if let Some(pods) = news {
                    kept.set(pods);
                }
            }
            Err(Failure::Empty) => {
                kept.set(Vec::new());
                failures = log(failures, &format!("zero-length data received from {}", config.url));
            }
            Err(Failure::Other(why)) => failures = log(failures, &why),
        }
        tokio::select! {
            () = tokio::time::sleep(config.every) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn log(failures: u32, why: &str) -> u32 {
    if failures < LOGGED {
        tracing::warn!(error = why, "static pods not read from their URL");
    }
    failures.saturating_add(1)
}

/// Why there is no news.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The document is empty, which is no pods at all.
    #[error("empty")]
    Empty,
    #[error("{0}")]
    Other(String),
}

/// The pods that are there now; nothing when the document is the one of before.
async fn ask(config: &Config, node: &str, before: &mut Option<Vec<u8>>) -> Result<Option<Vec<Pod>>, Failure> {
    let other = Failure::Other;
    let target = Target::parse(&config.url).ok_or_else(|| other(format!("{:?} is no URL of HTTP", config.url)))?;
    let (status, body) = http_get::fetch(&target, &config.headers, MOST, LIMIT).await.map_err(other)?;
    if status != 200 {
        let words = http::StatusCode::from_u16(status).map(|status| status.to_string());
        return Err(other(format!("{}: {}", config.url, words.unwrap_or_else(|_| status.to_string()))));
    }
    if body.is_empty() {
        *before = None;
        return Err(Failure::Empty);
    }
    if before.as_ref() == Some(&body) {
        return Ok(None);
    }
    let pods = parse::pods(&String::from_utf8_lossy(&body), Source::Url(&config.url), node);
    *before = Some(body);
    pods.map(Some).map_err(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::spec;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers each connection with the next body, and gives back what was asked.
    async fn serve(answers: Vec<(&'static str, String)>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/pods?node=n", listener.local_addr().unwrap());
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = vec![0; 4096];
                let count = stream.read(&mut buffer).await.unwrap();
                asked.push(String::from_utf8_lossy(&buffer[..count]).into_owned());
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
            asked
        });
        (url, asked)
    }

    fn pod(name: &str) -> serde_json::Value {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        })
    }

    #[tokio::test]
    async fn one_pod_or_a_list_of_them_is_read_and_only_changes_are_news() {
        let list =
            serde_json::json!({"apiVersion": "v1", "kind": "PodList", "items": [pod("a"), pod("b")]}).to_string();
        let (url, asked) = serve(vec![
            ("200 OK", pod("a").to_string()),
            ("200 OK", pod("a").to_string()),
            ("200 OK", list),
            ("404 Not Found", "gone".to_owned()),
            ("200 OK", "kind: Service".to_owned()),
            ("200 OK", String::new()),
        ])
        .await;
        let headers = vec![("X-Key".to_owned(), "secret".to_owned())];
        let config = Config { url: url.clone(), headers, every: Duration::from_secs(20) };
        let mut before = None;
        let one = ask(&config, "n", &mut before).await.unwrap().unwrap();
        assert_eq!(spec::name(&one[0]), "a-n");
        assert_eq!(spec::annotation(&one[0], spec::SOURCE), Some("http"));
        assert!(one[0].spec.as_ref().unwrap().tolerations.is_none());
        assert!(ask(&config, "n", &mut before).await.unwrap().is_none());
        let two = ask(&config, "n", &mut before).await.unwrap().unwrap();
        assert_eq!(two.len(), 2);
        // A pod that did not change is the same pod, however it is wrapped.
        assert_eq!(spec::uid(&two[0]), spec::uid(&one[0]));
        let missing = ask(&config, "n", &mut before).await.unwrap_err();
        assert_eq!(missing.to_string(), format!("{url}: 404 Not Found"));
        assert!(matches!(ask(&config, "n", &mut before).await, Err(Failure::Other(_))));
        assert!(matches!(ask(&config, "n", &mut before).await, Err(Failure::Empty)));
        let asked = asked.await.unwrap();
        assert!(asked[0].starts_with("GET /pods?node=n HTTP/1.1\r\n"), "{}", asked[0]);
        assert!(asked[0].to_lowercase().contains("x-key: secret\r\n"), "{}", asked[0]);
    }

    #[tokio::test]
    async fn a_document_without_end_is_not_read() {
        let (url, _asked) = serve(vec![("200 OK", "#".repeat(MOST + 1))]).await;
        let config = Config { url, headers: Vec::new(), every: Duration::from_secs(20) };
        let failure = ask(&config, "n", &mut None).await.unwrap_err().to_string();
        assert!(failure.ends_with("the read limit is reached"), "{failure}");
    }
}
