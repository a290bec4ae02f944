//! What keys are called in an etcd: as everywhere else, unless `--etcd-prefix` gives the cluster another place in it than `/registry`.

use std::borrow::Cow;

use super::mark;
use super::proto::KeyValue;
use crate::Record;

/// What keys begin with everywhere but in an etcd that says otherwise.
pub(super) const USUAL: &str = "/registry";

/// What keys of another cluster below [`USUAL`] begin with.
const OTHERS: &str = "others";

/// Between our names of keys and those in etcd.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// What stands for [`USUAL`]; nothing where that is [`USUAL`] itself.
    prefix: Option<String>,
}

impl Keys {
    /// As upstream reads it: with a slash before, and none behind.
    pub(super) fn below(prefix: &str) -> Self {
        let prefix = format!("/{}", prefix.trim_matches('/'));
        Self { prefix: (prefix != USUAL).then_some(prefix) }
    }

    /// What etcd calls a key of ours, or the beginning of some. Others, which are not below [`USUAL`], are nobody's alone.
    pub(super) fn theirs<'a>(&self, key: &'a str) -> Cow<'a, str> {
        match (&self.prefix, key.strip_prefix(USUAL)) {
            (Some(prefix), Some(rest)) => format!("{}{rest}", prefix.trim_end_matches('/')).into(),
            _ => key.into(),
        }
    }

    /// What we call a key of etcd's; nothing for one that is no text. Another cluster's is kept apart and not left out: its revisions are the
    /// store's, and who waits for a revision has to hear of it.
    pub(super) fn ours(&self, key: Vec<u8>) -> Option<String> {
        let key = String::from_utf8(key).ok()?;
        let Some(prefix) = &self.prefix else { return Some(key) };
        match key.strip_prefix(prefix.trim_end_matches('/')) {
            Some(rest) if rest.starts_with('/') => Some(format!("{USUAL}{rest}")),
            _ if key.starts_with(USUAL) => Some(format!("{OTHERS}{key}")),
            _ => Some(key),
        }
    }

    pub(super) fn record(&self, kv: KeyValue) -> Option<Record> {
        let key = self.ours(kv.key)?.into();
        Some(Record { key, value: mark::without(kv.value), revision: kv.mod_revision as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_cluster_are_below_its_prefix() {
        for (prefix, ours, theirs) in [
            ("/registry", "/registry/pods/d/a", "/registry/pods/d/a"),
            ("registry/", "/registry/pods/d/a", "/registry/pods/d/a"),
            ("/east/k8s", "/registry/pods/d/a", "/east/k8s/pods/d/a"),
            ("east", "/registry/", "/east/"),
            ("/", "/registry/pods/d/a", "/pods/d/a"),
            ("/east", "compact_rev_key", "compact_rev_key"),
        ] {
            let keys = Keys::below(prefix);
            assert_eq!(keys.theirs(ours), theirs, "{prefix}");
            assert_eq!(keys.ours(theirs.into()).as_deref(), Some(ours), "{prefix}");
        }
        let east = Keys::below("/east");
        for another in ["/registry/pods/d/a", "/eastern/pods/d/a", "/west/pods"] {
            let name = east.ours(another.into()).expect("a text");
            assert!(!name.starts_with(USUAL), "{another} is not ours: {name}");
        }
    }
}
