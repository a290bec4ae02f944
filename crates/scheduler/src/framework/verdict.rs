//! What plugins answer, and how the answers of all nodes become one message.

use std::fmt;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::{PluginId, PluginSet};
use crate::model::node::NodeIdx;

/// How final a rejection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// Not now; evicting other pods may help.
    Unschedulable,
    /// Not now, and evicting pods does not help.
    Unresolvable,
    /// Waiting for something that the plugin set in motion; not the pod's fault.
    Pending,
    /// The plugin failed; the pod is tried again.
    Error,
}

impl Code {
    /// As metrics label it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::Unresolvable => "UnschedulableAndUnresolvable",
            Self::Pending => "Pending",
            Self::Error => "Error",
        }
    }
}

/// Why a node or a pod was rejected. Making one never allocates, except for texts made on the spot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reason {
    Static(&'static str),
    /// `Insufficient <resource>`.
    Insufficient(Arc<str>),
    /// A text made on the spot.
    Text(Arc<str>),
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Self {
        Self::Static(text)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(text) => f.write_str(text),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A refusal: how final, why, and by which plugin once the framework has added that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub code: Code,
    /// Why, one or more.
    pub reasons: SmallVec<[Reason; 2]>,
    /// Who; set by the framework.
    pub plugin: Option<PluginId>,
}

impl Rejection {
    /// A rejection for one reason.
    pub fn new(code: Code, reason: impl Into<Reason>) -> Self {
        Self { code, reasons: smallvec![reason.into()], plugin: None }
    }

    /// Evicting pods may help.
    pub fn unschedulable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Unschedulable, reason)
    }

    /// Evicting pods does not help.
    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Unresolvable, reason)
    }

    pub fn error(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Error, reason)
    }

    pub fn by(mut self, plugin: PluginId) -> Self {
        self.plugin = Some(plugin);
        self
    }

    /// Whether the pod was judged, as opposed to the judging having failed.
    pub fn is_rejection(&self) -> bool {
        self.code != Code::Error
    }

    /// All reasons in one line.
    pub fn message(&self) -> String {
        let reasons: Vec<_> = self.reasons.iter().map(Reason::to_string).collect();
        reasons.join(", ")
    }
}

/// What a filter says of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The pod can run here.
    Pass,
    Reject(Rejection),
}

impl Verdict {
    /// Evicting pods from the node may help.
    pub fn unschedulable(reason: impl Into<Reason>) -> Self {
        Self::Reject(Rejection::unschedulable(reason))
    }

    /// Evicting pods from the node does not help.
    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self::Reject(Rejection::unresolvable(reason))
    }

    /// Whether the pod can run here.
    pub fn is_pass(&self) -> bool {
        matches!(self, Self::Pass)
    }
}

/// Why no node was found: the verdict of every node, counted by reason.
#[derive(Debug, Clone, Default)]
pub struct Diagnosis {
    /// The rejected nodes and how final each rejection is.
    pub nodes: Vec<(NodeIdx, Code)>,
    /// How many nodes gave each reason.
    histogram: Vec<(Reason, usize)>,
    /// How many nodes each plug-in refused.
    pub refusals: Vec<(PluginId, usize)>,
    /// The verdict for every node that no filter saw, because PreFilter had excluded it.
    absent: Option<Rejection>,
    /// Plugins whose rejection an event may lift.
    pub rejectors: PluginSet,
    /// Plugins that the pod waits for.
    pub pending: PluginSet,
    pre_filter: Option<String>,
    /// What PostFilter had to say.
    pub post_filter: Option<String>,
}

impl Diagnosis {
    /// Empties the diagnosis, keeping its buffers.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.histogram.clear();
        self.refusals.clear();
        (self.absent, self.pre_filter, self.post_filter) = (None, None, None);
        (self.rejectors, self.pending) = (PluginSet::default(), PluginSet::default());
    }

    /// Records the rejection of a node.
    pub fn reject_node(&mut self, node: NodeIdx, rejection: &Rejection) {
        self.nodes.push((node, rejection.code));
        self.reject_alike(rejection, 1);
    }

    /// Records that so many nodes, already listed in [`Diagnosis::nodes`], were rejected alike.
    pub fn reject_alike(&mut self, rejection: &Rejection, count: usize) {
        for reason in &rejection.reasons {
            match self.histogram.iter_mut().find(|(r, _)| r == reason) {
                Some((_, held)) => *held += count,
                None => self.histogram.push((reason.clone(), count)),
            }
        }
        if let Some(plugin) = rejection.plugin {
            match self.refusals.iter_mut().find(|(known, _)| *known == plugin) {
                Some((_, held)) => *held += count,
                None => self.refusals.push((plugin, count)),
            }
        }
        self.blame(rejection);
    }

    /// How final PreFilter's rejection was, if it rejected.
    pub fn pre_filter_code(&self) -> Option<Code> {
        self.pre_filter.as_ref().and(self.absent.as_ref()).map(|rejection| rejection.code)
    }

    /// Records which plugin rejected.
    pub fn blame(&mut self, rejection: &Rejection) {
        let Some(plugin) = rejection.plugin else { return };
        match rejection.code {
            Code::Pending => {
                self.pending.insert(plugin);
                self.rejectors.insert(plugin);
            }
            Code::Unschedulable | Code::Unresolvable => self.rejectors.insert(plugin),
            Code::Error => {}
        }
    }

    /// Records that PreFilter rejected the pod outright.
    pub fn reject_all(&mut self, rejection: Rejection) {
        self.pre_filter = Some(rejection.message());
        self.blame(&rejection);
        self.absent = Some(rejection);
    }

    /// Gives the verdict for the nodes that filters will not see.
    pub fn exclude_rest(&mut self, rejection: Rejection) {
        self.absent = Some(rejection);
    }

    /// How final the rejection of a node is.
    pub fn code(&self, node: NodeIdx) -> Code {
        let recorded = self.nodes.iter().rev().find(|(n, _)| *n == node).map(|(_, code)| *code);
        recorded.or(self.absent.as_ref().map(|r| r.code)).unwrap_or(Code::Unresolvable)
    }

    /// The message that users read.
    pub fn message(&self, all_nodes: usize) -> String {
        let mut message = format!("0/{all_nodes} nodes are available:");
        if let Some(pre_filter) = &self.pre_filter {
            message.push_str(&format!(" {pre_filter}."));
        } else {
            let mut counts: Vec<(String, usize)> = self.histogram.iter().map(|(r, n)| (r.to_string(), *n)).collect();
            let unseen = all_nodes.saturating_sub(self.nodes.len());
            for reason in self.absent.iter().filter(|_| unseen > 0).flat_map(|r| &r.reasons) {
                let text = reason.to_string();
                match counts.iter_mut().find(|(t, _)| *t == text) {
                    Some((_, count)) => *count += unseen,
                    None => counts.push((text, unseen)),
                }
            }
            let mut lines: Vec<_> = counts.into_iter().map(|(text, count)| format!("{count} {text}")).collect();
            // Sorted as text, counts included: upstream's order, which users' scripts know.
            lines.sort_unstable();
            if !lines.is_empty() {
                message.push_str(&format!(" {}.", lines.join(", ")));
            }
        }
        if let Some(post_filter) = self.post_filter.as_deref().filter(|m| !m.is_empty()) {
            message.push_str(&format!(" {post_filter}"));
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_counts_reasons_and_sorts_them_as_text() {
        let mut diagnosis = Diagnosis::default();
        for node in 0..2 {
            diagnosis.reject_node(NodeIdx(node), &Rejection::unschedulable("node(s) were unschedulable"));
        }
        let mut both = Rejection::unschedulable(Reason::Insufficient("cpu".into()));
        both.reasons.push("Too many pods".into());
        diagnosis.reject_node(NodeIdx(2), &both);
        diagnosis.post_filter = Some("preemption: not helpful.".into());
        assert_eq!(
            diagnosis.message(3),
            "0/3 nodes are available: 1 Insufficient cpu, 1 Too many pods, 2 node(s) were unschedulable. preemption: not helpful."
        );
    }

    #[test]
    fn excluded_nodes_are_counted_and_a_pre_filter_message_stands_alone() {
        let mut diagnosis = Diagnosis::default();
        diagnosis.exclude_rest(Rejection::unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]"));
        diagnosis.reject_node(NodeIdx(0), &Rejection::unschedulable("Too many pods"));
        assert_eq!(
            diagnosis.message(5),
            "0/5 nodes are available: 1 Too many pods, 4 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        );
        assert_eq!(diagnosis.code(NodeIdx(3)), Code::Unresolvable);

        diagnosis.clear();
        diagnosis.reject_all(Rejection::unresolvable("persistentvolumeclaim \"x\" not found").by(PluginId(3)));
        assert_eq!(diagnosis.message(5), "0/5 nodes are available: persistentvolumeclaim \"x\" not found.");
        assert!(diagnosis.rejectors.contains(PluginId(3)));
    }
}
