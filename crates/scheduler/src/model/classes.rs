//! Placed pods grouped by what others match on: their labels, and the affinity terms they bring along.
//!
//! Thousands of replicas carry the same labels and the same terms. Grouped, a selector is matched once per class instead
//! of once per pod, and the cost of spreading and inter-pod affinity grows with the number of *kinds* of pods. A class
//! knows how many of its pods are on which node; a class without pods is dropped.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::model::node::NodeIdx;
use crate::model::pod::{AffinityTerm, PodInfo};
use rules::selectors::Labels;

/// Up to this many nodes a scan finds the entry faster than an index does.
const SCAN: usize = 16;

/// How many pods of a class are on which node.
#[derive(Debug, Default)]
pub struct Counts {
    entries: Vec<(NodeIdx, u32)>,
    index: FxHashMap<NodeIdx, u32>,
}

impl Counts {
    /// The nodes with at least one pod, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIdx, u32)> + '_ {
        self.entries.iter().copied()
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn position(&self, node: NodeIdx) -> Option<usize> {
        if self.index.is_empty() {
            self.entries.iter().position(|(n, _)| *n == node)
        } else {
            self.index.get(&node).map(|p| *p as usize)
        }
    }

    fn increment(&mut self, node: NodeIdx) {
        if let Some(position) = self.position(node) {
            self.entries[position].1 += 1;
            return;
        }
        self.entries.push((node, 1));
        if !self.index.is_empty() {
            self.index.insert(node, self.entries.len() as u32 - 1);
        } else if self.entries.len() > SCAN {
            self.index = self.entries.iter().enumerate().map(|(p, (n, _))| (*n, p as u32)).collect();
        }
    }

    fn decrement(&mut self, node: NodeIdx) {
        let Some(position) = self.position(node) else { return };
        self.entries[position].1 -= 1;
        if self.entries[position].1 > 0 {
            return;
        }
        self.entries.swap_remove(position);
        if !self.index.is_empty() {
            self.index.remove(&node);
            if let Some((moved, _)) = self.entries.get(position) {
                self.index.insert(*moved, position as u32);
            }
        }
    }
}

/// Pods with the same namespace and labels. Terminating pods are apart: spreading does not count them.
#[derive(Debug)]
pub struct LabelClass {
    /// Namespace of the pods.
    pub namespace: String,
    /// Labels of the pods.
    pub labels: Option<Labels>,
    /// Whether the pods are being deleted.
    pub terminating: bool,
    /// Where the pods are.
    pub counts: Counts,
}

/// What an affinity term of a placed pod means for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TermKind {
    /// The placed pod required company: others matching it are drawn near by the hard affinity weight.
    Required,
    /// The placed pod refuses company.
    RequiredAnti,
    /// The placed pod prefers company, with a weight.
    Preferred(i32),
    /// The placed pod prefers none, with a weight.
    PreferredAnti(i32),
}

/// Placed pods with the same affinity term.
#[derive(Debug)]
pub struct TermClass {
    pub term: AffinityTerm,
    pub kind: TermKind,
    /// Where the pods are.
    pub counts: Counts,
}

/// Number of a class; used again after the class is gone.
pub type ClassId = u32;

/// A table of classes found by content.
#[derive(Debug)]
struct Table<T> {
    classes: Vec<Option<T>>,
    vacant: Vec<ClassId>,
    by_hash: FxHashMap<u64, Vec<ClassId>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { classes: Vec::new(), vacant: Vec::new(), by_hash: FxHashMap::default() }
    }
}

impl<T> Table<T> {
    fn find_or_insert(&mut self, hash: u64, same: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> (ClassId, bool) {
        let bucket = self.by_hash.entry(hash).or_default();
        if let Some(&id) = bucket.iter().find(|id| self.classes[**id as usize].as_ref().is_some_and(&same)) {
            return (id, false);
        }
        let id = self.vacant.pop().unwrap_or(self.classes.len() as ClassId);
        if id as usize == self.classes.len() {
            self.classes.push(None);
        }
        self.classes[id as usize] = Some(make());
        bucket.push(id);
        (id, true)
    }

    fn remove(&mut self, hash: u64, id: ClassId) -> Option<T> {
        if let Some(bucket) = self.by_hash.get_mut(&hash) {
            bucket.retain(|i| *i != id);
            if bucket.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
        self.vacant.push(id);
        self.classes[id as usize].take()
    }
}

/// The classes that one placed pod belongs to.
#[derive(Debug, Clone, Default)]
pub struct Membership {
    labels: ClassId,
    terms: Box<[ClassId]>,
}

/// All classes of placed pods.
#[derive(Debug, Default)]
pub struct Classes {
    labels: Table<LabelClass>,
    terms: Table<TermClass>,
    by_namespace: FxHashMap<String, Vec<ClassId>>,
}

impl Classes {
    /// Counts a pod on a node.
    pub fn add(&mut self, pod: &PodInfo, node: NodeIdx) -> Membership {
        let (namespace, labels, terminating) = (pod.namespace(), pod.labels(), pod.is_terminating());
        let (id, new) = self.labels.find_or_insert(
            label_hash(namespace, labels, terminating),
            |c| c.terminating == terminating && c.namespace == namespace && c.labels.as_ref() == labels,
            || LabelClass {
                namespace: namespace.to_owned(),
                labels: labels.cloned(),
                terminating,
                counts: Counts::default(),
            },
        );
        if new {
            self.by_namespace.entry(namespace.to_owned()).or_default().push(id);
        }
        if let Some(class) = self.labels.classes[id as usize].as_mut() {
            class.counts.increment(node);
        }
        let mut terms = Vec::new();
        for (kind, term) in terms_of(pod) {
            let (id, _) = self.terms.find_or_insert(
                term_hash(kind, term),
                |c| c.kind == kind && c.term == *term,
                || TermClass { term: term.clone(), kind, counts: Counts::default() },
            );
            if let Some(class) = self.terms.classes[id as usize].as_mut() {
                class.counts.increment(node);
            }
            terms.push(id);
        }
        Membership { labels: id, terms: terms.into() }
    }

    /// Undoes [`Classes::add`].
    pub fn remove(&mut self, membership: &Membership, node: NodeIdx) {
        if let Some(class) = self.labels.classes[membership.labels as usize].as_mut() {
            class.counts.decrement(node);
            if class.counts.is_empty() {
                let hash = label_hash(&class.namespace, class.labels.as_ref(), class.terminating);
                if let Some(class) = self.labels.remove(hash, membership.labels)
                    && let Some(ids) = self.by_namespace.get_mut(&class.namespace)
                {
                    ids.retain(|id| *id != membership.labels);
                    if ids.is_empty() {
                        self.by_namespace.remove(&class.namespace);
                    }
                }
            }
        }
        for &id in &membership.terms {
            let Some(class) = self.terms.classes[id as usize].as_mut() else { continue };
            class.counts.decrement(node);
            if class.counts.is_empty() {
                let hash = term_hash(class.kind, &class.term);
                self.terms.remove(hash, id);
            }
        }
    }

    /// The label classes of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &LabelClass> {
        let ids = self.by_namespace.get(namespace).into_iter().flatten();
        ids.filter_map(|id| self.labels.classes[*id as usize].as_ref())
    }

    /// The namespaces that have pods.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.by_namespace.keys().map(String::as_str)
    }

    /// The affinity terms of placed pods.
    pub fn terms(&self) -> impl Iterator<Item = &TermClass> {
        self.terms.classes.iter().flatten()
    }

    /// Whether no placed pod has an affinity term.
    pub fn has_no_terms(&self) -> bool {
        self.terms.by_hash.is_empty()
    }
}

/// The terms of a pod, each with its meaning.
pub fn terms_of(pod: &PodInfo) -> impl Iterator<Item = (TermKind, &AffinityTerm)> {
    pod.affinity.iter().flat_map(|a| {
        let required = a.required.iter().map(|t| (TermKind::Required, t));
        let required_anti = a.required_anti.iter().map(|t| (TermKind::RequiredAnti, t));
        let preferred = a.preferred.iter().map(|(w, t)| (TermKind::Preferred(*w), t));
        let preferred_anti = a.preferred_anti.iter().map(|(w, t)| (TermKind::PreferredAnti(*w), t));
        required.chain(required_anti).chain(preferred).chain(preferred_anti)
    })
}

fn label_hash(namespace: &str, labels: Option<&Labels>, terminating: bool) -> u64 {
    let mut hasher = FxHasher::default();
    namespace.hash(&mut hasher);
    labels.hash(&mut hasher);
    terminating.hash(&mut hasher);
    hasher.finish()
}

fn term_hash(kind: TermKind, term: &AffinityTerm) -> u64 {
    let mut hasher = FxHasher::default();
    kind.hash(&mut hasher);
    term.hash(&mut hasher);
    hasher.finish()
}
