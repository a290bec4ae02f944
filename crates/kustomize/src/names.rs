//! References between objects: where a field holds the name that an object had, it gets the one that the object has now.

use std::collections::{HashMap, HashSet};

use machinery::{Value, value};

use crate::Error;
use crate::config::NameReference;
use crate::fields::{FieldSpec, Make};
use crate::id::{Gvk, Id};
use crate::resource::Resource;
use crate::resources::Resources;

/// What has to be known of an object that others may refer to.
struct Candidate {
    id: Id,
    previous: Vec<Id>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
    is_cluster_scoped: bool,
    /// Where it is, and where it was at first.
    namespace: String,
    original_namespace: String,
}

impl Candidate {
    fn of(resource: &Resource) -> Self {
        let (id, previous) = (resource.id(), resource.previous_ids());
        Self {
            prefixes: resource.prefixes.clone(),
            suffixes: resource.suffixes.clone(),
            is_cluster_scoped: id.gvk.is_cluster_scoped(),
            namespace: id.effective_namespace().to_owned(),
            original_namespace: previous.first().unwrap_or(&id).effective_namespace().to_owned(),
            id,
            previous,
        }
    }
}

/// All objects, found by the names that they had and by where they were.
struct Index<'a> {
    by_name: HashMap<&'a str, Vec<&'a Candidate>>,
    by_original_namespace: HashMap<&'a str, Vec<&'a Candidate>>,
}

impl<'a> Index<'a> {
    fn of(candidates: &'a [Candidate]) -> Self {
        let (mut by_name, mut by_original_namespace) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for candidate in candidates {
            let names: HashSet<&str> = candidate.previous.iter().map(|id| id.name.as_str()).collect();
            names.into_iter().for_each(|name| by_name.entry(name).or_default().push(candidate));
            by_original_namespace.entry(candidate.original_namespace.as_str()).or_default().push(candidate);
        }
        Self { by_name, by_original_namespace }
    }

    fn named(&self, name: &str) -> &[&'a Candidate] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Corrects all references to names.
pub fn fix(resources: &mut Resources, references: &[NameReference]) -> Result<(), Error> {
    let candidates: Vec<Candidate> = resources.iter().map(Candidate::of).collect();
    let index = Index::of(&candidates);
    for at in 0..resources.len() {
        let original = resources.get_mut(at).original_id();
        let referrer = Referrer::of(resources.get_mut(at))?;
        for reference in references {
            let target = reference.gvk();
            for spec in reference.field_specs.iter().filter(|spec| original.gvk.is_selected(&spec.gvk())) {
                let filter = Filter { referrer: &referrer, target: &target, index: &index, path: &spec.path };
                let any = FieldSpec { path: spec.path.clone(), ..FieldSpec::default() };
                any.apply(resources.get_mut(at), Make::Nothing, &mut |field| filter.set(field)).map_err(|error| {
                    error.within(format!("updating name reference in '{}' field of '{}'", spec.path, referrer.this.id))
                })?;
            }
        }
    }
    Ok(())
}

/// An object that may refer to others.
struct Referrer {
    this: Candidate,
    /// Namespaces whose service accounts a role binding names.
    accounts_of: Vec<String>,
    role: Option<Gvk>,
}

impl Referrer {
    fn of(resource: &Resource) -> Result<Self, Error> {
        let subjects = value::list(&resource.value, "subjects").iter();
        let accounts = subjects
            .filter(|subject| resource.kind() == "RoleBinding" && value::text(subject, "kind") == "ServiceAccount");
        let accounts: Vec<&Value> = accounts.collect();
        if accounts.iter().any(|account| account.get("namespace").is_some_and(|namespace| !namespace.is_string())) {
            let id = resource.id().to_string();
            return Err(Error::new(format!("Invalid Input: namespace is blank for resource {id:?}\n")));
        }
        let role = value::at(&resource.value, "roleRef").and_then(|role| {
            let (group, kind) = (role.get("apiGroup")?.as_str()?, role.get("kind")?.as_str()?);
            Some(Gvk { group: group.to_owned(), version: String::new(), kind: kind.to_owned() })
        });
        let namespaces = accounts.into_iter().map(|account| value::text(account, "namespace").to_owned());
        Ok(Self { this: Candidate::of(resource), accounts_of: namespaces.collect(), role })
    }

    /// Objects of other namespaces cannot be meant, with few exceptions.
    fn reaches(&self, candidate: &Candidate) -> bool {
        self.this.is_cluster_scoped
            || candidate.is_cluster_scoped
            || candidate.namespace == self.this.namespace
            || self.accounts_of.contains(&candidate.id.namespace)
    }
}

struct Filter<'a> {
    referrer: &'a Referrer,
    target: &'a Gvk,
    index: &'a Index<'a>,
    path: &'a str,
}

impl Filter<'_> {
    fn set(&self, field: &mut Value) -> Result<(), Error> {
        match field {
            Value::Null => Ok(()),
            Value::Array(items) => items.iter_mut().try_for_each(|item| match item {
                Value::Object(_) => self.set_mapping(item),
                _ => self.set_scalar(item),
            }),
            Value::Object(_) => self.set_mapping(field),
            _ => self.set_scalar(field),
        }
    }

    fn set_scalar(&self, field: &mut Value) -> Result<(), Error> {
        let old = plain(field);
        let same = |one: &Candidate, other: &Candidate| one.id.name == other.id.name;
        let found = self.select(&old, None, same)?;
        if let Some(found) = found.filter(|found| found.id.name != old) {
            *field = Value::String(found.id.name.clone());
        }
        Ok(())
    }

    /// A reference by name and namespace.
    fn set_mapping(&self, field: &mut Value) -> Result<(), Error> {
        let Some(old) = field.get("name").map(plain) else {
            return Err(Error::new("path config error; no 'name' field in node"));
        };
        let same =
            |one: &Candidate, other: &Candidate| one.id.name == other.id.name && one.id.namespace == other.id.namespace;
        let namespace = field.get("namespace").map(plain);
        let Some(found) = self.select(&old, namespace.as_deref(), same)? else { return Ok(()) };
        if found.id.name == old && found.id.namespace.is_empty() {
            return Ok(());
        }
        field["name"] = Value::String(found.id.name.clone());
        if !found.id.namespace.is_empty() {
            field["namespace"] = Value::String(found.id.namespace.clone());
        }
        Ok(())
    }

    /// Those that had a name. Of those in a namespace: the ones that were in it at first, or else the ones that are in it now.
    fn named(&self, name: &str, namespace: Option<&str>) -> Vec<&Candidate> {
        let mut found: Vec<&Candidate> = self.index.named(name).to_vec();
        found.retain(|it| self.referrer.reaches(it));
        let Some(namespace) = namespace else { return found };
        let were_there = self.index.by_original_namespace.get(namespace).into_iter().flatten();
        if were_there.into_iter().any(|it| self.referrer.reaches(it)) {
            found.retain(|it| it.original_namespace == namespace);
        } else {
            found.retain(|it| it.namespace == namespace);
        }
        found
    }

    /// The one object that is meant by a name, if there is one.
    fn select(
        &self,
        name: &str,
        namespace: Option<&str>,
        same: impl Fn(&Candidate, &Candidate) -> bool,
    ) -> Result<Option<&Candidate>, Error> {
        let mut candidates = self.named(name, namespace);
        candidates.retain(|it| it.previous.iter().any(|id| id.gvk.is_selected(self.target)));
        if let Some(role) = self.referrer.role.as_ref().filter(|_| self.path.ends_with("roleRef/name")) {
            candidates.retain(|it| it.previous.iter().any(|id| id.gvk.is_selected(role)));
        }
        let this = &self.referrer.this;
        if !this.is_cluster_scoped {
            candidates.retain(|it| {
                it.is_cluster_scoped || it.id.gvk.kind == "ServiceAccount" || it.namespace == this.namespace
            });
        }
        if let [only] = candidates[..] {
            return Ok(Some(only));
        }
        candidates.retain(|it| same_ends(it, this, true));
        if candidates.len() > 1 {
            candidates.retain(|it| same_ends(it, this, false));
        }
        match candidates[..] {
            [] => Ok(None),
            [first, ..] if candidates.iter().all(|it| same(first, it)) => Ok(Some(first)),
            _ => {
                let ids: Vec<String> = candidates.iter().map(|it| it.id.to_string()).collect();
                Err(Error::new(format!("found multiple possible referrals: {}", ids.join(", "))))
            }
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether two objects got their prefixes and suffixes in the same kustomizations.
fn same_ends(one: &Candidate, other: &Candidate, or_none: bool) -> bool {
    let fits = |a: &[String], b: &[String]| {
        let (short, long) = if a.len() > b.len() { (b, a) } else { (a, b) };
        (or_none && short.is_empty()) || (short.is_empty() == long.is_empty() && long.ends_with(short))
    };
    fits(&one.prefixes, &other.prefixes) && fits(&one.suffixes, &other.suffixes)
}
