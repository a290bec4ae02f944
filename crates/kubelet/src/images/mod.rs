//! Images on the node: when to pull, with which credentials, and how long to wait after a failure.

mod credentials;
pub mod gc;
mod records;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use informer::{Clock, EventType};
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use node::cri::{Runtime, v1};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::cri_config::security::ImageUser;
use crate::figures::{Figures, image_size};
use crate::pod::spec;
use crate::status::Waiting;
use records::Records;

/// First and longest wait after a failed pull.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    pub reference: String,
    /// The user it wants to run as.
    pub user: ImageUser,
    /// How large it is; 0 if the runtime does not say.
    pub bytes: u64,
    /// Whether it had to be pulled.
    pub pulled: bool,
}

/// An image that is not, and when to try again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// For the container's status.
    pub waiting: Waiting,
    pub again: Duration,
}

/// Records an event about a container.
pub type Record<'a> = &'a (dyn Fn(EventType, &str, String) + Send + Sync);

#[derive(Debug, Clone)]
struct Failure {
    delay: Duration,
    since: Duration,
    message: String,
}

/// What is known of images beside what the runtime knows.
#[derive(Debug)]
pub struct Ledger {
    /// Those that are mounted in containers, by the pod's uid.
    mounted: Mutex<HashMap<String, HashSet<String>>>,
    records: Records,
}

impl Ledger {
    /// With records below the kubelet's own directory.
    pub fn new(root: &Path) -> Self {
        Self { mounted: Mutex::default(), records: Records::new(root.join("image_manager")) }
    }

    /// All that are mounted.
    fn mounted(&self) -> Vec<String> {
        self.mounted.lock().values().flatten().cloned().collect()
    }
}

pub struct Images {
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    /// By pod and image.
    failures: Mutex<HashMap<(String, String), Failure>>,
    pulls: Semaphore,
    figures: Arc<Figures>,
    ledger: Arc<Ledger>,
    /// The node's own credentials.
    credentials: PathBuf,
}

impl Images {
    /// At most `parallel` pulls at a time; with the node's own credentials from a Docker `config.json`, if there is one.
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        clock: Arc<dyn Clock>,
        figures: Arc<Figures>,
        ledger: Arc<Ledger>,
        parallel: usize,
        credentials: PathBuf,
    ) -> Self {
        Self {
            runtime,
            clock,
            failures: Mutex::default(),
            pulls: Semaphore::new(parallel),
            figures,
            ledger,
            credentials,
        }
    }

    /// Makes sure that a container's image is there, as its pull policy says.
    pub async fn ensure(
        &self,
        pod: &Pod,
        container: &Container,
        secrets: &[Arc<Secret>],
        sandbox: &v1::PodSandboxConfig,
        record: Record<'_>,
    ) -> Result<Present, Absent> {
        let asked = container.image.as_deref().unwrap_or_default();
        let Some(image) = with_tag(asked) else {
            let message = format!(
                "Failed to apply default image tag {asked:?}: couldn't parse image name {asked:?}: invalid reference format"
            );
            record(EventType::Warning, "InspectFailed", message.clone());
            return Err(absent("InvalidImageName", message, LONGEST));
        };
        let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
        if policy != "Always" {
            match self.look(&image).await {
                Ok(Some(present)) if !self.must_pull(&image, &present, secrets) => {
                    let message =
                        format!("Container image {asked:?} already present on machine and can be accessed by the pod");
                    record(EventType::Normal, "Pulled", message);
                    return Ok(present);
                }
                // Whether it is here is nobody's business who may not have it.
                Ok(_) if policy == "Never" => {
                    let message = format!("Container image {asked:?} is not present with pull policy of Never");
                    record(EventType::Warning, "ErrImageNeverPull", message.clone());
                    return Err(absent("ErrImageNeverPull", message, FIRST));
                }
                Ok(_) => {}
                Err(e) => {
                    let message = format!("Failed to inspect image {asked:?}: {e}");
                    record(EventType::Warning, "InspectFailed", message.clone());
                    return Err(absent("ImageInspectError", message, FIRST));
                }
            }
        }
        self.pull(pod, asked, &image, secrets, sandbox, record).await
    }

    async fn pull(
        &self,
        pod: &Pod,
        asked: &str,
        image: &str,
        secrets: &[Arc<Secret>],
        sandbox: &v1::PodSandboxConfig,
        record: Record<'_>,
    ) -> Result<Present, Absent> {
        let key = (spec::uid(pod).to_owned(), image.to_owned());
        if let Some(failure) = self.failures.lock().get(&key).cloned() {
            let left = (failure.since + failure.delay).saturating_sub(self.clock.monotonic());
            if !left.is_zero() {
                let message = format!("Back-off pulling image {asked:?}");
                record(EventType::Normal, "BackOff", message.clone());
                return Err(absent("ImagePullBackOff", format!("{message}: {}", failure.message), left));
            }
        }
        if let Err(error) = self.ledger.records.begin(image) {
            let message = format!("Failed to record image pull intent for container image {asked:?}: {error}");
            return Err(absent("ErrImagePull", message, FIRST));
        }
        record(EventType::Normal, "Pulling", format!("Pulling image {asked:?}"));
        let waited_from = self.clock.monotonic();
        let permit = self.pulls.acquire().await;
        let pulled_from = self.clock.monotonic();
        let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        // Each credential that fits, the most specific first; without any, as nobody.
        let keys = credentials::matching(secrets, &self.credentials, image);
        let mut keys: Vec<_> = keys.into_iter().map(|key| (Some(key.auth), key.secret)).collect();
        if keys.is_empty() {
            keys.push((None, None));
        }
        let mut errors = Vec::new();
        let mut pulled = None;
        for (auth, secret) in keys {
            match self.runtime.pull_image(spec.clone(), auth, sandbox.clone()).await {
                Ok(reference) => {
                    pulled = Some((reference, secret));
                    break;
                }
                Err(e) => errors.push(e.to_string()),
            }
        }
        drop(permit);
        let Some((reference, secret)) = pulled else {
            self.ledger.records.failed(image);
            errors.dedup();
            let why = if errors.len() == 1 { errors.remove(0) } else { format!("[{}]", errors.join(", ")) };
            record(EventType::Warning, "Failed", format!("Failed to pull image {asked:?}: {why}"));
            self.note_failure(key, format!("ErrImagePull: {why}"));
            // Looked at again at once, to say that it waits.
            return Err(absent("ErrImagePull", why, Duration::from_secs(1)));
        };
        self.failures.lock().remove(&key);
        let now = self.clock.monotonic();
        let present = self.look(image).await.ok().flatten();
        let recorded = present.as_ref().map_or(&reference, |present| &present.reference);
        if let Err(error) = self.ledger.records.succeeded(image, recorded, secret, &self.clock.now().to_string()) {
            // The pull stays one that did not end, and the next pod asks the registry again.
            tracing::warn!(%error, image, "whose image this is cannot be written down");
        }
        let size = self.size(image).await;
        self.figures.pulls.observe(&[image_size(size)], (now - waited_from).as_secs_f64());
        record(
            EventType::Normal,
            "Pulled",
            format!(
                "Successfully pulled image {asked:?} in {} ({} including waiting). Image size: {size} bytes.",
                to_the_millisecond(now - pulled_from),
                to_the_millisecond(now - waited_from)
            ),
        );
        let absent = Present { reference, user: ImageUser::default(), bytes: size, pulled: true };
        Ok(present.map_or(absent, |present| Present { bytes: size, pulled: true, ..present }))
    }

    /// Whether an image that is here is not the pod's to use before the registry was asked.
    fn must_pull(&self, image: &str, present: &Present, secrets: &[Arc<Secret>]) -> bool {
        let shown = || {
            let keys = credentials::matching(secrets, &self.credentials, image).into_iter();
            keys.filter_map(|key| key.secret).collect()
        };
        self.ledger.records.must_pull(image, &present.reference, shown)
    }

    fn note_failure(&self, key: (String, String), message: String) {
        let now = self.clock.monotonic();
        let mut failures = self.failures.lock();
        let delay = failures.get(&key).map_or(FIRST, |before| {
            // Long enough ago it counts as forgotten.
            if now.saturating_sub(before.since) > LONGEST * 2 { FIRST } else { (before.delay * 2).min(LONGEST) }
        });
        failures.insert(key, Failure { delay, since: now, message });
    }

    /// Notes which images the containers of a pod have mounted: they are in use, though nothing runs from them.
    pub fn hold<'a>(&self, uid: &str, images: impl Iterator<Item = &'a String>) {
        let images: HashSet<String> = images.cloned().collect();
        let mut held = self.ledger.mounted.lock();
        if images.is_empty() {
            held.remove(uid);
        } else {
            held.insert(uid.to_owned(), images);
        }
    }

    /// Forgets failures and images of a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.ledger.mounted.lock().remove(uid);
        self.failures.lock().retain(|(pod, _), _| pod != uid);
    }

    async fn look(&self, image: &str) -> Result<Option<Present>, node::cri::Error> {
        let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        Ok(self.runtime.image_status(spec).await?.map(|found| Present {
            reference: found.id,
            user: ImageUser { uid: found.uid.map(|uid| uid.value), name: found.username },
            bytes: found.size,
            pulled: false,
        }))
    }

    async fn size(&self, image: &str) -> u64 {
        let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        self.runtime.image_status(spec).await.ok().flatten().map_or(0, |found| found.size)
    }
}

fn absent(reason: &str, message: String, again: Duration) -> Absent {
    Absent { waiting: Waiting { reason: reason.to_owned(), message }, again }
}

/// The image with its tag, `latest` when it names neither tag nor digest; nothing when it is no image name.
fn with_tag(image: &str) -> Option<String> {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let (path, tag) = match last.split_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
        None => (name, None),
    };
    let part_ok = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
            && part.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
    };
    let mut parts: Vec<&str> = path.split('/').collect();
    // The first part is a host when it looks like one, and hosts have ports and capitals.
    if parts.len() > 1 && (parts[0].contains(['.', ':']) || parts[0] == "localhost") {
        parts.remove(0);
    }
    let tag_ok = tag.is_none_or(|tag| {
        !tag.is_empty() && tag.len() <= 128 && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    });
    let digest_ok = digest.is_none_or(|digest| {
        digest.split_once(':').is_some_and(|(_, hex)| hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
    });
    if !parts.iter().all(|part| part_ok(part)) || !tag_ok || !digest_ok {
        return None;
    }
    Some(if tag.is_none() && digest.is_none() { format!("{image}:latest") } else { image.to_owned() })
}

/// As Go prints a duration, without what is finer than a millisecond.
fn to_the_millisecond(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    machinery::duration::format(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_added_where_there_is_none_and_nonsense_is_refused() {
        let check = |image: &str, expect: Option<&str>| assert_eq!(with_tag(image).as_deref(), expect, "{image}");
        check("busybox", Some("busybox:latest"));
        check("busybox:1", Some("busybox:1"));
        check("localhost:5000/a/b", Some("localhost:5000/a/b:latest"));
        check("localhost:5000/a/b:x", Some("localhost:5000/a/b:x"));
        let digest = format!("a@sha256:{}", "0".repeat(64));
        check(&digest, Some(&digest));
        for bad in ["", "UPPER", "a:", "a b", "a@sha256:xyz", "-a", "a//b"] {
            check(bad, None);
        }
    }

    #[test]
    fn durations_are_printed_as_users_know_them() {
        let check = |micros: u64, expect: &str| assert_eq!(to_the_millisecond(Duration::from_micros(micros)), expect);
        check(900, "0s");
        check(56_900, "56ms");
        check(1_234_000, "1.234s");
        check(2_000_000, "2s");
        check(3_662_000_000, "1h1m2s");
    }
}
