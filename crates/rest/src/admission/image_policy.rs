//! ImagePolicyWebhook: somebody else says which images may run. What they said is remembered for a while.

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::expiring::Expiring;
use gates::outbound::{self, Remote, Retry};
use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;

use super::pods::{List, placed, spec};
use super::{Operation, Request};
use crate::verbs::Api;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often somebody who is away is asked.
const ATTEMPTS: usize = 5;
/// The most answers that are remembered.
const MAX_ANSWERS: usize = 1024;
const ANNOTATIONS: &str = ".image-policy.k8s.io/";
const AUDIT: &str = "imagepolicywebhook.image-policy.k8s.io/";

/// Whom to ask, and what counts when nobody answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    kubeconfig: PathBuf,
    allow_ttl: Duration,
    deny_ttl: Duration,
    retry: Duration,
    allows_by_default: bool,
}

impl Settings {
    /// Reads the plug-in's configuration; files are named relative to `beside`.
    pub fn read(tree: &Value, beside: &Path) -> Result<Self, String> {
        let tree = &tree["imagePolicy"];
        let span =
            |key: &str, unit: Duration, default: Duration, least: Duration, most: Duration| match value::int(tree, key)
                .unwrap_or(0)
            {
                -1 => Ok(Duration::ZERO),
                0 => Ok(default),
                given => {
                    let span = u32::try_from(given).ok().and_then(|given| unit.checked_mul(given));
                    span.filter(|span| (least..=most).contains(span))
                        .ok_or_else(|| format!("valid value is between {least:?} and {most:?}, got {given} ({key})"))
                }
            };
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let milli = Duration::from_millis(1);
        Ok(Self {
            kubeconfig: beside.join(value::text(tree, "kubeConfigFile")),
            allow_ttl: span("allowTTL", second, 5 * minute, second, 30 * minute)?,
            deny_ttl: span("denyTTL", second, 30 * second, second, 30 * minute)?,
            retry: span("retryBackoff", milli, 500 * milli, Duration::from_nanos(1), 5 * minute)?,
            allows_by_default: value::flag(tree, "defaultAllow"),
        })
    }
}

pub struct ImagePolicy {
    settings: Settings,
    remote: Remote,
    answers: Expiring<String, Value>,
}

impl ImagePolicy {
    pub fn new(settings: Settings) -> Result<Self, outbound::Error> {
        let remote = Remote::from_kubeconfig(&settings.kubeconfig)?;
        Ok(Self { settings, remote, answers: Expiring::new(MAX_ANSWERS) })
    }

    /// Asks about the images of a pod, or of its ephemeral containers when those change.
    pub async fn validate(&self, api: &Api, request: &Request<'_>, new: Option<&Value>) -> Result<(), ApiError> {
        let name = &request.resource.name;
        let lists: &[List] = match request.info.subresource.as_str() {
            "" => &[List::Plain, List::Init],
            "ephemeralcontainers" => &[List::Ephemeral],
            _ => return Ok(()),
        };
        let wanted = name.group.is_empty()
            && name.resource == "pods"
            && matches!(request.operation, Operation::Create | Operation::Update);
        let Some(pod) = new.filter(|_| wanted) else { return Ok(()) };
        let question = question(request, pod, lists);
        let now = (api.clock)().as_millisecond();
        let key = question.to_string();
        let status = match self.answers.get(&key, now) {
            Some(status) => status,
            None => match self.ask(question, request.exchange.trace.context()).await {
                Ok(status) => {
                    let ttl =
                        if value::flag(&status, "allowed") { self.settings.allow_ttl } else { self.settings.deny_ttl };
                    let until = now.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
                    self.answers.put(key, status.clone(), until);
                    status
                }
                Err(error) if self.settings.allows_by_default => {
                    tracing::warn!(%error, "the image policy webhook failed; images are allowed in spite of it");
                    request.exchange.notes.annotate(format!("{AUDIT}failed-open"), "true");
                    return Ok(());
                }
                Err(error) => return Err(request.forbid(pod, &self.failure(&error))),
            },
        };
        for (key, text) in status["auditAnnotations"].as_object().into_iter().flatten() {
            request.exchange.notes.annotate(format!("{AUDIT}{key}"), text.as_str().unwrap_or_default());
        }
        if value::flag(&status, "allowed") {
            return Ok(());
        }
        Err(match value::text(&status, "reason") {
            "" => request.forbid(pod, "one or more images rejected by webhook backend"),
            reason => request.forbid(pod, &format!("image policy webhook backend denied one or more images: {reason}")),
        })
    }

    fn failure(&self, error: &outbound::Error) -> String {
        match error {
            outbound::Error::Status(_) | outbound::Error::Answer(_) | outbound::Error::Body(_) => error.to_string(),
            other => format!("Post {:?}: {other}", self.remote.address()),
        }
    }

    async fn ask(&self, question: Value, trace: hops::Context) -> Result<Value, outbound::Error> {
        let review = json!({"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "spec": question, "status": {"allowed": false}});
        let retry = Retry { attempts: ATTEMPTS, pause: self.settings.retry };
        let answer = retry.run(|| self.remote.post(&review, TIMEOUT, trace)).await?;
        Ok(answer["status"].clone())
    }
}

/// The spec of a review.
fn question(request: &Request<'_>, pod: &Value, lists: &[List]) -> Value {
    let images: Vec<Value> =
        placed(spec(pod), lists).map(|(_, _, container)| json!({"image": value::text(container, "image")})).collect();
    let mut question = json!({"containers": images, "namespace": request.info.namespace});
    let annotations = value::at(pod, "metadata.annotations").and_then(Value::as_object).into_iter().flatten();
    let own: serde_json::Map<String, Value> = annotations
        .filter(|(key, _)| key.contains(ANNOTATIONS))
        .map(|(key, text)| (key.clone(), text.clone()))
        .collect();
    if !own.is_empty() {
        question["annotations"] = Value::Object(own);
    }
    question
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_defaults_and_bounds() {
        let read = |tree: Value| Settings::read(&json!({"imagePolicy": tree}), Path::new("/etc"));
        let plain = read(json!({"kubeConfigFile": "k"})).expect("defaults");
        assert_eq!(plain.kubeconfig, Path::new("/etc/k"));
        assert_eq!((plain.allow_ttl.as_secs(), plain.deny_ttl.as_secs(), plain.retry.as_millis()), (300, 30, 500));
        let given =
            read(json!({"allowTTL": 7, "denyTTL": -1, "retryBackoff": 20, "defaultAllow": true})).expect("given");
        assert_eq!((given.allow_ttl.as_secs(), given.deny_ttl.as_secs(), given.retry.as_millis()), (7, 0, 20));
        assert!(given.allows_by_default && read(json!({"allowTTL": 99_999})).is_err());
    }
}
