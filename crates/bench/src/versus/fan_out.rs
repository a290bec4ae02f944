//! Many watchers, each on a connection of its own, and events for all of them: the time from sending a create to each delivery.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use tokio::task::JoinSet;

use super::outside::Lines;
use super::requests::typed;
use super::sheet::{Figure, Sheet};
use super::{Outside, Side};
use crate::report::quantile_ms;
use crate::{Failure, Options};

const EVENTS: usize = 50;
/// Spread out, as changes are in a cluster: delivery is measured, and not how long a backlog gets.
const APART: Duration = Duration::from_millis(100);
/// Watches that are opened at the same time.
const OPENING: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);
const SENT: &[u8] = b"\"bench/sent\":\"";

/// When the events come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Apart,
    /// Each create as soon as the one before is answered: whoever answers sooner has more to deliver at once.
    AtOnce,
}

pub async fn measure(
    side: &Side,
    outside: &Outside,
    (usual, pace): (usize, Pace),
    options: &Options,
    sheet: &mut Sheet,
) -> Result<(), Failure> {
    let watchers = options.scaled(usual, 20);
    let (operation, title) = match pace {
        Pace::Apart => {
            (format!("fan_out_{usual}"), format!("delivery to {watchers} watchers, {EVENTS} events 100 ms apart"))
        }
        Pace::AtOnce => (format!("burst_{usual}"), format!("delivery to {watchers} watchers, {EVENTS} events at once")),
    };
    // At a small scale several may come to the same number.
    let space = format!("bench-{usual}-{pace:?}").to_lowercase();
    outside.space(&space).await?;
    let path = format!("/api/v1/namespaces/{space}/pods?watch=true&resourceVersion=0");
    let opening = futures::stream::iter(0..watchers).map(|_| outside.watch(&path, "application/json"));
    let opened: Vec<_> = opening.buffer_unordered(OPENING).collect().await;
    let epoch = Instant::now();
    let mut readers = JoinSet::new();
    for lines in opened {
        readers.spawn(latencies(lines?, epoch));
    }
    // The handshakes are paid for.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = side.cpu()?;
    let pods: Api<Pod> = Api::namespaced(outside.client(), &space);
    let mut ticks = tokio::time::interval(APART);
    for number in 0..EVENTS {
        if pace == Pace::Apart {
            ticks.tick().await;
        }
        let sent = epoch.elapsed().as_nanos().to_string();
        pods.create(&PostParams::default(), &typed(crate::pods::ordinary(&format!("w{number}"), &sent, "100m")))
            .await?;
    }
    let mut all = Vec::with_capacity(watchers * EVENTS);
    let reading = async {
        while let Some(reader) = readers.join_next().await {
            all.extend(reader??);
        }
        Ok::<_, Failure>(())
    };
    tokio::time::timeout(PATIENCE, reading).await.map_err(|_| "events did not come")??;
    let used = side.cpu()? - used;
    all.sort_unstable();
    let figures = [
        (Figure::CpuMicros, used * 1e6 / all.len() as f64),
        (Figure::P50, quantile_ms(&all, 0.5)),
        (Figure::P99, quantile_ms(&all, 0.99)),
    ];
    sheet.add(side, &operation, &title, &figures);
    Ok(())
}

/// Reads until all events have come; how late each was.
async fn latencies(mut lines: Lines, epoch: Instant) -> Result<Vec<Duration>, Failure> {
    let mut found = Vec::with_capacity(EVENTS);
    while found.len() < EVENTS {
        lines.next(|line| found.extend(sent_at(line).map(|sent| epoch.elapsed().saturating_sub(sent)))).await?;
    }
    Ok(found)
}

/// When what this event tells of was sent, if it tells of it for the first time.
fn sent_at(line: &[u8]) -> Option<Duration> {
    if !line.starts_with(b"{\"type\":\"ADDED\"") {
        return None;
    }
    let at = memchr::memmem::find(line, SENT)? + SENT.len();
    let digits: String =
        line[at..].iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| char::from(*byte)).collect();
    digits.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_additions_own_time_counts() {
        let line = |kind: &str| format!("{{\"type\":\"{kind}\",\"object\":{{\"bench/sent\":\"1500\"}}}}\n");
        assert_eq!(sent_at(line("ADDED").as_bytes()), Some(Duration::from_nanos(1_500)));
        assert_eq!(sent_at(line("MODIFIED").as_bytes()), None);
        assert_eq!(sent_at(b"{\"type\":\"ADDED\",\"object\":{}}\n"), None);
    }
}
