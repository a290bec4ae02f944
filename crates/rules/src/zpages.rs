//! `/statusz` and `/flagz`: what every component says of itself, to people as a text, to programs that name the kind as an object.
//!
//! The text may change from version to version, as upstream warns; the object is `config.k8s.io/v1beta1`, or v1alpha1, which is the same and
//! deprecated. Whoever serves them has asked before whether the client may see them.

use jiff::Timestamp;
use machinery::accept::clauses;
use machinery::codec::{cbor, yaml};
use machinery::status::Reason;
use machinery::{ApiError, Value};
use serde_json::json;

use crate::names::VERSION;

/// What stands for a flag's value that nobody is to read.
pub const CLASSIFIED: &str = "CLASSIFIED";

/// A component as it describes itself.
#[derive(Debug, Clone, Default)]
pub struct Component {
    /// Upstream's name of it, such as `kube-scheduler`.
    pub name: String,
    /// Since when the process runs.
    pub started: Timestamp,
    /// Every path that it serves.
    pub paths: Vec<String>,
    /// What it was started with, each flag by its name without dashes.
    pub flags: Vec<(String, String)>,
    /// The version that it says it has, where it was told one.
    pub reported_version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Statusz,
    Flagz,
}

impl Page {
    /// The page at a path.
    pub fn at(path: &str) -> Option<Self> {
        match path {
            "/statusz" => Some(Self::Statusz),
            "/flagz" => Some(Self::Flagz),
            _ => None,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Statusz => "statusz",
            Self::Flagz => "flagz",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Statusz => "Statusz",
            Self::Flagz => "Flagz",
        }
    }
}

/// A page in the form that the client wants.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub content_type: &'static str,
    pub body: Vec<u8>,
    /// What the client should know, as the value of a `Warning` header.
    pub warning: Option<String>,
}

/// The forms of objects, in the order in which a star takes them.
const OBJECTS: [&str; 3] = ["application/json", "application/yaml", "application/cbor"];
const TEXT: &str = "text/plain";
/// CBOR is served and not named, as by upstream where it is not switched on.
const ACCEPTED: &str = "application/json, application/yaml, text/plain";

impl Component {
    /// The page for a client that takes this, at a time.
    pub fn page(&self, page: Page, accept: &str, now: Timestamp) -> Result<Answer, ApiError> {
        let Some((media, version)) = form(page, accept)? else {
            let body = match page {
                Page::Statusz => self.status_text(now),
                Page::Flagz => self.flags_text(),
            };
            return Ok(Answer { content_type: "text/plain; charset=utf-8", body: body.into_bytes(), warning: None });
        };
        let object = self.object(page, version, now);
        let body = match media {
            "application/yaml" => yaml::encode(&object).into_bytes(),
            "application/cbor" => cbor::encode(&object),
            _ => object.to_string().into_bytes(),
        };
        let deprecated = || {
            let word = page.word();
            format!("299 - \"This version of the {word} endpoint is deprecated. Please use a newer version.\"")
        };
        Ok(Answer { content_type: media, body, warning: (version == "v1alpha1").then(deprecated) })
    }

    fn object(&self, page: Page, version: &str, now: Timestamp) -> Value {
        let mut object = json!({
            "kind": page.kind(), "apiVersion": format!("config.k8s.io/{version}"), "metadata": {"name": self.name},
        });
        match page {
            Page::Statusz => {
                object["startTime"] = self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
                object["uptimeSeconds"] = self.up(now).into();
                // It has to be there, and Go is not.
                object["goVersion"] = "".into();
                object["binaryVersion"] = short_version().into();
                object["emulationVersion"] = short_version().into();
                object["paths"] = self.folders().into();
            }
            Page::Flagz => {
                object["flags"] =
                    self.flags.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
            }
        }
        object
    }

    fn status_text(&self, now: Timestamp) -> String {
        let up = self.up(now);
        let started = self.started.strftime("%a %b %e %H:%M:%S UTC %Y");
        let (hours, minutes, seconds, version) = (up / 3600, up / 60 % 60, up % 60, short_version());
        let mut text = self.head(Page::Statusz);
        text.push_str(&format!(
            "\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nGo version: \nBinary version: {version}\n\
             Emulation version: {version}\nPaths: {}\n",
            self.folders().join(" ")
        ));
        text
    }

    fn flags_text(&self) -> String {
        let mut lines: Vec<String> = self.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        lines.sort();
        self.head(Page::Flagz) + &lines.concat()
    }

    fn head(&self, page: Page) -> String {
        let (name, page) = (&self.name, page.word());
        format!(
            "\n{name} {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and \
             is for debugging purposes only.\n"
        )
    }

    fn up(&self, now: Timestamp) -> i64 {
        now.duration_since(self.started).as_secs().max(0)
    }

    /// The first part of each path, but for those that are the API itself.
    fn folders(&self) -> Vec<String> {
        let first = |path: &String| path.strip_prefix('/')?.split('/').next().map(|folder| format!("/{folder}"));
        let api = |folder: &String| {
            matches!(folder.as_str(), "/" | "/apis" | "/api" | "/openid" | "/openapi" | "/.well-known")
        };
        let mut folders: Vec<String> = self.paths.iter().filter_map(first).filter(|folder| !api(folder)).collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

/// The form of an object and its version; none for the text; an error for what cannot be had.
fn form(page: Page, accept: &str) -> Result<Option<(&'static str, &'static str)>, ApiError> {
    if accept.trim().is_empty() {
        return Ok(None);
    }
    for clause in clauses(accept) {
        let named = ["as", "g", "v"].map(|name| clause.parameter(name));
        let version = match named {
            [kind, "config.k8s.io", "v1beta1"] if kind == page.kind() => Some("v1beta1"),
            [kind, "config.k8s.io", "v1alpha1"] if kind == page.kind() => Some("v1alpha1"),
            _ => None,
        };
        if let (Some(version), Some(media)) = (version, OBJECTS.into_iter().find(|media| clause.takes(media))) {
            return Ok(Some((media, version)));
        }
        if named == ["", "", ""] && clause.takes(TEXT) {
            return Ok(None);
        }
    }
    Err(ApiError::new(Reason::NotAcceptable, format!("only the following media types are accepted: {ACCEPTED}")))
}

/// `1.37` of `v1.37.0`.
fn short_version() -> String {
    VERSION.trim_start_matches('v').split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component() -> Component {
        Component {
            name: "kube-scheduler".to_owned(),
            started: "2026-06-01T08:00:05Z".parse().expect("a time"),
            paths: ["/api/v1", "/healthz/ping", "/healthz", "/metrics", "/statusz", "/"].map(str::to_owned).into(),
            flags: vec![("v".to_owned(), "2".to_owned()), ("leader-elect".to_owned(), "true".to_owned())],
            reported_version: None,
        }
    }

    fn page(page: Page, accept: &str) -> Result<(String, &'static str, Option<String>), ApiError> {
        let now = "2026-06-02T09:01:02Z".parse().expect("a time");
        let answer = component().page(page, accept, now)?;
        Ok((String::from_utf8(answer.body).expect("a text"), answer.content_type, answer.warning))
    }

    #[test]
    fn people_get_a_text() {
        let warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is \
                       for debugging purposes only.\n";
        for accept in ["", " ", "*/*", "text/plain", "text/*;q=0.5, application/json", "text/html, */*;q=0.8"] {
            let (status, content, _) = page(Page::Statusz, accept).expect("a page");
            assert_eq!(content, "text/plain; charset=utf-8", "{accept}");
            assert_eq!(
                status,
                format!(
                    "\nkube-scheduler statusz\n{warning}\nStarted: Mon Jun  1 08:00:05 UTC 2026\nUp: 25 hr 00 min 57 sec\nGo version: \n\
                     Binary version: 1.37\nEmulation version: 1.37\nPaths: /healthz /metrics /statusz\n"
                )
            );
        }
        let (flags, ..) = page(Page::Flagz, "*/*").expect("a page");
        assert_eq!(flags, format!("\nkube-scheduler flagz\n{warning}leader-elect=true\nv=2\n"));
    }

    #[test]
    fn programs_get_the_kind_that_they_name() {
        let accept = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        let (body, content, warning) = page(Page::Statusz, accept).expect("a page");
        assert_eq!((content, warning), ("application/json", None));
        assert_eq!(
            serde_json::from_str::<Value>(&body).expect("JSON"),
            json!({
                "kind": "Statusz", "apiVersion": "config.k8s.io/v1beta1", "metadata": {"name": "kube-scheduler"},
                "startTime": "2026-06-01T08:00:05Z", "uptimeSeconds": 90_057, "goVersion": "", "binaryVersion": "1.37",
                "emulationVersion": "1.37", "paths": ["/healthz", "/metrics", "/statusz"],
            })
        );
        let (body, content, warning) =
            page(Page::Flagz, "application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz").expect("a page");
        assert_eq!(content, "application/yaml");
        assert!(
            body.contains("apiVersion: config.k8s.io/v1alpha1\nflags:\n  leader-elect: \"true\"\n  v: \"2\"\n"),
            "{body}"
        );
        let expected = "299 - \"This version of the flagz endpoint is deprecated. Please use a newer version.\"";
        assert_eq!(warning.as_deref(), Some(expected));
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        let refused = "only the following media types are accepted: application/json, application/yaml, text/plain";
        for accept in [
            "application/json",
            "application/vnd.kubernetes.protobuf",
            "application/json;v=v1;g=config.k8s.io;as=Statusz",
            "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
            "text/plain;v=v1beta1;g=config.k8s.io;as=Statusz",
        ] {
            let error = page(Page::Statusz, accept).expect_err(accept);
            assert_eq!((error.code, error.message.as_str()), (406, refused), "{accept}");
        }
    }
}
