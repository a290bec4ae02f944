//! Selectors of the typed objects: over labels (pods, namespaces) and over nodes (labels and fields).
//!
//! Conditions on labels are [`machinery`]'s; here they are read from `k8s-openapi`'s types and asked about its label maps.
//! Parsed forms are comparable and hashable, so equal selectors of many pods are recognised as one. A node selector that
//! the API would have refused matches nothing; for pods such an error is reported.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use machinery::selector::LabelSelector as Conditions;
use machinery::selector::label::{Operator, Requirement};

/// A label map as `k8s-openapi` holds it.
pub type Labels = BTreeMap<String, String>;

/// Why a selector cannot be evaluated, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

fn value<'a>(labels: Option<&'a Labels>, key: &str) -> Option<&'a str> {
    labels?.get(key).map(String::as_str)
}

/// The conditions of an API selector; an empty one has none and selects everything.
pub fn conditions(selector: &meta::LabelSelector) -> Result<Conditions, SelectorError> {
    let mut requirements = Vec::new();
    let mut require = |key: &str, operator, values| {
        Requirement::new(key.to_owned(), operator, values).map(|r| requirements.push(r)).map_err(SelectorError)
    };
    for (key, value) in selector.match_labels.iter().flatten() {
        require(key, Operator::Equals, vec![value.clone()])?;
    }
    for expression in selector.match_expressions.iter().flatten() {
        let operator = match expression.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
        };
        require(&expression.key, operator, expression.values.clone().unwrap_or_default())?;
    }
    Ok(Conditions::new(requirements))
}

/// Conditions on labels that must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector(Conditions);

impl LabelSelector {
    /// The selector that matches no object: what an absent selector means.
    pub fn nothing() -> Self {
        Self(Conditions::nothing())
    }

    /// Parses an API selector; absent means nothing, empty means everything.
    pub fn parse(selector: Option<&meta::LabelSelector>) -> Result<Self, SelectorError> {
        selector.map_or_else(|| Ok(Self::nothing()), |selector| conditions(selector).map(Self))
    }

    /// Every given label with exactly the given value.
    pub fn from_labels(labels: &Labels) -> Self {
        Self(Conditions::from_labels(labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))))
    }

    /// The conjunction of both selectors.
    pub fn and(self, other: &Self) -> Self {
        if self.is_nothing() || other.is_nothing() {
            return Self::nothing();
        }
        Self(Conditions::new(self.0.requirements().iter().chain(other.0.requirements()).cloned().collect()))
    }

    /// Whether the selector has no requirement. The selector for nothing counts as non-empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the selector can match nothing because it was absent.
    pub fn is_nothing(&self) -> bool {
        self.0.is_nothing()
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        self.0.matches(|key| value(labels, key))
    }
}

/// A requirement on the field `metadata.name`, the only one that nodes have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum NameTest {
    Is(String),
    IsNot(String),
}

/// A conjunction of requirements on labels and fields. An empty term matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    names: Vec<NameTest>,
    /// It has a requirement that the API would have refused, so it never holds.
    invalid: bool,
}

/// What a node selector looks at.
pub trait NodeFacts {
    fn name(&self) -> &str;
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
        let mut parsed = Self { labels: Vec::new(), names: Vec::new(), invalid: false };
        for expression in term.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Some(Operator::In),
                "NotIn" => Some(Operator::NotIn),
                "Exists" => Some(Operator::Exists),
                "DoesNotExist" => Some(Operator::DoesNotExist),
                "Gt" => Some(Operator::GreaterThan),
                "Lt" => Some(Operator::LessThan),
                _ => None,
            };
            let values = expression.values.clone().unwrap_or_default();
            match operator.map(|operator| Requirement::new(expression.key.clone(), operator, values)) {
                Some(Ok(requirement)) => parsed.labels.push(requirement),
                _ => parsed.invalid = true,
            }
        }
        for field in term.match_fields.iter().flatten() {
            // Fields are compared with one value, though the operators are those of lists.
            match (field.key.as_str(), field.operator.as_str(), field.values.as_deref().unwrap_or_default()) {
                ("metadata.name", "In", [name]) => parsed.names.push(NameTest::Is(name.clone())),
                ("metadata.name", "NotIn", [name]) => parsed.names.push(NameTest::IsNot(name.clone())),
                _ => parsed.invalid = true,
            }
        }
        parsed
    }

    /// Whether the term has no requirement at all.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.names.is_empty() && !self.invalid
    }

    /// Whether the node satisfies every requirement.
    pub fn matches(&self, node: &(impl NodeFacts + ?Sized)) -> bool {
        !self.invalid
            && !self.is_empty()
            && self.labels.iter().all(|r| r.matches(value(node.labels(), r.key())))
            && self.names.iter().all(|test| match test {
                NameTest::Is(name) => name == node.name(),
                NameTest::IsNot(name) => name != node.name(),
            })
    }

    /// The node names that the field requirements leave, or `None` when they leave any.
    pub fn node_names(&self) -> Option<Vec<&str>> {
        let mut names: Option<Vec<&str>> = None;
        for test in &self.names {
            let NameTest::Is(name) = test else { continue };
            names = Some(match names {
                None => vec![name.as_str()],
                Some(kept) => kept.into_iter().filter(|kept| *kept == name.as_str()).collect(),
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
            (on_labels(requirement("cores", "In", &["8", "16"])), true),
            (on_labels(requirement("cores", "NotIn", &["8"])), false),
            (on_labels(requirement("cores", "Exists", &[])), true),
            (on_labels(requirement("none", "DoesNotExist", &[])), true),
            (on_labels(requirement("cores", "Like", &["8"])), false),
            (on_fields(requirement("metadata.name", "In", &["n1"])), true),
            // Upstream compares fields with one value only.
            (on_fields(requirement("metadata.name", "In", &["n1", "n2"])), false),
            (on_fields(requirement("metadata.name", "NotIn", &["n1"])), false),
            (core::NodeSelectorTerm::default(), false),
        ] {
            assert_eq!(NodeTerm::parse(&term).matches(&node), expected, "{term:?}");
        }
    }
}
