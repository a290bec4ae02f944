//! Who asks, and whether they may: both are the API server's to say.
//!
//! A client certificate that verified against the cluster's authority is an identity by itself; a bearer token becomes one
//! by a TokenReview. What the identity may do is asked by a SubjectAccessReview. Nobody is anonymous here.

mod attributes;

use std::sync::Arc;
use std::time::Duration;

use client::Client;
use http::{HeaderMap, Method};
use informer::Clock;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use machinery::rest::User;
use serving::{Lives, Reviewer, Shown, Unidentified};

use attributes::Attributes;

/// How long a token that was good is taken to be good, a permission to hold, and a refusal.
const LIVES: Lives =
    Lives { token: Duration::from_secs(120), allowed: Duration::from_secs(300), denied: Duration::from_secs(30) };

/// Why a request goes no further.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("Unauthorized")]
    Unauthorized,
    /// Somebody who may not.
    #[error("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{}])\n", .subresources.join(" "))]
    Forbidden {
        user: String,
        verb: &'static str,
        /// On which of the node's subresources.
        subresources: Vec<&'static str>,
    },
    /// The API server could not be asked.
    #[error("Authorization error (user={user}, verb={verb}, resource=nodes, subresource={subresource})")]
    Unknown {
        user: String,
        verb: &'static str,
        /// On which of the node's subresources.
        subresource: &'static str,
    },
}

impl From<Unidentified> for Refusal {
    fn from(_: Unidentified) -> Self {
        Self::Unauthorized
    }
}

/// The two questions, about this node.
pub struct Auth {
    node: String,
    reviewer: Reviewer,
}

impl Auth {
    /// For the API of this node.
    pub fn new(node: String, client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { node, reviewer: Reviewer::new(client, clock, LIVES) }
    }

    /// Lets a request pass, or says why not.
    pub async fn check(
        &self,
        shown: &Shown,
        headers: &HeaderMap,
        method: &Method,
        path: &str,
    ) -> Result<Arc<User>, Refusal> {
        let user = self.reviewer.identify(shown, headers).await?.ok_or(Refusal::Unauthorized)?;
        self.authorize(&user, &Attributes::of(method, path)).await?;
        Ok(user)
    }

    async fn authorize(&self, user: &User, wanted: &Attributes) -> Result<(), Refusal> {
        for subresource in &wanted.subresources {
            let allowed = self.reviewer.allows(user, self.asked(wanted.verb, subresource)).await;
            let allowed = allowed.map_err(|error| {
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

    fn asked(&self, verb: &str, subresource: &str) -> SubjectAccessReviewSpec {
        SubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
                name: Some(self.node.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;
    use http::StatusCode;
    use http::header::AUTHORIZATION;
    use machinery::rest::{Body, Handler, Payload, Request, Response};
    use parking_lot::Mutex;
    use rustls::pki_types::CertificateDer;
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
                review["status"] = if path == "/apis/authentication.k8s.io/v1/tokenreviews" {
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

    fn certificate(name: &str, groups: &[&str]) -> Shown {
        let key = pki::PrivateKey::generate().unwrap();
        let now = jiff::Timestamp::now();
        let day = Duration::from_secs(86_400);
        let authority = pki::Authority::new("ca", pki::PrivateKey::generate().unwrap(), now, day).unwrap();
        let leaf = pki::Leaf::client(pki::Subject::new(name, groups.iter().copied()), day);
        let certificate = authority.issue(&leaf, &key.public(), now).unwrap();
        let certificates = [CertificateDer::from(certificate.to_der().to_vec())].into();
        Shown { certificates, doubtful: false }
    }

    #[tokio::test]
    async fn certificates_and_tokens_are_identities_and_nothing_else_is() {
        let (reviews, auth) = auth();
        let check = async |shown: &Shown, header: Option<&str>, path: &str| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().unwrap());
            }
            let checked = auth.check(shown, &headers, &Method::GET, path).await;
            checked.map(|user| user.name.clone()).map_err(|refusal| refusal.to_string())
        };
        let unauthorized = || Err("Unauthorized".to_owned());
        let nothing = Shown::default();
        assert_eq!(check(&nothing, None, "/pods").await, unauthorized());
        assert_eq!(check(&nothing, Some("Basic abc"), "/pods").await, unauthorized());
        assert_eq!(check(&nothing, Some("Bearer bad"), "/metrics").await, unauthorized());
        assert_eq!(check(&nothing, Some("Bearer good"), "/metrics").await, Ok("scraper".to_owned()));
        let refused = check(&nothing, Some("Bearer good"), "/pods").await;
        let message = "Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
        assert_eq!(refused, Err(message.to_owned()));
        let api_server = certificate("kube-apiserver-kubelet-client", &["system:masters"]);
        let before = reviews.asked.lock().len();
        assert_eq!(check(&api_server, None, "/exec/a/b/c").await, Ok("kube-apiserver-kubelet-client".to_owned()));
        assert_eq!(reviews.asked.lock().len(), before);
        let doubtful = Shown { doubtful: true, ..Shown::default() };
        assert_eq!(check(&doubtful, None, "/metrics").await, unauthorized());
        assert_eq!(check(&doubtful, Some("Bearer good"), "/metrics").await, Ok("scraper".to_owned()));
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
            assert!(auth.check(&Shown::default(), &headers, &Method::GET, "/metrics").await.is_ok());
        }
        assert_eq!(reviews.asked.lock().len(), 2);
    }
}
