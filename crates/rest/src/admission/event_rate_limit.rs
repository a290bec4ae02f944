//! EventRateLimit: events come only so fast, from the whole cluster, a namespace, a user, or about one object.

use std::collections::HashMap;

use machinery::status::{ApiError, Reason};
use machinery::{Value, value};
use parking_lot::Mutex;

use super::{Operation, Request};
use crate::verbs::Api;

/// How many keys a limit tells apart when it does not say.
const DEFAULT_KEYS: usize = 4096;

/// What a limit counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Server,
    Namespace,
    User,
    /// Each source and object of events.
    SourceAndObject,
}

impl Scope {
    const ALL: [Self; 4] = [Self::Server, Self::Namespace, Self::User, Self::SourceAndObject];

    const fn name(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Namespace => "Namespace",
            Self::User => "User",
            Self::SourceAndObject => "SourceAndObject",
        }
    }

    fn key(self, request: &Request<'_>, event: &Value) -> String {
        match self {
            Self::Server => String::new(),
            Self::Namespace => request.info.namespace.clone(),
            Self::User => request.user.name.clone(),
            Self::SourceAndObject => [
                "source.component",
                "source.host",
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
            ]
            .iter()
            .map(|path| value::text(event, path))
            .collect(),
        }
    }
}

/// One limit, as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    scope: Scope,
    per_second: u32,
    burst: u32,
    keys: usize,
}

impl Limit {
    /// Reads the plug-in's configuration.
    pub fn read_all(tree: &Value) -> Result<Vec<Self>, String> {
        let limits = value::list(tree, "limits");
        if limits.is_empty() {
            return Err("limits: Invalid value: null: must not be empty".to_owned());
        }
        limits.iter().enumerate().map(|(at, tree)| Self::read(at, tree)).collect()
    }

    fn read(at: usize, tree: &Value) -> Result<Self, String> {
        let kind = value::text(tree, "type");
        let scope = Scope::ALL.into_iter().find(|scope| scope.name() == kind);
        let positive = |key: &str| {
            let given = value::int(tree, key).unwrap_or(0);
            u32::try_from(given)
                .ok()
                .filter(|given| *given > 0)
                .ok_or_else(|| format!("limits[{at}].{key}: Invalid value: {given}: must be positive"))
        };
        let keys = value::int(tree, "cacheSize").unwrap_or(0);
        Ok(Self {
            scope: scope.ok_or_else(|| format!("limits[{at}].type: Unsupported value: {kind:?}"))?,
            burst: positive("burst")?,
            per_second: positive("qps")?,
            keys: match usize::try_from(keys) {
                Ok(0) => DEFAULT_KEYS,
                Ok(keys) => keys,
                Err(_) => return Err(format!("limits[{at}].cacheSize: Invalid value: {keys}: must not be negative")),
            },
        })
    }
}

/// What is left of a limit for one key.
struct Bucket {
    tokens: f64,
    /// When it was last looked at, in milliseconds.
    at: i64,
}

struct Limiter {
    limit: Limit,
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl Limiter {
    fn accepts(&self, key: &str, now: i64) -> bool {
        let mut buckets = self.buckets.lock();
        if !buckets.contains_key(key) && buckets.len() >= self.limit.keys {
            let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.at).map(|(key, _)| key.clone());
            oldest.map(|oldest| buckets.remove(&oldest));
        }
        let full = f64::from(self.limit.burst);
        let bucket = buckets.entry(key.to_owned()).or_insert(Bucket { tokens: full, at: now });
        let passed = now.saturating_sub(bucket.at).max(0) as f64 / 1000.0;
        bucket.tokens = (bucket.tokens + passed * f64::from(self.limit.per_second)).min(full);
        bucket.at = now;
        let accepts = bucket.tokens >= 1.0;
        if accepts {
            bucket.tokens -= 1.0;
        }
        accepts
    }
}

pub struct EventRateLimit(Vec<Limiter>);

impl EventRateLimit {
    pub fn new(limits: Vec<Limit>) -> Self {
        Self(limits.into_iter().map(|limit| Limiter { limit, buckets: Mutex::default() }).collect())
    }

    /// Refuses events that come too fast. A dry run writes nothing and counts for nothing.
    pub fn validate(&self, api: &Api, request: &Request<'_>, new: Option<&Value>) -> Result<(), ApiError> {
        let wanted = request.resource.storage.kind == "Event"
            && matches!(request.operation, Operation::Create | Operation::Update)
            && !request.dry_run;
        let Some(event) = new.filter(|_| wanted) else { return Ok(()) };
        self.check(request, event, (api.clock)().as_millisecond())
    }

    fn check(&self, request: &Request<'_>, event: &Value, now: i64) -> Result<(), ApiError> {
        let mut reached = Vec::new();
        for limiter in &self.0 {
            let key = limiter.limit.scope.key(request, event);
            if !limiter.accepts(&key, now) {
                reached.push(format!("limit reached on type {} for key {key}", limiter.limit.scope.name()));
            }
        }
        match super::together(&reached) {
            Some(why) => Err(ApiError::new(Reason::TooManyRequests, format!("Too many requests: {why}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bucket_empties_and_fills_again_and_keys_are_bounded() {
        let limits = json!({"limits": [{"type": "Namespace", "qps": 2, "burst": 3, "cacheSize": 2}]});
        let limit = Limit::read_all(&limits).expect("limits").remove(0);
        let limiter = Limiter { limit, buckets: Mutex::default() };
        assert_eq!((0..5).filter(|_| limiter.accepts("a", 0)).count(), 3);
        assert!(limiter.accepts("b", 0), "another key has a bucket of its own");
        assert!(!limiter.accepts("a", 400) && limiter.accepts("a", 1000));
        assert!(limiter.accepts("c", 2000) && limiter.accepts("d", 3000));
        assert_eq!(limiter.buckets.lock().len(), 2);
    }

    #[test]
    fn odd_limits_are_refused() {
        let check = |tree: Value, expect: &str| {
            assert_eq!(Limit::read_all(&tree).expect_err("refused"), expect);
        };
        check(json!({}), "limits: Invalid value: null: must not be empty");
        check(json!({"limits": [{"type": "X", "qps": 1, "burst": 1}]}), "limits[0].type: Unsupported value: \"X\"");
        check(json!({"limits": [{"type": "User", "burst": 1}]}), "limits[0].qps: Invalid value: 0: must be positive");
    }
}
