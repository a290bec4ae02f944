//! RBAC in memory: who is bound to which rules, kept per subject and rebuilt only when a role or a binding changed.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::rest::User;
use machinery::{Value, value};
use parking_lot::RwLock;

use super::{Attributes, Authorizer, Verdict, forbidden};
use crate::cache::{Cache, Filter};
use crate::registry::Registry;
use crate::route::RequestInfo;

/// One rule of a role.
#[derive(Debug, Default)]
struct Rule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    urls: Vec<String>,
}

/// Rules granted to a subject, everywhere or in one namespace.
#[derive(Debug, Clone)]
struct Grant {
    namespace: Option<Box<str>>,
    rules: Arc<[Rule]>,
}

#[derive(Debug, Default)]
struct Index {
    /// The revisions of the four kinds it was made from.
    made_from: [u64; 4],
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

/// The authorizer.
pub struct Rbac {
    cluster_roles: Arc<Cache>,
    cluster_role_bindings: Arc<Cache>,
    roles: Arc<Cache>,
    role_bindings: Arc<Cache>,
    index: RwLock<Arc<Index>>,
}

impl Rbac {
    /// On the caches of the RBAC kinds.
    pub fn new(registry: &Registry) -> Option<Self> {
        let cache = |plural| registry.stored("rbac.authorization.k8s.io", plural).map(|resource| resource.cache.clone());
        Some(Self {
            cluster_roles: cache("clusterroles")?,
            cluster_role_bindings: cache("clusterrolebindings")?,
            roles: cache("roles")?,
            role_bindings: cache("rolebindings")?,
            index: RwLock::default(),
        })
    }

    fn index(&self) -> Arc<Index> {
        let now = [&self.cluster_roles, &self.cluster_role_bindings, &self.roles, &self.role_bindings]
            .map(|cache| cache.last_change());
        let index = self.index.read().clone();
        if index.made_from == now && now != [0; 4] {
            return index;
        }
        let index = Arc::new(self.build(now));
        *self.index.write() = index.clone();
        index
    }

    fn build(&self, made_from: [u64; 4]) -> Index {
        let mut index = Index { made_from, ..Index::default() };
        let rules_of = |cache: &Cache| -> HashMap<String, Arc<[Rule]>> {
            let (roles, _) = cache.list(&Filter::everything(), None, 0);
            roles
                .iter()
                .map(|role| {
                    let meta = role.meta();
                    let rules = value::list(&role.to_value(), "rules").iter().map(Rule::of).collect();
                    (format!("{}/{}", meta.namespace, meta.name), rules)
                })
                .collect()
        };
        let cluster_roles = rules_of(&self.cluster_roles);
        let roles = rules_of(&self.roles);
        for cache in [&self.cluster_role_bindings, &self.role_bindings] {
            let (bindings, _) = cache.list(&Filter::everything(), None, 0);
            for binding in bindings {
                let namespace = &binding.meta().namespace;
                let tree = binding.to_value();
                let name = value::text(&tree, "roleRef.name");
                let rules = match value::text(&tree, "roleRef.kind") {
                    "ClusterRole" => cluster_roles.get(&format!("/{name}")),
                    _ => roles.get(&format!("{namespace}/{name}")),
                };
                let Some(rules) = rules else { continue };
                let namespace = (!namespace.is_empty()).then(|| namespace.clone());
                let grant = Grant { namespace, rules: rules.clone() };
                for subject in value::list(&tree, "subjects") {
                    index.bind(subject, &grant);
                }
            }
        }
        index
    }
}

impl Index {
    fn bind(&mut self, subject: &Value, grant: &Grant) {
        let name = value::text(subject, "name");
        match value::text(subject, "kind") {
            "User" => self.users.entry(name.to_owned()).or_default().push(grant.clone()),
            "Group" => self.groups.entry(name.to_owned()).or_default().push(grant.clone()),
            "ServiceAccount" => {
                let namespace = match value::text(subject, "namespace") {
                    "" => grant.namespace.as_deref().unwrap_or_default(),
                    namespace => namespace,
                };
                let user = format!("system:serviceaccount:{namespace}:{name}");
                self.users.entry(user).or_default().push(grant.clone());
            }
            _ => {}
        }
    }

    fn allows(&self, user: &User, info: &RequestInfo) -> bool {
        let grants = self
            .users
            .get(&user.name)
            .into_iter()
            .chain(user.groups.iter().filter_map(|group| self.groups.get(group)))
            .flatten();
        grants
            .filter(|grant| grant.namespace.as_ref().is_none_or(|namespace| **namespace == *info.namespace && info.is_resource))
            .flat_map(|grant| grant.rules.iter())
            .any(|rule| rule.allows(info))
    }
}

impl Rule {
    fn of(tree: &Value) -> Self {
        let strings = |key: &str| value::list(tree, key).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            verbs: strings("verbs"),
            groups: strings("apiGroups"),
            resources: strings("resources"),
            names: strings("resourceNames"),
            urls: strings("nonResourceURLs"),
        }
    }

    fn allows(&self, info: &RequestInfo) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        if !has(&self.verbs, info.verb) {
            return false;
        }
        if !info.is_resource {
            return self.urls.iter().any(|url| match url.strip_suffix('*') {
                Some(prefix) => info.path.starts_with(prefix),
                None => *url == info.path,
            });
        }
        let resource = if info.subresource.is_empty() {
            has(&self.resources, &info.resource)
        } else {
            let exact = format!("{}/{}", info.resource, info.subresource);
            let any = format!("*/{}", info.subresource);
            self.resources.iter().any(|item| item == "*" || *item == exact || *item == any)
        };
        resource && has(&self.groups, &info.group) && (self.names.is_empty() || self.names.contains(&info.name))
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        if self.index().allows(attributes.user, attributes.info) {
            Verdict::Allow
        } else {
            Verdict::NoOpinion(forbidden(attributes, ""))
        }
    }
}
