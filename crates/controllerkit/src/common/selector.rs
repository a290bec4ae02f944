//! Label selectors of typed objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Wire;
use machinery::selector::label::LabelSelector;

/// Labels as objects have them.
pub type Labels = Option<BTreeMap<String, String>>;

/// A selector ready to be matched; `None` if it is not a valid one, which then selects nothing.
pub fn parse(selector: &Wire) -> Option<LabelSelector> {
    rules::selectors::conditions(selector).ok()
}

/// As [`parse`], for kinds whose selector may be absent, which selects nothing.
pub fn parse_optional(selector: Option<&Wire>) -> LabelSelector {
    selector.and_then(parse).unwrap_or_else(LabelSelector::nothing)
}

/// A plain map of labels, all of which must be there.
pub fn of_map(labels: &BTreeMap<String, String>) -> LabelSelector {
    LabelSelector::from_labels(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

/// Whether labels satisfy a selector.
pub fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.matches(|key| labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str))
}
