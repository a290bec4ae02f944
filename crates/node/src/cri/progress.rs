//! Whether a pull gets on. A registry that takes a connection and then falls silent would hold a pull, and with it one of the
//! few places for pulls, for ever: containerd gives up on such a pull by itself only since 1.7. The CRI does not say how far a
//! pull is, and nobody announces it, so while a pull is on its way the content store is asked now and then.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use super::events::NAMESPACE;

#[allow(clippy::all, clippy::unwrap_used)]
mod content {
    tonic::include_proto!("containerd.services.content.v1");
}

/// How long a pull may be without progress, by default.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Looks in that time.
const LOOKS: u32 = 12;

/// Downloads on their way: bytes that are there, and bytes there will be, by name.
type Downloads = BTreeMap<String, (i64, i64)>;

/// What was seen of a pull.
#[derive(Debug, Default)]
struct Track {
    last: Downloads,
    begun: bool,
    /// Looks in a row that saw nothing new.
    still: u32,
}

impl Track {
    /// Notes what is seen now; says whether the pull gets on.
    fn look(&mut self, now: Downloads) -> bool {
        let moved = now != self.last;
        self.begun |= moved;
        // With nothing on its way after something was, layers are being unpacked, which takes the time it takes.
        let unpacking = now.is_empty() && self.begun;
        self.still = if moved || unpacking { 0 } else { self.still + 1 };
        self.last = now;
        self.still < LOOKS
    }

    /// The sum of it, for people.
    fn words(&self) -> String {
        let (there, whole) = self.last.values().fold((0, 0), |(a, b), (there, whole)| (a + there, b + whole));
        format!("{there} of {whole} bytes in {} downloads", self.last.len())
    }
}

/// Watches a pull; returns how far it was once it was without progress for this long. Against a runtime that has no such
/// store, it never does.
pub(super) async fn stalled(channel: Channel, image: &str, patience: Duration) -> String {
    let mut track = Track::default();
    loop {
        tokio::time::sleep(patience / LOOKS).await;
        let Some(now) = downloads(channel.clone()).await else { continue };
        if !track.look(now) {
            return track.words();
        }
        tracing::debug!(image, progress = track.words(), "image is being pulled");
    }
}

async fn downloads(channel: Channel) -> Option<Downloads> {
    let mut request = Request::new(content::ListStatusesRequest::default());
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    let answer = content::content_client::ContentClient::new(channel).list_statuses(request).await.ok()?;
    let statuses = answer.into_inner().statuses.into_iter();
    Some(statuses.map(|one| (one.r#ref, (one.offset, one.total))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn downloads(all: &[(&str, i64)]) -> Downloads {
        all.iter().map(|(name, there)| ((*name).to_owned(), (*there, 100))).collect()
    }

    #[test]
    fn only_a_pull_that_stands_still_is_given_up() {
        let mut track = Track::default();
        // Never anything: the registry does not even answer.
        assert!((1..LOOKS).all(|_| track.look(Downloads::new())));
        assert!(!track.look(Downloads::new()));
        let mut track = Track::default();
        assert!((0..50).all(|there| track.look(downloads(&[("a", there)]))), "it gets on");
        assert!((1..LOOKS).all(|_| track.look(downloads(&[("a", 49)]))));
        assert!(!track.look(downloads(&[("a", 49)])));
        assert_eq!(track.words(), "49 of 100 bytes in 1 downloads");
        let mut track = Track::default();
        track.look(downloads(&[("a", 100)]));
        assert!((0..5 * LOOKS).all(|_| track.look(Downloads::new())), "unpacking takes its time");
    }
}
