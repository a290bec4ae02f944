//! RBAC in memory: an index of roles and bindings that takes in each change once, and decides by hash look-ups.

pub mod bootstrap;
mod index;
mod rule;

use std::sync::Arc;

use machinery::rest::User;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use storage::Lookup;
use storage::cache::{Cache, News, Place};

use super::{Attributes, Authorizer, Rules, Verdict};
use index::Index;
pub use rule::{Rule, allows, missing, of_facts, quoted};

/// The group of the four kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// One of the four kinds.
struct Source {
    cache: Arc<Cache>,
    binding: bool,
    cluster: bool,
}

#[derive(Default)]
struct State {
    index: Index,
    places: [Place; 4],
}

pub struct Rbac {
    sources: [Source; 4],
    state: RwLock<State>,
}

impl Rbac {
    /// On the caches of the RBAC kinds.
    pub fn new(lookup: &dyn Lookup) -> Option<Self> {
        let source =
            |plural: &str, binding, cluster| Some(Source { cache: lookup.objects(GROUP, plural)?, binding, cluster });
        let sources = [
            source("clusterroles", false, true)?,
            source("roles", false, false)?,
            source("clusterrolebindings", true, true)?,
            source("rolebindings", true, false)?,
        ];
        Some(Self { sources, state: RwLock::default() })
    }

    /// Every rule that a user has in a namespace, and what is wrong with the bindings on the way.
    pub fn rules_of(&self, user: &User, namespace: &str) -> (Vec<Arc<Rule>>, Option<String>) {
        self.current().index.rules(user, namespace)
    }

    /// A role's rules; of a cluster role without a namespace.
    pub fn role(&self, namespace: &str, name: &str) -> Option<Arc<[Arc<Rule>]>> {
        self.current().index.role(namespace, name)
    }

    /// The index, with everything in it that the caches have.
    fn current(&self) -> RwLockReadGuard<'_, State> {
        let state = self.state.read();
        if !self.sources.iter().zip(&state.places).any(|(source, place)| place.is_behind(&source.cache)) {
            return state;
        }
        drop(state);
        let mut state = self.state.write();
        let State { index, places } = &mut *state;
        for (source, place) in self.sources.iter().zip(places) {
            source.catch_up(place, index);
        }
        RwLockWriteGuard::downgrade(state)
    }
}

impl Source {
    fn catch_up(&self, place: &mut Place, index: &mut Index) {
        match place.advance(&self.cache) {
            None => {}
            Some(News::Everything(objects)) => {
                match self.binding {
                    true => index.forget_bindings(self.cluster),
                    false => index.forget_roles(self.cluster),
                }
                for object in objects {
                    self.set(index, &object, true);
                }
            }
            Some(News::Changes(changes)) => {
                for change in changes {
                    match (&change.new, &change.old) {
                        (Some(new), _) => self.set(index, new, true),
                        (None, Some(old)) => self.set(index, old, false),
                        (None, None) => {}
                    }
                }
            }
        }
    }

    fn set(&self, index: &mut Index, object: &machinery::Object, exists: bool) {
        let meta = object.meta();
        let tree = exists.then(|| object.to_value());
        match self.binding {
            true => index.set_binding(&meta.namespace, &meta.name, tree.as_ref()),
            false => index.set_role(&meta.namespace, &meta.name, tree.as_ref()),
        }
    }
}

/// The authorizer of a chain that shares it with the checks on writes.
pub struct Shared(pub Arc<Rbac>);

impl Authorizer for Shared {
    fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        self.0.current().index.authorize(attributes)
    }

    fn rules(&self, user: &User, namespace: &str, rules: &mut Rules) {
        let (granted, wrong) = self.0.rules_of(user, namespace);
        rules.rules.extend(granted);
        rules.errors.extend(wrong);
    }
}

#[cfg(test)]
mod tests;
