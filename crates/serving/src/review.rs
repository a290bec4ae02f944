//! Who asks, and whether they may: both are the API server's to say, and what it said is remembered for a while.

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use informer::Clock;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use machinery::rest::User;
use rustls::pki_types::CertificateDer;

use crate::cache::Cache;
use crate::listener::Shown;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The API server's own group; no authorizer is asked about it there either.
const MASTERS: &str = "system:masters";

/// How long answers are taken to hold.
#[derive(Debug, Clone, Copy)]
pub struct Lives {
    pub token: Duration,
    pub allowed: Duration,
    pub denied: Duration,
}

impl Lives {
    /// Those of components that delegate.
    pub const DELEGATED: Self =
        Self { token: Duration::from_secs(10), allowed: Duration::from_secs(10), denied: Duration::from_secs(10) };
}

/// The credentials are nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unidentified;

/// A token is a secret: only its digest is kept.
type Digest = Vec<u8>;

/// The two questions, with what was answered lately.
pub struct Reviewer {
    client: Client,
    /// Asks about permissions; the other about tokens.
    access: Client,
    lives: Lives,
    tokens: Cache<Digest, Arc<User>>,
    /// By the whole question, encoded.
    verdicts: Cache<String, bool>,
}

impl Reviewer {
    /// Asks through this client, whose identity must be allowed to create TokenReviews and SubjectAccessReviews.
    pub fn new(client: Client, clock: Arc<dyn Clock>, lives: Lives) -> Self {
        Self { access: client.clone(), client, lives, tokens: Cache::new(clock.clone()), verdicts: Cache::new(clock) }
    }

    /// Asks about permissions through another client.
    pub fn with_access_through(mut self, client: Client) -> Self {
        self.access = client;
        self
    }

    /// Who sends a request: `None` when they do not say.
    pub async fn identify(&self, shown: &Shown, headers: &HeaderMap) -> Result<Option<Arc<User>>, Unidentified> {
        if let Some(user) = by_certificate(&shown.certificates) {
            return Ok(Some(Arc::new(user)));
        }
        let Some(token) = bearer(headers) else {
            // Who says something that is not believed has not said nothing.
            return if shown.doubtful { Err(Unidentified) } else { Ok(None) };
        };
        let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref().to_vec();
        if let Some(user) = self.tokens.get(&digest) {
            return Ok(Some(user));
        }
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
            ..TokenReview::default()
        };
        let answer: TokenReview = self.client.post(TOKEN_REVIEWS, &review).await.map_err(|error| {
            tracing::warn!(%error, "a token could not be reviewed");
            Unidentified
        })?;
        let user = Arc::new(reviewed(answer).ok_or(Unidentified)?);
        self.tokens.put(digest, user.clone(), self.lives.token);
        Ok(Some(user))
    }

    /// Whether the user may do what the attributes in `asked` say; who asks is filled in.
    pub async fn allows(&self, user: &User, asked: SubjectAccessReviewSpec) -> Result<bool, client::Error> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(true);
        }
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            ..asked
        };
        let key = serde_json::to_string(&spec).map_err(client::Error::Encode)?;
        if let Some(verdict) = self.verdicts.get(&key) {
            return Ok(verdict);
        }
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer: SubjectAccessReview = self.access.post(ACCESS_REVIEWS, &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.verdicts.put(key, allowed, if allowed { self.lives.allowed } else { self.lives.denied });
        Ok(allowed)
    }
}

/// The identity in a certificate that an authority vouches for.
fn by_certificate(certificates: &[CertificateDer<'static>]) -> Option<User> {
    let subject = pki::Certificate::from_der(certificates.first()?).ok()?.subject;
    let groups = subject.organizations.iter().map(String::as_str);
    (!subject.common_name.is_empty()).then(|| User::new(subject.common_name.clone(), groups))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn reviewed(answer: TokenReview) -> Option<User> {
    let status = answer.status?;
    let user = status.user.filter(|_| status.authenticated == Some(true))?;
    Some(User {
        name: user.username?,
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    })
}
