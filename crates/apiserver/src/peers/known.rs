//! What is known of peers. Pure.

use std::collections::{BTreeMap, HashSet};

use aggregator::Priority;
use aggregator::discovery::{Entry, with_freshness};
use machinery::{Value, value};

use crate::servers::identity;

/// A server's Lease, as far as it is of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) name: String,
    /// Another one after every start.
    holder: String,
    /// Where its peers reach it; empty if it does not say.
    pub(super) address: String,
}

impl Lease {
    pub(super) fn read(lease: &Value) -> Self {
        let annotations = value::at(lease, "metadata.annotations");
        let address = annotations.and_then(|all| all.get(identity::PEER)).and_then(Value::as_str);
        Self {
            name: value::text(lease, "metadata.name").to_owned(),
            holder: value::text(lease, "spec.holderIdentity").to_owned(),
            address: address.unwrap_or_default().to_owned(),
        }
    }
}

/// Who there is besides this server.
pub(super) struct Wanted {
    own: String,
    leases: BTreeMap<String, Lease>,
}

impl Wanted {
    pub(super) fn new(own: &str) -> Self {
        Self { own: own.to_owned(), leases: BTreeMap::new() }
    }

    /// Takes in a Lease as it is now. One without a holder or an address is nobody's.
    pub(super) fn take(&mut self, lease: &Lease) {
        if lease.name == self.own || lease.holder.is_empty() || lease.address.is_empty() {
            self.leases.remove(&lease.name);
        } else {
            self.leases.insert(lease.name.clone(), lease.clone());
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.leases.remove(name);
    }
}

type Resource = (String, String, String);

struct Peer {
    lease: Lease,
    serves: HashSet<Resource>,
    /// The documents of its group versions, but for the core group's, which is not below `/apis`.
    versions: Vec<(String, Value)>,
}

/// What they have.
#[derive(Default)]
pub(super) struct Known {
    peers: BTreeMap<String, Peer>,
}

impl Known {
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Forgets who is gone; whether somebody is, and who is to be asked: those who are new, and those who have started again.
    pub(super) fn changed(&mut self, wanted: &Wanted) -> (bool, Vec<Lease>) {
        let before = self.peers.len();
        self.peers.retain(|name, _| wanted.leases.contains_key(name));
        let new =
            wanted.leases.values().filter(|lease| self.peers.get(&lease.name).is_none_or(|peer| peer.lease != **lease));
        (self.peers.len() != before, new.cloned().collect())
    }

    /// Takes in what a peer says of itself.
    pub(super) fn learn(&mut self, lease: Lease, documents: &[Value]) {
        let (mut serves, mut all) = (HashSet::new(), Vec::new());
        for (group, version) in documents.iter().flat_map(versions) {
            let name = value::text(version, "version");
            for resource in value::list(version, "resources") {
                serves.insert((group.to_owned(), name.to_owned(), value::text(resource, "resource").to_owned()));
            }
            if !group.is_empty() {
                all.push((group.to_owned(), version.clone()));
            }
        }
        self.peers.insert(lease.name.clone(), Peer { lease, serves, versions: all });
    }

    pub(super) fn serves(&self, group: &str, version: &str, resource: &str) -> bool {
        !self.addresses(group, version, resource).is_empty()
    }

    /// Where those are who have a resource.
    pub(super) fn addresses(&self, group: &str, version: &str, resource: &str) -> Vec<&str> {
        if self.peers.is_empty() {
            return Vec::new();
        }
        let wanted = (group.to_owned(), version.to_owned(), resource.to_owned());
        let serving = self.peers.values().filter(|peer| peer.serves.contains(&wanted));
        serving.map(|peer| &*peer.lease.address).collect()
    }

    /// The group versions of peers that a server's own document does not have.
    pub(super) fn beyond(&self, own: &Value, place: impl Fn(&str, &str) -> Priority) -> Vec<Entry> {
        let mut seen: HashSet<(String, String)> = versions(own)
            .map(|(group, version)| (group.to_owned(), value::text(version, "version").to_owned()))
            .collect();
        let mut entries = Vec::new();
        for (group, document) in self.peers.values().flat_map(|peer| &peer.versions) {
            let version = value::text(document, "version").to_owned();
            if seen.insert((group.clone(), version.clone())) {
                let document = with_freshness(Some(document), &version, true);
                entries.push(Entry { priority: place(group, &version), group: group.clone(), version, document });
            }
        }
        entries
    }
}

/// The group versions of an `APIGroupDiscoveryList`.
fn versions(document: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value::list(document, "items").iter().flat_map(|item| {
        let group = value::text(item, "metadata.name");
        value::list(item, "versions").iter().map(move |version| (group, version))
    })
}

/// Takes group versions out of an `APIGroupDiscoveryList`.
pub(super) fn leave_out(document: &mut Value, drop: impl Fn((&str, &str)) -> bool) {
    for item in value::list_mut(document, "items") {
        let group = value::text(item, "metadata.name").to_owned();
        if group.is_empty() {
            continue;
        }
        if let Some(versions) = item.get_mut("versions").and_then(Value::as_array_mut) {
            versions.retain(|version| !drop((&group, value::text(version, "version"))));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, address: &str) -> Lease {
        Lease::read(&json!({
            "metadata": {"name": name, "annotations": {identity::PEER: address}}, "spec": {"holderIdentity": holder},
        }))
    }

    fn document(group: &str, version: &str, resources: &[&str]) -> Value {
        let resources: Vec<_> = resources.iter().map(|name| json!({"resource": name})).collect();
        json!({"items": [{"metadata": {"name": group}, "versions": [{"version": version, "resources": resources}]}]})
    }

    #[test]
    fn servers_are_asked_when_they_come_and_when_they_have_started_again() {
        let (mut wanted, mut known) = (Wanted::new("own"), Known::default());
        wanted.take(&lease("own", "o", "192.0.2.1:6443"));
        wanted.take(&lease("two", "t", "192.0.2.2:6443"));
        wanted.take(&lease("mute", "m", ""));
        let (gone, new) = known.changed(&wanted);
        assert_eq!((gone, new.iter().map(|lease| &*lease.name).collect::<Vec<_>>()), (false, vec!["two"]));
        known.learn(new[0].clone(), &[document("batch", "v1", &["jobs"])]);
        wanted.take(&lease("two", "t", "192.0.2.2:6443"));
        assert_eq!(known.changed(&wanted), (false, Vec::new()), "a renewal is no news");
        wanted.take(&lease("two", "again", "192.0.2.2:6443"));
        assert_eq!(known.changed(&wanted).1.len(), 1);
        wanted.remove("two");
        assert_eq!(known.changed(&wanted), (true, Vec::new()));
        assert!(known.is_empty());
    }

    #[test]
    fn a_resource_is_where_a_peer_says_that_it_is() {
        let mut known = Known::default();
        known.learn(
            lease("two", "t", "192.0.2.2:6443"),
            &[document("", "v1", &["pods"]), document("batch", "v1", &["jobs"])],
        );
        known.learn(lease("three", "t", "192.0.2.3:6443"), &[document("batch", "v1", &["jobs", "cronjobs"])]);
        assert_eq!(known.addresses("batch", "v1", "jobs"), ["192.0.2.3:6443", "192.0.2.2:6443"]);
        assert_eq!(known.addresses("batch", "v1", "cronjobs"), ["192.0.2.3:6443"]);
        assert!(known.serves("", "v1", "pods"));
        assert!(!known.serves("batch", "v2", "jobs") && !known.serves("", "v1", "jobs"));
    }

    #[test]
    fn discovery_has_what_only_peers_have() {
        let mut known = Known::default();
        known.learn(lease("two", "t", "a:1"), &[document("", "v1", &["pods"]), document("batch", "v1", &["jobs"])]);
        known.learn(lease("three", "t", "b:1"), &[document("batch", "v1", &["jobs"]), document("apps", "v1", &["x"])]);
        let own = document("apps", "v1", &["deployments"]);
        let place = |_: &str, _: &str| aggregator::priorities::CUSTOM;
        let beyond = known.beyond(&own, place);
        let named: Vec<_> = beyond.iter().map(|entry| (&*entry.group, &*entry.version)).collect();
        assert_eq!(named, [("batch", "v1")]);
    }

    #[test]
    fn what_the_store_has_for_all_is_left_out() {
        let mut custom = document("example.com", "v1", &["widgets"]);
        leave_out(&mut custom, |gv| gv == ("example.com", "v1"));
        assert_eq!(versions(&custom).count(), 0);
        let mut core = document("", "v1", &["pods"]);
        leave_out(&mut core, |_| true);
        assert_eq!(versions(&core).count(), 1);
    }
}
