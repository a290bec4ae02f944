//! The objects of a build, in the order in which they came. Two cannot have the same id.

use std::collections::HashSet;

use machinery::Value;

use crate::Error;
use crate::id::{Id, Key};
use crate::resource::{Behavior, Resource};

#[derive(Debug, Clone, Default)]
pub struct Resources(Vec<Resource>);

impl Resources {
    pub fn iter(&self) -> std::slice::Iter<'_, Resource> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Resource> {
        self.0.iter_mut()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get_mut(&mut self, at: usize) -> &mut Resource {
        &mut self.0[at]
    }

    pub fn take(&mut self) -> Vec<Resource> {
        std::mem::take(&mut self.0)
    }

    pub fn append_all(&mut self, resources: impl IntoIterator<Item = Resource>) -> Result<(), Error> {
        let mut known: HashSet<Key> = self.0.iter().map(|resource| resource.id().key()).collect();
        for resource in resources {
            let id = resource.id();
            if !known.insert(id.key()) {
                return Err(Error::new(format!("may not add resource with an already registered id: {id}")));
            }
            self.0.push(resource);
        }
        Ok(())
    }

    /// The id that two resources have.
    pub fn conflict(&self) -> Option<Id> {
        let mut known: HashSet<Key> = HashSet::new();
        self.0.iter().map(Resource::id).find(|id| !known.insert(id.key()))
    }

    /// Takes in what a generator made, as its behavior says.
    pub fn absorb(&mut self, mut made: Resource) -> Result<(), Error> {
        let id = made.id();
        let matches = self.matching(|known| known.same_object(&id));
        let shown = || format!("resid.ResId{{Gvk:{}, Name:{:?}, Namespace:{:?}}}", go_gvk(&id), id.name, id.namespace);
        match (&matches[..], made.behavior) {
            ([], Behavior::Merge | Behavior::Replace) => {
                Err(Error::new(format!("id {} does not exist; cannot merge or replace", shown())))
            }
            ([], _) => self.append_all([made]),
            ([at], behavior @ (Behavior::Replace | Behavior::Merge)) => {
                let old = &self.0[*at];
                made.inherit(old);
                if behavior == Behavior::Merge {
                    made.origin = old.origin.clone().or(made.origin);
                    made.merge_map("data", old);
                    made.merge_map("binaryData", old);
                }
                self.0[*at] = made;
                Ok(())
            }
            ([_], behavior) => Err(Error::new(format!(
                "id {} exists; can not use behavior: '{}', behavior must be merge or replace",
                shown(),
                behavior.as_str()
            ))),
            _ => Err(Error::new(format!("found multiple objects that could accept merge of {id}"))),
        }
    }

    /// Where the resources are that have, or had, an id that fits.
    pub fn matching(&self, fits: impl Fn(&Id) -> bool) -> Vec<usize> {
        let present = self.0.iter().enumerate().filter(|(_, resource)| !resource.is_gone());
        present.filter(|(_, resource)| resource.all_ids().iter().any(&fits)).map(|(at, _)| at).collect()
    }

    /// Where the one resource is that a patch is for.
    pub fn find(&self, id: &Id) -> Result<usize, Error> {
        let fail =
            |what: &str| Error::new(format!("{what} matches for Id {id}; failed to find unique target for patch {id}"));
        match self.matching(|known| known.same_object(id))[..] {
            [at] => Ok(at),
            [] => Err(fail("no")),
            _ => Err(fail("multiple")),
        }
    }

    /// Drops what was deleted.
    pub fn drop_gone(&mut self) {
        self.0.retain(|resource| !resource.is_gone());
    }

    /// Drops what is only for kustomize itself.
    pub fn drop_local(&mut self) {
        self.0.retain(|resource| {
            let annotations = machinery::value::at(&resource.value, "metadata.annotations");
            let local =
                annotations.and_then(|all| all.get("config.kubernetes.io/local-config")).and_then(Value::as_str);
            local.is_none_or(|local| local == "false")
        });
    }
}

fn go_gvk(id: &Id) -> String {
    let (gvk, scoped) = (&id.gvk, id.gvk.is_cluster_scoped());
    format!(
        "resid.Gvk{{Group:{:?}, Version:{:?}, Kind:{:?}, isClusterScoped:{scoped}}}",
        gvk.group, gvk.version, gvk.kind
    )
}

impl From<Vec<Resource>> for Resources {
    fn from(resources: Vec<Resource>) -> Self {
        Self(resources)
    }
}
