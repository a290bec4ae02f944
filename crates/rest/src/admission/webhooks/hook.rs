//! A webhook as its configuration describes it, read once per change.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use cel::Declarations;
use machinery::{Value, value};

use super::super::cel::{Uses, declarations};
use super::super::conditions::Conditions;
use super::super::matching::Matching;
use super::server::Server;

/// What the conditions of webhooks may use.
static CONDITIONS: LazyLock<Declarations> = LazyLock::new(|| declarations(Uses { params: false, authorizer: true }));
/// How long a webhook may take that does not say.
const DEFAULT_TIMEOUT: i64 = 10;

/// What counts when a webhook cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The request is refused.
    Fail,
    Ignore,
}

/// The version of reviews that a webhook reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`.
    V1beta1,
}

/// One webhook of a configuration.
#[derive(Debug)]
pub struct Hook {
    pub name: String,
    /// The configuration it is of.
    pub configuration: String,
    /// Configuration, name and which of that name it is: unique, whatever the names.
    pub id: String,
    pub server: Server,
    /// What counts when it cannot be asked.
    pub failure: Failure,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether it can be asked without consequences.
    pub harmless_when_dry: bool,
    /// Whether it wants to be asked again when others changed the object after it.
    pub again: bool,
    /// The version of reviews it reads; none is none that we know.
    pub version: Option<Version>,
    /// What else must hold for it to be asked.
    pub conditions: Conditions,
    /// Which requests it wants to see.
    pub matching: Matching,
}

impl Hook {
    /// The webhooks of a configuration.
    pub fn of(configuration: &Value) -> Vec<Self> {
        let owner = value::text(configuration, "metadata.name");
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let all = value::list(configuration, "webhooks").iter();
        all.map(|tree| {
            let count = seen.entry(value::text(tree, "name")).or_default();
            *count += 1;
            Self::read(tree, owner, *count - 1)
        })
        .collect()
    }

    fn read(tree: &Value, configuration: &str, number: usize) -> Self {
        let name = value::text(tree, "name");
        let version =
            value::list(tree, "admissionReviewVersions").iter().find_map(|version| match version.as_str()? {
                "v1" => Some(Version::V1),
                "v1beta1" => Some(Version::V1beta1),
                _ => None,
            });
        let seconds = value::int(tree, "timeoutSeconds").unwrap_or(DEFAULT_TIMEOUT);
        let failure = if value::text(tree, "failurePolicy") == "Ignore" { Failure::Ignore } else { Failure::Fail };
        Self {
            name: name.to_owned(),
            configuration: configuration.to_owned(),
            id: format!("{configuration}/{name}/{number}"),
            server: Server::read(&tree["clientConfig"]),
            failure,
            timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
            harmless_when_dry: matches!(value::text(tree, "sideEffects"), "None" | "NoneOnDryRun"),
            again: value::text(tree, "reinvocationPolicy") == "IfNeeded",
            version,
            conditions: Conditions::read(tree, &CONDITIONS, failure == Failure::Fail),
            matching: Matching::of_webhook(tree),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::Place;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_configuration_is_read_with_its_defaults() {
        let tree = json!({"metadata": {"name": "c"}, "webhooks": [
            {"name": "h", "admissionReviewVersions": ["v2", "v1beta1", "v1"], "clientConfig": {"url": "https://x"}},
            {"name": "h", "timeoutSeconds": 3, "failurePolicy": "Ignore", "sideEffects": "NoneOnDryRun", "reinvocationPolicy": "IfNeeded",
             "clientConfig": {"service": {"namespace": "n", "name": "s", "path": "/p"}}},
        ]});
        let hooks = Hook::of(&tree);
        assert_eq!((hooks[0].id.as_str(), hooks[1].id.as_str()), ("c/h/0", "c/h/1"));
        assert_eq!((hooks[0].failure, hooks[0].timeout.as_secs(), hooks[0].again), (Failure::Fail, 10, false));
        assert_eq!(hooks[0].version, Some(Version::V1beta1), "the first that is known, in the webhook's order");
        assert!(hooks[1].harmless_when_dry && hooks[1].again && !hooks[0].harmless_when_dry);
        let service =
            Place::Service { namespace: "n".to_owned(), name: "s".to_owned(), port: 443, path: "/p".to_owned() };
        assert_eq!((&hooks[1].server.place, hooks[1].timeout.as_secs()), (&service, 3));
    }
}
