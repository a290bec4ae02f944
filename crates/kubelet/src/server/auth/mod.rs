//! Who asks, and whether they may: both are the API server's to say.
//!
//! A client certificate that verified against the cluster's authority is an identity by itself; a bearer token becomes one
//! by a TokenReview. What the identity may do is asked by a SubjectAccessReview. Nobody is anonymous here.

mod attributes;
mod cache;

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use informer::Clock;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use machinery::rest::User;
use rustls::pki_types::CertificateDer;

use attributes::Attributes;
use cache::Cache;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// How long a token that was good is taken to be good.
const TOKEN_LIFE: Duration = Duration::from_secs(120);
/// How long a permission is taken to hold, and a refusal.
const ALLOWED_LIFE: Duration = Duration::from_secs(300);
const DENIED_LIFE: Duration = Duration::from_secs(30);
/// The API server's own group; no authorizer is asked about it there either.
const MASTERS: &str = "system:masters";

/// Why a request goes no further.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Nobody we know.
    #[error("Unauthorized")]
    Unauthorized,
    /// Somebody who may not.
    #[error("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{}])\n", .subresources.join(" "))]
    Forbidden {
        /// Who.
        user: String,
        /// What.
        verb: &'static str,
        /// On which of the node's subresources.
        subresources: Vec<&'static str>,
    },
    /// The API server could not be asked.
    #[error("Authorization error (user={user}, verb={verb}, resource=nodes, subresource={subresource})")]
    Unknown {
        /// Who.
        user: String,
        /// What.
        verb: &'static str,
        /// On which of the node's subresources.
        subresource: &'static str,
    },
}

/// A token is a secret: only its digest is kept.
type Digest = Vec<u8>;

/// The two questions, with what was answered lately.
pub struct Auth {
    node: String,
    client: Client,
    tokens: Cache<Digest, Arc<User>>,
    /// By the whole question, encoded.
    verdicts: Cache<String, bool>,
}

impl Auth {
    /// For the API of this node.
    pub fn new(node: String, client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { node, client, tokens: Cache::new(clock.clone()), verdicts: Cache::new(clock) }
    }

    /// Lets a request pass, or says why not.
    pub async fn check(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
        method: &Method,
        path: &str,
    ) -> Result<Arc<User>, Refusal> {
        let user = match by_certificate(certificates) {
            Some(user) => Arc::new(user),
            None => self.by_token(bearer(headers).ok_or(Refusal::Unauthorized)?).await?,
        };
        self.authorize(&user, &Attributes::of(method, path)).await?;
        Ok(user)
    }

    async fn by_token(&self, token: &str) -> Result<Arc<User>, Refusal> {
        let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref().to_vec();
        if let Some(user) = self.tokens.get(&digest) {
            return Ok(user);
        }
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
            ..TokenReview::default()
        };
        let answer: TokenReview = self.client.post(TOKEN_REVIEWS, &review).await.map_err(|error| {
            tracing::warn!(%error, "a token could not be reviewed");
            Refusal::Unauthorized
        })?;
        let user = Arc::new(reviewed(answer).ok_or(Refusal::Unauthorized)?);
        self.tokens.put(digest, user.clone(), TOKEN_LIFE);
        Ok(user)
    }

    async fn authorize(&self, user: &User, wanted: &Attributes) -> Result<(), Refusal> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        for subresource in &wanted.subresources {
            let allowed = self.allows(user, wanted.verb, subresource).await.map_err(|error| {
                tracing::warn!(user = user.name, %error, "access could not be reviewed");
                Refusal::Unknown { user: user.name.clone(), verb: wanted.verb, subresource }
            })?;
            if allowed {
                return Ok(());
            }
        }
        Err(Refusal::Forbidden {
            user: user.name.clone(),
            verb: wanted.verb,
            subresources: wanted.subresources.clone(),
        })
    }

    async fn allows(&self, user: &User, verb: &str, subresource: &str) -> Result<bool, client::Error> {
        let review = access_review(user, verb, subresource, &self.node);
        let key = serde_json::to_string(&review.spec).map_err(client::Error::Encode)?;
        if let Some(verdict) = self.verdicts.get(&key) {
            return Ok(verdict);
        }
        let answer: SubjectAccessReview = self.client.post(ACCESS_REVIEWS, &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.verdicts.put(key, allowed, if allowed { ALLOWED_LIFE } else { DENIED_LIFE });
        Ok(allowed)
    }
}

/// The identity in a certificate that TLS has verified already.
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

fn access_review(user: &User, verb: &str, subresource: &str, node: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
                name: Some(node.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;
    use http::StatusCode;
    use machinery::rest::{Body, Handler, Payload, Request, Response};
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    /// An API server that knows one token, and whom it lets read metrics.
    #[derive(Default)]
    struct Reviews {
        asked: Mutex<Vec<Value>>,
    }

    impl Handler for Reviews {
        fn handle(&self, request: Request) -> BoxFuture<'_, Response> {
            Box::pin(async move {
                let path = request.uri().path().to_owned();
                let mut review = match request.into_body() {
                    Body::Value(value) => value,
                    Body::Bytes(bytes) => serde_json::from_slice(&bytes).unwrap(),
                    _ => panic!("a review has a body"),
                };
                self.asked.lock().push(review.clone());
                review["status"] = if path == TOKEN_REVIEWS {
                    let good = review["spec"]["token"] == "good";
                    json!({"authenticated": good, "user": {"username": "scraper", "groups": ["system:authenticated"]}})
                } else {
                    json!({"allowed": review["spec"]["resourceAttributes"]["subresource"] == "metrics"})
                };
                let mut response = Response::new(Payload::Value(review));
                *response.status_mut() = StatusCode::CREATED;
                response
            })
        }
    }

    fn auth() -> (Arc<Reviews>, Auth) {
        let reviews = Arc::new(Reviews::default());
        let client = Client::in_process(reviews.clone(), User::new("system:node:n", ["system:nodes"]));
        (reviews, Auth::new("n".into(), client, informer::clock::Real::shared()))
    }

    fn certificate(name: &str, groups: &[&str]) -> Vec<CertificateDer<'static>> {
        let key = pki::PrivateKey::generate().unwrap();
        let now = jiff::Timestamp::now();
        let day = Duration::from_secs(86_400);
        let authority = pki::Authority::new("ca", pki::PrivateKey::generate().unwrap(), now, day).unwrap();
        let leaf = pki::Leaf::client(pki::Subject::new(name, groups.iter().copied()), day);
        let certificate = authority.issue(&leaf, &key.public(), now).unwrap();
        vec![CertificateDer::from(certificate.to_der().to_vec())]
    }

    #[tokio::test]
    async fn certificates_and_tokens_are_identities_and_nothing_else_is() {
        let (reviews, auth) = auth();
        let check = async |certificates: &[CertificateDer<'static>], header: Option<&str>, path: &str| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().unwrap());
            }
            let checked = auth.check(certificates, &headers, &Method::GET, path).await;
            checked.map(|user| user.name.clone()).map_err(|refusal| refusal.to_string())
        };
        let unauthorized = || Err("Unauthorized".to_owned());
        assert_eq!(check(&[], None, "/pods").await, unauthorized());
        assert_eq!(check(&[], Some("Basic abc"), "/pods").await, unauthorized());
        assert_eq!(check(&[], Some("Bearer bad"), "/metrics").await, unauthorized());
        assert_eq!(check(&[], Some("Bearer good"), "/metrics").await, Ok("scraper".to_owned()));
        let refused = check(&[], Some("Bearer good"), "/pods").await;
        let message = "Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
        assert_eq!(refused, Err(message.to_owned()));
        let api_server = certificate("kube-apiserver-kubelet-client", &[MASTERS]);
        let before = reviews.asked.lock().len();
        assert_eq!(check(&api_server, None, "/exec/a/b/c").await, Ok("kube-apiserver-kubelet-client".to_owned()));
        assert_eq!(reviews.asked.lock().len(), before);
        let nobody = certificate("", &["system:masters"]);
        assert_eq!(check(&nobody, None, "/pods").await, unauthorized());
        let other = certificate("alice", &["dev"]);
        assert_eq!(check(&other, None, "/metrics").await, Ok("alice".to_owned()));
        let asked = reviews.asked.lock().last().cloned().unwrap();
        assert_eq!(asked["spec"]["resourceAttributes"]["name"], "n");
        assert_eq!(asked["spec"]["groups"], json!(["dev", "system:authenticated"]));
    }

    #[tokio::test]
    async fn the_same_question_is_asked_once() {
        let (reviews, auth) = auth();
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, "Bearer good".parse().unwrap());
        for _ in 0..3 {
            assert!(auth.check(&[], &headers, &Method::GET, "/metrics").await.is_ok());
        }
        assert_eq!(reviews.asked.lock().len(), 2);
    }
}
