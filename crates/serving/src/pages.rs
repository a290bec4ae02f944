//! What a component shows, and the door before it.

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReviewSpec};
use machinery::ApiError;
use machinery::gvk::GroupResource;
use machinery::query::Query;
use machinery::rest::User;
use rules::zpages::{Component, Page};
use serde_json::Value;

use crate::answer::{self, Answer, finished, refusal};
use crate::health::{Check, Probes};
use crate::listener::{Service, Shown};
use crate::review::Reviewer;

pub type Figures = Arc<dyn Fn(&mut String) + Send + Sync>;

/// What there is to see.
pub struct Pages {
    /// The checks of `/healthz`; a ping where there are none.
    pub healthz: Vec<Check>,
    /// The checks of `/livez`.
    pub livez: Vec<Check>,
    /// The checks of `/readyz`.
    pub readyz: Vec<Check>,
    /// Writes the figures of `/metrics`.
    pub metrics: Figures,
    /// Writes what grows with the number of pods, for `/metrics/resources`. Nothing is there without.
    pub resources: Option<Figures>,
    /// The configuration in force, for `/configz`: a document per name. Nothing is there without.
    pub configz: Option<Value>,
    /// What it says of itself at `/statusz` and `/flagz`; the paths are added here.
    pub component: Component,
}

/// The pages, for whoever may see them.
pub(crate) struct Guarded {
    reviewer: Reviewer,
    always_allowed: Vec<String>,
    probes: Probes,
    metrics: Figures,
    resources: Option<Figures>,
    configz: Option<Value>,
    component: Component,
}

impl Guarded {
    pub(crate) fn new(reviewer: Reviewer, always_allowed: Vec<String>, pages: Pages) -> Self {
        let Pages { healthz, livez, readyz, metrics, resources, configz, mut component } = pages;
        let probes = Probes::new(healthz, livez, readyz);
        let always = ["/healthz", "/livez", "/readyz", "/metrics", "/metrics/slis", "/statusz", "/flagz"];
        component.paths = always.into_iter().chain(configz.as_ref().map(|_| "/configz")).map(str::to_owned).collect();
        Self { reviewer, always_allowed, probes, metrics, resources, configz, component }
    }

    /// Lets a request pass, or says why not.
    async fn check(&self, shown: &Shown, request: &Request<Incoming>) -> Result<(), ApiError> {
        let user = self.reviewer.identify(shown, request.headers()).await;
        let user = user.map_err(|_| ApiError::unauthorized())?;
        let user = user.unwrap_or_else(|| Arc::new(anonymous()));
        let (path, verb) = (request.uri().path(), request.method().as_str().to_ascii_lowercase());
        if is_always_allowed(&self.always_allowed, path) {
            return Ok(());
        }
        let asked = SubjectAccessReviewSpec {
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some(verb.clone()),
            }),
            ..SubjectAccessReviewSpec::default()
        };
        match self.reviewer.allows(&user, asked).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let why = format!("User {:?} cannot {verb} path {path:?}", user.name);
                Err(ApiError::forbidden(&GroupResource::new("", ""), "", &harmless(&why)))
            }
            Err(error) => {
                tracing::warn!(user = user.name, %error, "access could not be reviewed");
                Err(ApiError::internal("access could not be reviewed"))
            }
        }
    }

    fn page(&self, request: &Request<Incoming>) -> Option<Answer> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Some(answer::text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n"));
        }
        Some(match request.uri().path() {
            "/metrics" => answer::figures(request.headers(), |page| (self.metrics)(page)),
            "/metrics/resources" => answer::figures(request.headers(), &**self.resources.as_ref()?),
            "/metrics/slis" => answer::figures(request.headers(), |page| page.push_str(&self.probes.figures())),
            "/configz" => answer::json(self.configz.as_ref()?),
            path if Page::at(path).is_some() => answer::about(&self.component, path, request.headers())?,
            path => self.probes.answer(path, &Query::parse(request.uri().query().unwrap_or_default()))?,
        })
    }
}

impl Service for Guarded {
    async fn answer(&self, shown: &Shown, request: Request<Incoming>) -> Answer {
        finished(match self.check(shown, &request).await {
            Err(error) => refusal(&error),
            Ok(()) => {
                let none = || answer::text(StatusCode::NOT_FOUND, "404 page not found\n");
                self.page(&request).unwrap_or_else(none)
            }
        })
    }
}

/// Who does not say who they are.
fn anonymous() -> User {
    let groups = vec!["system:unauthenticated".to_owned()];
    User { name: "system:anonymous".to_owned(), groups, ..User::default() }
}

/// Whether a path is listed, or below one that ends in `*`.
fn is_always_allowed(listed: &[String], path: &str) -> bool {
    let path = path.trim_start_matches('/');
    listed.iter().any(|entry| match entry.trim_start_matches('/').strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => entry.trim_start_matches('/') == path,
    })
}

/// Names come from the client and may end in somebody's browser.
fn harmless(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_without_permission_are_those_listed_and_below_stars() {
        let listed: Vec<String> = ["/healthz", "readyz/", "/debug/*"].map(str::to_owned).into();
        for (path, allowed) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/debug/x/y", true),
            ("/debug", false),
            ("/readyz/", true),
            ("/readyz", false),
            ("/metrics", false),
        ] {
            assert_eq!(is_always_allowed(&listed, path), allowed, "{path}");
        }
    }

    #[test]
    fn queries_are_read_as_browsers_write_them() {
        let expected = [("exclude", "a b"), ("exclude", "c/d"), ("verbose", "")];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(Query::parse("exclude=a+b&exclude=c%2Fd&&verbose").pairs(), expected);
    }
}
