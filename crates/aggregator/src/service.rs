//! An APIService, as far as the aggregator needs to know it, and the order that discovery has them in.

use std::cmp::Ordering;

use apiextensions::definition::compare_versions;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::{Value, value};

use crate::priorities::Priority;

/// The only condition there is.
pub(crate) const AVAILABLE: &str = "Available";

/// Who answers for a version of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiService {
    /// `VERSION.GROUP`.
    pub name: String,
    /// The group; empty for core.
    pub group: String,
    pub version: String,
    /// Its place in discovery.
    pub priority: Priority,
    /// The Service that answers; none for this very server.
    pub remote: Option<Reference>,
    /// Whether its status says that it can be reached.
    pub available: bool,
}

/// The Service of a group version that another server answers for, and how that server is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub namespace: String,
    pub name: String,
    pub port: u16,
    /// The authorities that vouch for the server, in PEM; none are those of the system.
    pub authorities: Option<String>,
    /// Whether anybody is taken for it.
    pub insecure: bool,
}

impl Reference {
    /// The name that its certificate must have.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

impl ApiService {
    pub fn read(object: &Value) -> Self {
        let text = |path: &str| value::text(object, path).to_owned();
        let service = value::at(object, "spec.service").filter(|service| service.is_object());
        let bundle = value::text(object, "spec.caBundle");
        let authorities = (!bundle.is_empty()).then(|| STANDARD.decode(bundle).unwrap_or_default());
        let remote = service.map(|service| Reference {
            namespace: value::text(service, "namespace").to_owned(),
            name: value::text(service, "name").to_owned(),
            port: value::int(service, "port").and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            authorities: authorities.map(|pem| String::from_utf8_lossy(&pem).into_owned()),
            insecure: value::flag(object, "spec.insecureSkipTLSVerify"),
        });
        let number = |path: &str| value::int(object, path).unwrap_or_default();
        Self {
            name: text("metadata.name"),
            group: text("spec.group"),
            version: text("spec.version"),
            priority: Priority { group: number("spec.groupPriorityMinimum"), version: number("spec.versionPriority") },
            remote,
            available: condition(object).is_some_and(|condition| value::text(condition, "status") == "True"),
        }
    }
}

/// What an object's status says of its availability.
pub(crate) fn condition(object: &Value) -> Option<&Value> {
    value::list(object, "status.conditions").iter().find(|condition| value::text(condition, "type") == AVAILABLE)
}

/// Orders the versions of a group: by priority, and then the most mature first.
pub fn by_version(a: (&str, i64), b: (&str, i64)) -> Ordering {
    b.1.cmp(&a.1).then_with(|| compare_versions(b.0, a.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_api_service_is_read_with_its_defaults() {
        let local = json!({"metadata": {"name": "v1.apps"}, "spec": {"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15},
            "status": {"conditions": [{"type": "Available", "status": "True"}]}});
        let read = ApiService::read(&local);
        assert!(read.available && read.remote.is_none());
        assert_eq!((read.priority.group, read.priority.version), (17800, 15));
        let remote = json!({"metadata": {"name": "v1.g"}, "spec": {"group": "g", "version": "v1", "caBundle": STANDARD.encode("PEM"),
            "service": {"namespace": "n", "name": "s"}}});
        let read = ApiService::read(&remote);
        let reference = read.remote.expect("a Service");
        assert_eq!((reference.port, reference.authorities.as_deref()), (443, Some("PEM")));
        assert_eq!(reference.server_name(), "s.n.svc");
        assert!(!read.available, "nobody has said so");
    }

    #[test]
    fn versions_are_ordered_by_priority_and_then_by_maturity() {
        let mut versions = [("v1beta1", 9), ("v1", 9), ("v1alpha1", 20), ("v2", 9)];
        versions.sort_by(|a, b| by_version(*a, *b));
        assert_eq!(versions.map(|(name, _)| name), ["v1alpha1", "v2", "v1", "v1beta1"]);
    }
}
