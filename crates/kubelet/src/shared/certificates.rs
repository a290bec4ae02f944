//! Certificates of pods: what is known of one `podCertificate` source, and what follows from news about it. Purely.
//!
//! ```text
//! Nothing ──ask──► Asked ──issued──► Held ──time to renew: ask──► Asked, and still held ──issued──► Held
//!                    └──denied, failed──► Refused ◄─────────────────────┘
//! ```
//! Nothing of it is on disk but the files in the pod's volume: after a restart every certificate is asked for anew. A request
//! that nobody can find long after it was made was deleted, and is made again.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use informer::clock::add;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::PodCertificateRequest;

/// A request that is not seen for this long was deleted.
const ABANDON: Duration = Duration::from_secs(600);
/// Users are warned of a renewal that takes longer than this.
const OVERDUE: Duration = Duration::from_secs(600);
/// Spread over which the nodes of a cluster ask, so that they do not all ask at once.
const SPREAD: Duration = Duration::from_secs(300);

/// A private key and the certificates that were issued for it, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// PKCS#8. Secret.
    pub key: String,
    /// The certificate itself, then those that lead to its authority.
    pub chain: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// A request under way.
struct Asked {
    key: String,
    request: String,
    abandon: Timestamp,
}

/// A credential, and what is to be done about its age.
#[derive(Debug, Clone)]
struct Held {
    credential: Arc<Credential>,
    renew: Timestamp,
    ends: Timestamp,
    reported_overdue: bool,
    reported_expired: bool,
}

/// One source of a pod's volume.
#[derive(Default)]
pub struct Projection {
    held: Option<Held>,
    asked: Option<Asked>,
    /// Why there will be none; it stays so for as long as the pod lives.
    refused: Option<String>,
}

/// What a look at a projection came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether a request has to be made now.
    pub ask: bool,
    /// Events to be recorded about the pod: reasons and messages.
    pub events: Vec<(&'static str, String)>,
}

impl Projection {
    /// The name of the request under way.
    pub fn request(&self) -> Option<&str> {
        self.asked.as_ref().map(|asked| asked.request.as_str())
    }

    /// A request was made with this key. `spread` comes from [`spread`].
    pub fn asked(&mut self, key: String, request: &PodCertificateRequest, now: Timestamp, spread: Duration) {
        let made = request.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let name = request.metadata.name.clone().unwrap_or_default();
        self.asked = Some(Asked { key, request: name, abandon: add(made, ABANDON + spread) });
    }

    /// Takes in what became of the request, and says what is to be done.
    pub fn look(&mut self, found: Option<&PodCertificateRequest>, now: Timestamp, spread: Duration) -> Look {
        let mut look = Look::default();
        if self.refused.is_some() {
            return look;
        }
        if let Some(asked) = self.asked.take() {
            match found.map(|request| (request, verdict(request))) {
                None if now > asked.abandon => {}
                Some((request, Some(condition))) => match condition.type_.as_str() {
                    "Issued" => self.held = Some(held(asked.key, request, spread)),
                    kind => look.events.push(self.refuse(kind, request, condition)),
                },
                _ => self.asked = Some(asked),
            }
        }
        if let Some(held) = self.held.as_mut().filter(|_| self.refused.is_none()) {
            look.events.extend(held.age(now));
        }
        let wanted = self.held.as_ref().is_none_or(|held| now >= held.renew);
        look.ask = wanted && self.asked.is_none() && self.refused.is_none();
        look
    }

    fn refuse(
        &mut self,
        kind: &str,
        request: &PodCertificateRequest,
        condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition,
    ) -> (&'static str, String) {
        let (event, now, ever) =
            if kind == "Denied" { ("Denied", "was denied", "denied") } else { ("Failed", "failed", "failed") };
        let (reason, message) = (&condition.reason, &condition.message);
        self.refused =
            Some(format!("PodCertificateRequest was permanently {ever}: reason={reason:?} message={message:?}"));
        let name = informer::Key::of(&request.metadata);
        (event, format!("PodCertificateRequest {name} {now}, reason={reason:?}, message={message:?}"))
    }

    /// The credential, or why there is none.
    pub fn credential(&self) -> Result<Arc<Credential>, String> {
        match (&self.refused, &self.held) {
            (Some(why), _) => Err(why.clone()),
            (None, Some(held)) => Ok(held.credential.clone()),
            (None, None) => Err("credential bundle is not issued yet".to_owned()),
        }
    }

    /// When to look again though nothing was announced.
    pub fn due(&self) -> Option<Timestamp> {
        if self.refused.is_some() {
            return None;
        }
        let renewal = self.held.as_ref().filter(|_| self.asked.is_none()).map(|held| held.renew);
        let overdue = self.held.as_ref().filter(|held| !held.reported_overdue).map(Held::overdue);
        let expired = self.held.as_ref().filter(|held| !held.reported_expired).map(|held| held.ends);
        let abandoned = self.asked.as_ref().map(|asked| asked.abandon);
        // The warning comes after its time, not at it.
        let after = |at: Timestamp| add(at, Duration::from_secs(1));
        [renewal, overdue.map(after), expired.map(after), abandoned.map(after)].into_iter().flatten().min()
    }
}

impl Held {
    fn overdue(&self) -> Timestamp {
        add(self.renew, OVERDUE)
    }

    /// The one warning to users about a certificate that is not renewed in time.
    fn age(&mut self, now: Timestamp) -> Vec<(&'static str, String)> {
        let mut events = Vec::new();
        if now > self.overdue() && !std::mem::replace(&mut self.reported_overdue, true) {
            events.push(("CertificateOverdueForRefresh", "PodCertificate refresh overdue".to_owned()));
        }
        if now > self.ends && !std::mem::replace(&mut self.reported_expired, true) {
            events.push(("CertificateExpired", "PodCertificate expired".to_owned()));
        }
        events
    }
}

fn verdict(request: &PodCertificateRequest) -> Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().find(|one| ["Issued", "Denied", "Failed"].contains(&one.type_.as_str()))
}

fn held(key: String, request: &PodCertificateRequest, spread: Duration) -> Held {
    let status = request.status.clone().unwrap_or_default();
    // Headers and whatever stands between the certificates are the signer's business.
    let chain = pki::certificates_in(&status.certificate_chain.unwrap_or_default());
    let chain = chain.iter().map(|der| pki::certificate_pem(der)).collect();
    let time =
        |time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.map_or(Timestamp::MAX, |time| time.0);
    Held {
        credential: Arc::new(Credential { key, chain }),
        renew: add(time(status.begin_refresh_at), spread),
        ends: time(status.not_after),
        reported_overdue: false,
        reported_expired: false,
    }
}

/// A random part of the time over which requests are spread.
pub fn spread() -> Duration {
    let nanos = u64::try_from(SPREAD.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(RandomState::new().hash_one(()) % nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const HOUR: i64 = 3600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn request(name: &str, status: Value) -> PodCertificateRequest {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "creationTimestamp": at(0).to_string()},
            "spec": {"nodeName": "n", "nodeUID": "n-1", "podName": "p", "podUID": "p-1", "serviceAccountName": "default",
                "serviceAccountUID": "s-1", "signerName": "example.com/s", "stubPKCS10Request": ""},
            "status": status,
        }))
        .unwrap()
    }

    fn condition(kind: &str) -> Value {
        let condition = json!({"type": kind, "status": "True", "reason": "Because", "message": "of \"it\"",
            "lastTransitionTime": at(0).to_string()});
        json!([condition])
    }

    fn issued(name: &str) -> PodCertificateRequest {
        let chain = format!("junk\n{}more junk\n{}", pki::certificate_pem(b"leaf"), pki::certificate_pem(b"middle"));
        request(
            name,
            json!({"conditions": condition("Issued"), "certificateChain": chain,
                "beginRefreshAt": at(8 * HOUR).to_string(), "notAfter": at(10 * HOUR).to_string()}),
        )
    }

    const NONE: Duration = Duration::ZERO;

    fn asked(projection: &mut Projection, key: &str, name: &str) {
        projection.asked(key.to_owned(), &request(name, json!({})), at(0), NONE);
    }

    #[test]
    fn a_certificate_is_asked_for_once_and_held_when_issued() {
        let mut one = Projection::default();
        assert!(one.look(None, at(0), NONE).ask);
        asked(&mut one, "KEY", "req-1");
        assert_eq!(one.request(), Some("req-1"));
        assert_eq!(one.look(None, at(1), NONE), Look::default());
        assert_eq!(one.look(Some(&request("req-1", json!({}))), at(2), NONE), Look::default());
        assert_eq!(one.credential().unwrap_err(), "credential bundle is not issued yet");
        assert_eq!(one.look(Some(&issued("req-1")), at(3), NONE), Look::default());
        let chain = format!("{}{}", pki::certificate_pem(b"leaf"), pki::certificate_pem(b"middle"));
        assert_eq!(*one.credential().unwrap(), Credential { key: "KEY".into(), chain });
        assert_eq!(one.due(), Some(at(8 * HOUR)));
        assert!(!format!("{:?}", one.credential()).contains("KEY"));
    }

    #[test]
    fn it_is_renewed_in_time_and_the_old_one_is_good_until_then() {
        let mut one = Projection::default();
        asked(&mut one, "OLD", "req-1");
        one.look(Some(&issued("req-1")), at(3), Duration::from_secs(60));
        assert!(!one.look(None, at(8 * HOUR), NONE).ask);
        assert!(one.look(None, at(8 * HOUR + 60), NONE).ask);
        one.asked("NEW".into(), &request("req-2", json!({})), at(0), Duration::from_secs(20 * 3600));
        assert_eq!(one.credential().unwrap().key, "OLD");
        let late = one.look(None, at(8 * HOUR + 661), NONE);
        assert_eq!(late.events, [("CertificateOverdueForRefresh", "PodCertificate refresh overdue".to_owned())]);
        assert_eq!(one.due(), Some(at(10 * HOUR + 1)));
        let later = one.look(None, at(10 * HOUR + 1), NONE);
        assert_eq!(later.events, [("CertificateExpired", "PodCertificate expired".to_owned())]);
        assert_eq!(one.look(None, at(11 * HOUR), NONE), Look::default());
        one.look(Some(&issued("req-2")), at(11 * HOUR), NONE);
        assert_eq!(one.credential().unwrap().key, "NEW");
    }

    #[test]
    fn a_refusal_is_for_good_and_told_once() {
        for (kind, words, ever) in [("Denied", "was denied", "denied"), ("Failed", "failed", "failed")] {
            let mut one = Projection::default();
            asked(&mut one, "KEY", "req-1");
            let refused = request("req-1", json!({"conditions": condition(kind)}));
            let look = one.look(Some(&refused), at(1), NONE);
            let message =
                format!("PodCertificateRequest ns/req-1 {words}, reason=\"Because\", message=\"of \\\"it\\\"\"");
            assert_eq!(look, Look { ask: false, events: vec![(kind, message)] });
            let why =
                format!("PodCertificateRequest was permanently {ever}: reason=\"Because\" message=\"of \\\"it\\\"\"");
            assert_eq!(one.credential().unwrap_err(), why);
            assert_eq!((one.look(Some(&refused), at(2), NONE), one.due()), (Look::default(), None));
        }
    }

    #[test]
    fn a_request_that_was_deleted_is_made_again() {
        let mut one = Projection::default();
        asked(&mut one, "KEY", "req-1");
        assert_eq!(one.due(), Some(at(601)));
        assert!(!one.look(None, at(600), NONE).ask);
        assert!(one.look(None, at(601), NONE).ask);
        assert!(spread() < SPREAD && spread() != spread());
    }
}
