//! Who is bound to which rules, by subject and namespace, changed one role or binding at a time.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::rest::User;
use machinery::{Value, value};
use rustc_hash::FxHashMap;

use super::super::{Attributes, Decision, Verdict};
use super::{Rule, allows};

/// A role by namespace (empty for a cluster role) and name.
type RoleKey = (Box<str>, Box<str>);
/// A binding by namespace (empty for a cluster binding) and name.
type BindingKey = (Box<str>, Box<str>);

/// A subject as requests show it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// A user, service accounts included.
    User(Box<str>),
    Group(Box<str>),
}

/// A role that exists, that bindings refer to, or both.
#[derive(Debug, Default)]
struct Slot {
    key: RoleKey,
    rules: Option<Arc<[Arc<Rule>]>>,
    references: usize,
}

/// One binding's grant to one subject.
#[derive(Debug)]
struct Grant {
    binding: BindingKey,
    slot: usize,
    /// What an answer says about it.
    reason: Arc<str>,
}

#[derive(Debug, Default)]
struct Grants {
    cluster: Vec<Grant>,
    namespaces: FxHashMap<Box<str>, Vec<Grant>>,
}

#[derive(Debug)]
struct Binding {
    slot: usize,
    subjects: Vec<Subject>,
}

/// The index. It holds what the four kinds say, and is as big as they are.
#[derive(Debug, Default)]
pub struct Index {
    slots: Vec<Slot>,
    free: Vec<usize>,
    by_role: HashMap<RoleKey, usize>,
    bindings: HashMap<BindingKey, Binding>,
    users: FxHashMap<Box<str>, Grants>,
    groups: FxHashMap<Box<str>, Grants>,
}

impl Index {
    /// A role came, changed or (without a tree) went.
    pub fn set_role(&mut self, namespace: &str, name: &str, role: Option<&Value>) {
        let slot = self.slot((namespace.into(), name.into()));
        self.slots[slot].rules =
            role.map(|role| value::list(role, "rules").iter().map(|rule| Arc::new(Rule::of(rule))).collect());
        self.release_unused(slot);
    }

    /// A binding came, changed or (without a tree) went.
    pub fn set_binding(&mut self, namespace: &str, name: &str, binding: Option<&Value>) {
        let key: BindingKey = (namespace.into(), name.into());
        if let Some(old) = self.bindings.remove(&key) {
            for subject in &old.subjects {
                self.revoke(subject, &key);
            }
            self.slots[old.slot].references -= 1;
            self.release_unused(old.slot);
        }
        let Some(tree) = binding else { return };
        let role = value::text(tree, "roleRef.name");
        let kind = value::text(tree, "roleRef.kind");
        // A cluster binding cannot reach into a namespace's roles.
        if kind == "Role" && namespace.is_empty() {
            return;
        }
        let slot = self.slot((if kind == "ClusterRole" { "" } else { namespace }.into(), role.into()));
        self.slots[slot].references += 1;
        let mut subjects = Vec::new();
        for subject in value::list(tree, "subjects") {
            let Some((found, described)) = read_subject(subject, namespace) else { continue };
            if subjects.contains(&found) {
                continue;
            }
            let (own, full) = match namespace {
                "" => ("ClusterRoleBinding", name.to_owned()),
                namespace => ("RoleBinding", format!("{name}/{namespace}")),
            };
            let reason = format!("RBAC: allowed by {own} {full:?} of {kind} {role:?} to {described}").into();
            let (grants, name) = self.grants(&found);
            let grants = grants.entry(name.into()).or_default();
            let grant = Grant { binding: key.clone(), slot, reason };
            match namespace {
                "" => grants.cluster.push(grant),
                namespace => grants.namespaces.entry(namespace.into()).or_default().push(grant),
            }
            subjects.push(found);
        }
        self.bindings.insert(key, Binding { slot, subjects });
    }

    /// Forgets all roles (or all bindings) of a scope, before all of them are added anew.
    pub fn forget_roles(&mut self, cluster: bool) {
        let gone: Vec<RoleKey> =
            self.by_role.keys().filter(|(namespace, _)| namespace.is_empty() == cluster).cloned().collect();
        for (namespace, name) in gone {
            self.set_role(&namespace, &name, None);
        }
    }

    /// As [`Index::forget_roles`], for bindings.
    pub fn forget_bindings(&mut self, cluster: bool) {
        let gone: Vec<BindingKey> =
            self.bindings.keys().filter(|(namespace, _)| namespace.is_empty() == cluster).cloned().collect();
        for (namespace, name) in gone {
            self.set_binding(&namespace, &name, None);
        }
    }

    pub fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let mut dangling: Vec<usize> = Vec::new();
        for grant in self.grants_of(attributes.user, if attributes.is_resource { attributes.namespace } else { "" }) {
            match &self.slots[grant.slot].rules {
                Some(rules) => {
                    if rules.iter().any(|rule| allows(rule, attributes)) {
                        return Verdict { decision: Decision::Allow, reason: Some(grant.reason.clone()) };
                    }
                }
                None => dangling.push(grant.slot),
            }
        }
        match self.describe_dangling(&dangling) {
            Some(reason) => Verdict::no_opinion(format!("RBAC: {reason}")),
            None => Verdict::NO_OPINION,
        }
    }

    /// Every rule that a user has in a namespace (and everywhere), and what is wrong with the bindings on the way.
    pub fn rules(&self, user: &User, namespace: &str) -> (Vec<Arc<Rule>>, Option<String>) {
        let mut rules = Vec::new();
        let mut dangling = Vec::new();
        // A binding that names the user and a group of theirs grants its role once.
        let mut seen: rustc_hash::FxHashSet<&BindingKey> = Default::default();
        for grant in self.grants_of(user, namespace).filter(|grant| seen.insert(&grant.binding)) {
            match &self.slots[grant.slot].rules {
                Some(granted) => rules.extend(granted.iter().cloned()),
                None => dangling.push(grant.slot),
            }
        }
        (rules, self.describe_dangling(&dangling))
    }

    pub fn role(&self, namespace: &str, name: &str) -> Option<Arc<[Arc<Rule>]>> {
        let slot = self.by_role.get(&(Box::from(namespace), Box::from(name)))?;
        self.slots[*slot].rules.clone()
    }

    fn grants_of<'a>(&'a self, user: &'a User, namespace: &'a str) -> impl Iterator<Item = &'a Grant> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        let all: smallvec::SmallVec<[&Grants; 8]> =
            self.users.get(user.name.as_str()).into_iter().chain(groups).collect();
        let local: smallvec::SmallVec<[&Grants; 8]> =
            if namespace.is_empty() { Default::default() } else { all.clone() };
        let cluster = all.into_iter().flat_map(|grants| grants.cluster.iter());
        let local = local.into_iter().filter_map(move |grants| grants.namespaces.get(namespace)).flatten();
        cluster.chain(local)
    }

    fn describe_dangling(&self, slots: &[usize]) -> Option<String> {
        let mut described: Vec<String> = Vec::new();
        for slot in slots {
            let (namespace, name) = &self.slots[*slot].key;
            let kind = if namespace.is_empty() { "clusterrole" } else { "role" };
            let text = format!("{kind}.rbac.authorization.k8s.io {name:?} not found");
            if !described.contains(&text) {
                described.push(text);
            }
        }
        match described.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }

    fn grants<'a>(&mut self, subject: &'a Subject) -> (&mut FxHashMap<Box<str>, Grants>, &'a str) {
        match subject {
            Subject::User(name) => (&mut self.users, name),
            Subject::Group(name) => (&mut self.groups, name),
        }
    }

    fn revoke(&mut self, subject: &Subject, binding: &BindingKey) {
        let (by_name, name) = self.grants(subject);
        let Some(grants) = by_name.get_mut(name) else { return };
        if binding.0.is_empty() {
            grants.cluster.retain(|grant| grant.binding != *binding);
        } else if let Some(local) = grants.namespaces.get_mut(&binding.0) {
            local.retain(|grant| grant.binding != *binding);
            if local.is_empty() {
                grants.namespaces.remove(&binding.0);
            }
        }
        if grants.cluster.is_empty() && grants.namespaces.is_empty() {
            by_name.remove(name);
        }
    }

    fn slot(&mut self, key: RoleKey) -> usize {
        if let Some(slot) = self.by_role.get(&key) {
            return *slot;
        }
        let new = Slot { key: key.clone(), ..Slot::default() };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = new;
                at
            }
            None => {
                self.slots.push(new);
                self.slots.len() - 1
            }
        };
        self.by_role.insert(key, at);
        at
    }

    fn release_unused(&mut self, slot: usize) {
        if self.slots[slot].rules.is_none() && self.slots[slot].references == 0 {
            self.by_role.remove(&self.slots[slot].key);
            self.free.push(slot);
        }
    }
}

/// A subject, and as answers describe it.
fn read_subject(subject: &Value, namespace: &str) -> Option<(Subject, String)> {
    let name = value::text(subject, "name");
    match value::text(subject, "kind") {
        "User" => Some((Subject::User(name.into()), format!("User {name:?}"))),
        "Group" => Some((Subject::Group(name.into()), format!("Group {name:?}"))),
        "ServiceAccount" => {
            let namespace = match value::text(subject, "namespace") {
                "" => namespace,
                own => own,
            };
            if namespace.is_empty() {
                return None;
            }
            let user = format!("system:serviceaccount:{namespace}:{name}");
            let described = format!("ServiceAccount {:?}", format!("{name}/{namespace}"));
            Some((Subject::User(user.into()), described))
        }
        _ => None,
    }
}
