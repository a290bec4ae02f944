//! What a call may say besides its object, and how that is written into a query or a body.

use serde_json::{Value, json};

use crate::path::Query;

/// How `resource_version` is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    Exact,
    /// That state or a later one.
    NotOlderThan,
}

impl VersionMatch {
    const fn text(self) -> &'static str {
        match self {
            Self::Exact => "Exact",
            Self::NotOlderThan => "NotOlderThan",
        }
    }
}

/// Which objects to list. The default is all of them, as of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListParams {
    /// `app=web,tier!=db`; empty selects everything.
    pub label_selector: String,
    /// `spec.nodeName=n1`; empty selects everything.
    pub field_selector: String,
    pub limit: Option<u32>,
    /// The page to continue with: [`List::next`](crate::List::next) of the page before.
    pub next: Option<String>,
    /// The state to read; unset is the latest.
    pub resource_version: Option<String>,
    /// How `resource_version` is meant.
    pub resource_version_match: Option<VersionMatch>,
}

impl ListParams {
    pub(crate) fn query(&self) -> Query {
        Query::default()
            .text("labelSelector", &self.label_selector)
            .text("fieldSelector", &self.field_selector)
            .option("limit", self.limit)
            .option("continue", self.next.as_ref())
            .option("resourceVersion", self.resource_version.as_ref())
            .option("resourceVersionMatch", self.resource_version_match.map(VersionMatch::text))
    }
}

/// Which changes to watch. The default starts with all present objects as `Added`, without bookmarks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchParams {
    pub label_selector: String,
    pub field_selector: String,
    /// Only what happened after this.
    pub resource_version: Option<String>,
    pub bookmarks: bool,
    /// A streaming list: all present objects first, then a bookmark that says so. Implies `bookmarks`.
    pub send_initial_events: bool,
    /// When the server should end the watch.
    pub timeout_seconds: Option<u32>,
}

impl WatchParams {
    pub(crate) fn query(&self) -> Query {
        let streaming = self.send_initial_events;
        Query::default()
            .text("watch", "true")
            .text("labelSelector", &self.label_selector)
            .text("fieldSelector", &self.field_selector)
            .option("resourceVersion", self.resource_version.as_ref())
            .option("allowWatchBookmarks", (self.bookmarks || streaming).then_some("true"))
            .option("sendInitialEvents", streaming.then_some("true"))
            .option("resourceVersionMatch", streaming.then_some(VersionMatch::NotOlderThan.text()))
            .option("timeoutSeconds", self.timeout_seconds)
    }
}

/// What becomes of the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

impl Propagation {
    const fn text(self) -> &'static str {
        match self {
            Self::Orphan => "Orphan",
            Self::Background => "Background",
            Self::Foreground => "Foreground",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds the object gets to end; unset is its own choice.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of its dependents; unset is the kind's default.
    pub propagation_policy: Option<Propagation>,
    /// Only if the object is still this one.
    pub uid: Option<String>,
    /// Only if the object is still in this state.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(policy) = self.propagation_policy {
            body["propagationPolicy"] = json!(policy.text());
        }
        if let Some(uid) = &self.uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = &self.resource_version {
            body["preconditions"]["resourceVersion"] = json!(version);
        }
        body
    }
}

/// A change to an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// RFC 6902: a list of operations.
    Json(Value),
    /// RFC 7396: a partial object.
    Merge(Value),
    /// A partial object whose lists merge by key.
    Strategic(Value),
    Apply {
        /// Who owns the fields from now on.
        manager: String,
        /// Whether to take fields from other managers.
        force: bool,
        object: Value,
    },
}

impl Patch {
    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Self::Json(_) => "application/json-patch+json",
            Self::Merge(_) => "application/merge-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
            Self::Apply { .. } => "application/apply-patch+yaml",
        }
    }

    pub(crate) fn query(&self) -> Query {
        match self {
            Self::Apply { manager, force, .. } => {
                Query::default().text("fieldManager", manager).option("force", force.then_some("true"))
            }
            _ => Query::default(),
        }
    }

    pub(crate) fn body(&self) -> &Value {
        match self {
            Self::Json(body) | Self::Merge(body) | Self::Strategic(body) | Self::Apply { object: body, .. } => body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_say_only_what_was_asked() {
        assert_eq!(ListParams::default().query().to_string(), "");
        let list = ListParams {
            label_selector: "app in (a,b)".to_owned(),
            limit: Some(5),
            resource_version: Some("0".to_owned()),
            resource_version_match: Some(VersionMatch::NotOlderThan),
            ..ListParams::default()
        };
        assert_eq!(
            list.query().to_string(),
            "?labelSelector=app%20in%20%28a%2Cb%29&limit=5&resourceVersion=0&resourceVersionMatch=NotOlderThan"
        );
        let watch = WatchParams { send_initial_events: true, ..WatchParams::default() };
        assert_eq!(
            watch.query().to_string(),
            "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        );
    }

    #[test]
    fn delete_options_carry_preconditions() {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            propagation_policy: Some(Propagation::Foreground),
            uid: Some("u".to_owned()),
            ..DeleteOptions::default()
        };
        assert_eq!(
            options.body(),
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
                   "propagationPolicy": "Foreground", "preconditions": {"uid": "u"}})
        );
    }
}
