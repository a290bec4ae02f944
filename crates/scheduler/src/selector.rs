//! Selectors, parsed once: over labels (pods, namespaces) and over nodes (labels and fields).
//!
//! Parsed forms are comparable and hashable, so equal selectors of many pods are recognised as one. A selector that the
//! API would have refused matches nothing; upstream treats such parse errors the same way for nodes and reports them for
//! pods, which [`LabelSelector::parse`] leaves to its caller.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

/// A label map as `k8s-openapi` holds it.
pub type Labels = BTreeMap<String, String>;

/// Why a selector cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator is not one of `In`, `NotIn`, `Exists`, `DoesNotExist`.
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
    /// The operator needs values and has none, or has values and takes none.
    #[error("{key}: Invalid value: values set must {rule} for operator {operator}")]
    Values {
        /// Label key of the requirement.
        key: String,
        /// Its operator.
        operator: String,
        /// What was required of the values.
        rule: &'static str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    fn matches(&self, labels: Option<&Labels>) -> bool {
        let value = labels.and_then(|l| l.get(&self.key));
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// A conjunction of label requirements in canonical order. `nothing` stands for the absent selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl LabelSelector {
    /// The selector that matches no object: what an absent selector means.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Parses an API selector; absent means nothing, empty means everything.
    pub fn parse(selector: Option<&meta::LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else { return Ok(Self::nothing()) };
        let mut parsed = Self::from_labels(selector.match_labels.as_ref().into_iter().flatten());
        for expression in selector.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            let mut values = expression.values.clone().unwrap_or_default();
            let wants_values = matches!(operator, Operator::In | Operator::NotIn);
            if wants_values == values.is_empty() {
                return Err(SelectorError::Values {
                    key: expression.key.clone(),
                    operator: expression.operator.clone(),
                    rule: if wants_values { "be non-empty" } else { "be empty" },
                });
            }
            values.sort_unstable();
            parsed.requirements.push(Requirement { key: expression.key.clone(), operator, values });
        }
        parsed.requirements.sort_unstable();
        Ok(parsed)
    }

    /// Every given label with exactly the given value.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let mut requirements: Vec<_> = labels
            .into_iter()
            .map(|(key, value)| Requirement { key: key.clone(), operator: Operator::In, values: vec![value.clone()] })
            .collect();
        requirements.sort_unstable();
        Self { requirements, nothing: false }
    }

    /// The conjunction of both selectors.
    pub fn and(mut self, other: &Self) -> Self {
        self.nothing |= other.nothing;
        self.requirements.extend(other.requirements.iter().cloned());
        self.requirements.sort_unstable();
        self
    }

    /// Adds `key In [value]` or `key NotIn [value]`: how `matchLabelKeys` and `mismatchLabelKeys` narrow a selector.
    pub fn require(&mut self, key: &str, value: &str, equal: bool) {
        let operator = if equal { Operator::In } else { Operator::NotIn };
        self.requirements.push(Requirement { key: key.to_owned(), operator, values: vec![value.to_owned()] });
        self.requirements.sort_unstable();
    }

    /// Whether the selector has no requirement. The selector for nothing counts as non-empty.
    pub fn is_empty(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether the selector can match nothing because it was absent.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels))
    }
}

/// One requirement on a node: on a label, or on the field `metadata.name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeRequirement {
    key: String,
    test: NodeTest,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum NodeTest {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
    /// A requirement the API would have refused: it never holds.
    Invalid,
}

impl NodeRequirement {
    fn parse(requirement: &core::NodeSelectorRequirement) -> Self {
        let values = || requirement.values.clone().unwrap_or_default();
        let bound = || match values().as_slice() {
            [one] => one.parse::<i64>().ok(),
            _ => None,
        };
        let test = match requirement.operator.as_str() {
            "In" => NodeTest::In(values()),
            "NotIn" => NodeTest::NotIn(values()),
            "Exists" => NodeTest::Exists,
            "DoesNotExist" => NodeTest::DoesNotExist,
            "Gt" => bound().map_or(NodeTest::Invalid, NodeTest::Gt),
            "Lt" => bound().map_or(NodeTest::Invalid, NodeTest::Lt),
            _ => NodeTest::Invalid,
        };
        Self { key: requirement.key.clone(), test }
    }

    fn holds(&self, value: Option<&String>) -> bool {
        match &self.test {
            NodeTest::In(values) => value.is_some_and(|v| values.contains(v)),
            NodeTest::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            NodeTest::Exists => value.is_some(),
            NodeTest::DoesNotExist => value.is_none(),
            NodeTest::Gt(bound) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *bound),
            NodeTest::Lt(bound) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *bound),
            NodeTest::Invalid => false,
        }
    }
}

/// A conjunction of requirements on labels and fields. An empty term matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: Vec<NodeRequirement>,
    fields: Vec<NodeRequirement>,
}

/// What a node selector looks at.
pub trait NodeFacts {
    /// `metadata.name`.
    fn name(&self) -> &str;
    /// `metadata.labels`.
    fn labels(&self) -> Option<&Labels>;
}

impl NodeFacts for core::Node {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn labels(&self) -> Option<&Labels> {
        self.metadata.labels.as_ref()
    }
}

impl NodeTerm {
    /// Parses one term of a node selector.
    pub fn parse(term: &core::NodeSelectorTerm) -> Self {
        let parse = |list: &Option<Vec<core::NodeSelectorRequirement>>| {
            list.iter().flatten().map(NodeRequirement::parse).collect()
        };
        Self { labels: parse(&term.match_expressions), fields: parse(&term.match_fields) }
    }

    /// Whether the term has no requirement at all.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the node satisfies every requirement.
    pub fn matches(&self, node: &(impl NodeFacts + ?Sized)) -> bool {
        !self.is_empty()
            && self.labels.iter().all(|r| r.holds(node.labels().and_then(|l| l.get(&r.key))))
            && self.fields.iter().all(|r| match r.key.as_str() {
                "metadata.name" => match &r.test {
                    NodeTest::In(values) => values.iter().any(|v| v == node.name()),
                    NodeTest::NotIn(values) => values.iter().all(|v| v != node.name()),
                    _ => false,
                },
                _ => false,
            })
    }

    /// The node names that the field requirements leave, or `None` when they leave any.
    pub fn node_names(&self) -> Option<Vec<&str>> {
        let mut names: Option<Vec<&str>> = None;
        for requirement in &self.fields {
            let NodeTest::In(values) = &requirement.test else { continue };
            if requirement.key != "metadata.name" {
                continue;
            }
            names = Some(match names {
                None => values.iter().map(String::as_str).collect(),
                Some(kept) => kept.into_iter().filter(|k| values.iter().any(|v| v == k)).collect(),
            });
        }
        names
    }
}

/// A disjunction of terms: `requiredDuringSchedulingIgnoredDuringExecution`, a volume's node affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeSelector {
    terms: Vec<NodeTerm>,
}

impl NodeSelector {
    /// Parses an API node selector.
    pub fn parse(selector: &core::NodeSelector) -> Self {
        Self { terms: selector.node_selector_terms.iter().map(NodeTerm::parse).collect() }
    }

    /// Whether any term matches; a selector without terms matches no node.
    pub fn matches(&self, node: &(impl NodeFacts + ?Sized)) -> bool {
        self.terms.iter().any(|t| t.matches(node))
    }

    /// The terms.
    pub fn terms(&self) -> &[NodeTerm] {
        &self.terms
    }
}

/// What a pod demands of its node: `nodeSelector` and required node affinity, both.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RequiredNodeAffinity {
    labels: Vec<(String, String)>,
    affinity: Option<NodeSelector>,
}

impl RequiredNodeAffinity {
    /// Reads the demand of a pod.
    pub fn parse(spec: Option<&core::PodSpec>) -> Self {
        let labels = spec
            .and_then(|s| s.node_selector.as_ref())
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let affinity = spec
            .and_then(|s| s.affinity.as_ref()?.node_affinity.as_ref())
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
            .map(NodeSelector::parse);
        Self { labels, affinity }
    }

    /// Whether nothing is demanded.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.affinity.is_none()
    }

    /// The affinity part.
    pub fn affinity(&self) -> Option<&NodeSelector> {
        self.affinity.as_ref()
    }

    /// Whether the node meets the demand.
    pub fn matches(&self, node: &(impl NodeFacts + ?Sized)) -> bool {
        self.labels.iter().all(|(k, v)| node.labels().and_then(|l| l.get(k)) == Some(v))
            && self.affinity.as_ref().is_none_or(|a| a.matches(node))
    }
}

/// A node term with the weight of its match.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PreferredNodeTerm {
    /// Added to a node's score when the term matches.
    pub weight: i64,
    /// What is preferred.
    pub term: NodeTerm,
}

impl PreferredNodeTerm {
    /// Parses preferred terms, dropping those that can never change a score.
    pub fn parse_all(terms: Option<&Vec<core::PreferredSchedulingTerm>>) -> Vec<Self> {
        terms
            .into_iter()
            .flatten()
            .filter(|t| t.weight != 0)
            .map(|t| Self { weight: i64::from(t.weight), term: NodeTerm::parse(&t.preference) })
            .filter(|t| !t.term.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> meta::LabelSelectorRequirement {
        meta::LabelSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: (!values.is_empty()).then(|| values.iter().map(|v| (*v).to_owned()).collect()),
        }
    }

    #[test]
    fn an_absent_selector_matches_nothing_and_an_empty_one_everything() {
        let any = labels(&[("a", "b")]);
        assert!(!LabelSelector::parse(None).unwrap().matches(Some(&any)));
        assert!(LabelSelector::parse(Some(&meta::LabelSelector::default())).unwrap().matches(None));
    }

    #[test]
    fn label_expressions_follow_the_api() {
        let set = labels(&[("tier", "web"), ("env", "prod")]);
        for (operator, key, values, expected) in [
            ("In", "tier", &["web", "db"][..], true),
            ("In", "tier", &["db"], false),
            ("NotIn", "tier", &["db"], true),
            ("NotIn", "absent", &["db"], true),
            ("Exists", "env", &[], true),
            ("DoesNotExist", "env", &[], false),
        ] {
            let selector = meta::LabelSelector {
                match_expressions: Some(vec![expression(key, operator, values)]),
                match_labels: None,
            };
            assert_eq!(
                LabelSelector::parse(Some(&selector)).unwrap().matches(Some(&set)),
                expected,
                "{operator} {key}"
            );
        }
        let bad = meta::LabelSelector { match_expressions: Some(vec![expression("a", "In", &[])]), match_labels: None };
        assert!(LabelSelector::parse(Some(&bad)).is_err());
    }

    #[test]
    fn node_terms_compare_numbers_and_names() {
        let node = core::Node {
            metadata: meta::ObjectMeta {
                name: Some("n1".into()),
                labels: Some(labels(&[("cores", "8")])),
                ..Default::default()
            },
            ..Default::default()
        };
        let requirement = |key: &str, operator: &str, values: &[&str]| core::NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
        };
        let on_labels = |r| core::NodeSelectorTerm { match_expressions: Some(vec![r]), match_fields: None };
        let on_fields = |r| core::NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![r]) };
        for (term, expected) in [
            (on_labels(requirement("cores", "Gt", &["4"])), true),
            (on_labels(requirement("cores", "Lt", &["4"])), false),
            (on_labels(requirement("cores", "Gt", &["x"])), false),
            (on_fields(requirement("metadata.name", "In", &["n1", "n2"])), true),
            (on_fields(requirement("metadata.name", "NotIn", &["n1"])), false),
            (core::NodeSelectorTerm::default(), false),
        ] {
            assert_eq!(NodeTerm::parse(&term).matches(&node), expected, "{term:?}");
        }
    }
}
