//! The queue of spans, and the task that sends what is in it.

use std::time::Duration;

use hops::export::{Ended, Exporter, Part};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::v1::trace_service_client::TraceServiceClient;
use crate::{Configuration, DROPPED, EXPORTED, encode};

/// Spans that wait.
const QUEUE: usize = 2048;
/// Spans of one request.
const BATCH: usize = 512;
/// How long a span waits for others.
const DELAY: Duration = Duration::from_secs(5);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// How long a batch is tried, again and again.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the last spans may take when the process ends.
const LAST: Duration = Duration::from_secs(2);

/// Takes spans and never waits.
struct Queue(mpsc::Sender<Ended>);

impl Exporter for Queue {
    fn export(&self, span: Ended) {
        if self.0.try_send(span).is_err() {
            DROPPED.increment(&["queue_full"]);
        }
    }
}

/// The task that sends. What is queued when it is told to stop is still sent, if that goes quickly.
pub struct Sender {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Sender {
    pub async fn stop(self) {
        self.stop.cancel();
        // A task that does not end in time goes with the process.
        let _ = timeout(LAST, self.task).await;
    }
}

/// Sends the spans of a part from now on; nothing if somebody does so already. `instance` tells this process from others of its service.
pub fn start(
    part: Part,
    configuration: &Configuration,
    instance: &str,
) -> Result<Option<Sender>, tonic::transport::Error> {
    let (queue, spans) = mpsc::channel(QUEUE);
    // A collector that is not there yet is found when it is.
    let channel = Endpoint::try_from(configuration.address())?.connect_timeout(REQUEST).connect_lazy();
    if !hops::export::install(part, configuration.rate(), Box::new(Queue(queue))) {
        return Ok(None);
    }
    let stop = CancellationToken::new();
    let task = tokio::spawn(send(spans, channel, instance.to_owned(), stop.clone()));
    Ok(Some(Sender { stop, task }))
}

async fn send(mut spans: mpsc::Receiver<Ended>, channel: Channel, instance: String, stop: CancellationToken) {
    let mut client = TraceServiceClient::new(channel);
    let mut failing = false;
    while let Some(batch) = batch(&mut spans, &stop).await {
        let count = batch.len();
        match deliver(&mut client, encode::request(batch, &instance), &stop).await {
            Ok(rejected) => {
                failing = false;
                EXPORTED.add(&[], count.saturating_sub(rejected));
                if rejected > 0 {
                    DROPPED.add(&["rejected"], rejected);
                }
            }
            Err(status) => {
                DROPPED.add(&["export_failed"], count);
                // Once for each time without a collector.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(error = %status.message(), code = ?status.code(), "the collector of traces takes no spans; they are dropped");
                }
            }
        }
    }
}

/// The next spans to send: as many as there are some seconds after the first. Nothing when all is sent and it is time to stop.
async fn batch(spans: &mut mpsc::Receiver<Ended>, stop: &CancellationToken) -> Option<Vec<Ended>> {
    let mut batch = Vec::with_capacity(BATCH);
    tokio::select! {
        biased;
        received = spans.recv_many(&mut batch, BATCH) => if received == 0 { return None },
        () = stop.cancelled() => return None,
    }
    let until = Instant::now() + DELAY;
    while batch.len() < BATCH {
        let room = BATCH - batch.len();
        let more = tokio::select! {
            more = timeout_at(until, spans.recv_many(&mut batch, room)) => more.unwrap_or_default(),
            () = stop.cancelled() => break,
        };
        if more == 0 {
            break;
        }
    }
    Some(batch)
}

/// How many of them the collector rejected. One that is away is asked again for a while.
async fn deliver(
    client: &mut TraceServiceClient<Channel>,
    request: crate::v1::ExportTraceServiceRequest,
    stop: &CancellationToken,
) -> Result<usize, Status> {
    let until = Instant::now() + PATIENCE;
    loop {
        let sent = timeout(REQUEST, client.export(request.clone())).await;
        let status = match sent.unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded"))) {
            Ok(answer) => {
                let rejected = answer.into_inner().partial_success.map_or(0, |partial| partial.rejected_spans);
                return Ok(usize::try_from(rejected).unwrap_or_default());
            }
            Err(status) => status,
        };
        let passes = is_passing(status.code()) && Instant::now() + PAUSE < until && !stop.is_cancelled();
        if !passes {
            return Err(status);
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Whether another try may go well, as OpenTelemetry's specification has it.
const fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::tests::ended;

    #[tokio::test(start_paused = true)]
    async fn batches_are_what_comes_within_some_seconds_and_no_more_than_so_many() {
        let (sender, mut spans) = mpsc::channel(QUEUE);
        let (queue, stop) = (Queue(sender), CancellationToken::new());
        for span in 1..=BATCH as u64 + 3 {
            queue.export(ended("apiserver", span, 0));
        }
        let begun = Instant::now();
        assert_eq!(batch(&mut spans, &stop).await.map(|batch| batch.len()), Some(BATCH));
        assert_eq!(begun.elapsed(), Duration::ZERO, "a full one does not wait");
        assert_eq!(batch(&mut spans, &stop).await.map(|batch| batch.len()), Some(3));
        assert_eq!(begun.elapsed(), DELAY);
        // What is queued goes out at the end, at once.
        queue.export(ended("apiserver", 1, 0));
        stop.cancel();
        assert_eq!(batch(&mut spans, &stop).await.map(|batch| batch.len()), Some(1));
        assert!(batch(&mut spans, &stop).await.is_none());
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (sender, _spans) = mpsc::channel(2);
        let (queue, before) = (Queue(sender), DROPPED.value(&["queue_full"]));
        (1..=5).for_each(|span| queue.export(ended("apiserver", span, 0)));
        assert!((DROPPED.value(&["queue_full"]) - before - 3.0).abs() < f64::EPSILON);
    }
}
