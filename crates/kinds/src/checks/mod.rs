//! How a validator reads a tree and says what is wrong with it.
//!
//! [`At`] is a value and where it stands. Paths are chains of borrowed steps: nothing is allocated until there is something
//! to complain about, and most objects give no reason to. [`Errors`] collects the complaints in upstream's words.

pub mod addresses;
pub mod conditions;
pub mod expressions;
pub mod lists;
pub mod rare_names;
pub mod workloads;

use std::fmt;

use machinery::names::Problems;
use machinery::quantity::Quantity;
use machinery::status::{FieldError, FieldReason};
use machinery::{Value, names, objectmeta, value};

/// What upstream says about a number below zero.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// What upstream says about a field that changed and must not.
pub const IMMUTABLE: &str = "field is immutable";
pub static NULL: Value = Value::Null;

/// A value and where it stands. A value that is not there is null.
#[derive(Clone, Copy)]
pub struct At<'p, 'v> {
    up: Option<&'p At<'p, 'v>>,
    step: Step<'p>,
    value: &'v Value,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    /// A field, or several joined by dots.
    Field(&'p str),
    Index(usize),
    Key(&'p str),
}

impl<'p, 'v> At<'p, 'v> {
    /// The root of an object.
    pub fn root(value: &'v Value) -> Self {
        At { up: None, step: Step::Field(""), value }
    }

    /// A part of an object that stands at a path which is not read from the root.
    pub fn part(path: &'p str, value: &'v Value) -> Self {
        At { up: None, step: Step::Field(path), value }
    }

    /// The field at a dotted path.
    pub fn at<'q>(&'q self, path: &'q str) -> At<'q, 'v> {
        self.named(path, path)
    }

    /// The field at a path that upstream calls by another name.
    pub fn named<'q>(&'q self, shown: &'q str, path: &str) -> At<'q, 'v> {
        At { up: Some(self), step: Step::Field(shown), value: value::at(self.value, path).unwrap_or(&NULL) }
    }

    /// The entry of a map.
    pub fn key<'q>(&'q self, key: &'q str) -> At<'q, 'v> {
        At { up: Some(self), step: Step::Key(key), value: self.value.get(key).unwrap_or(&NULL) }
    }

    /// The element of a list.
    pub fn index<'q>(&'q self, index: usize) -> At<'q, 'v> {
        At { up: Some(self), step: Step::Index(index), value: self.value.get(index).unwrap_or(&NULL) }
    }

    /// The elements of a list.
    pub fn items<'q>(&'q self) -> impl Iterator<Item = At<'q, 'v>> {
        (0..self.len()).map(|index| self.index(index))
    }

    /// The entries of a map.
    pub fn entries<'q>(&'q self) -> impl Iterator<Item = (&'v str, At<'q, 'v>)>
    where
        'v: 'q,
    {
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(|(key, value)| (key.as_str(), At { up: Some(self), step: Step::Key(key), value }))
    }

    pub fn value(&self) -> &'v Value {
        self.value
    }

    /// The text; anything else is the empty one.
    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// The text of a field.
    pub fn text_at(&self, path: &str) -> &'v str {
        value::text(self.value, path)
    }

    /// The whole number, if it is one.
    pub fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// Whether it is true.
    pub fn flag(&self) -> bool {
        self.value.as_bool().unwrap_or_default()
    }

    /// Whether there is anything but null.
    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether a field is there.
    pub fn has(&self, path: &str) -> bool {
        value::at(self.value, path).is_some_and(|found| !found.is_null())
    }

    /// How many elements or entries there are.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(entries) => entries.len(),
            _ => 0,
        }
    }

    /// Whether there are no elements, entries or characters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.text().is_empty()
    }

    /// The amount, if it is one.
    pub fn quantity(&self) -> Option<Quantity> {
        if self.is_set() { Quantity::from_value(self.value)?.ok() } else { None }
    }
}

impl fmt::Display for At<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            up.fmt(f)?;
        }
        match self.step {
            Step::Field("") => Ok(()),
            Step::Field(name) => {
                let first = self.up.is_none_or(|up| up.up.is_none() && matches!(up.step, Step::Field("")));
                write!(f, "{}{name}", if first { "" } else { "." })
            }
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// What must hold somewhere in an object.
pub type Rules = fn(&At<'_, '_>, &mut Errors);

/// Everything that is wrong with an object.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    /// Whether all is well.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        self.0.extend(errors);
    }

    pub fn required(&mut self, at: &At<'_, '_>, detail: impl Into<String>) {
        self.push(FieldError::required(at.to_string(), detail));
    }

    /// Missing, if it is empty. Whether it is there.
    pub fn required_text(&mut self, at: &At<'_, '_>) -> bool {
        let there = !at.text().is_empty();
        if !there {
            self.required(at, "");
        }
        there
    }

    pub fn invalid(&mut self, at: &At<'_, '_>, detail: impl Into<String>) {
        self.push(FieldError::invalid(at.to_string(), at.value.clone(), detail));
    }

    /// Malformed, with another value shown than what stands there.
    pub fn invalid_value(&mut self, at: &At<'_, '_>, shown: impl Into<Value>, detail: impl Into<String>) {
        self.push(FieldError::invalid(at.to_string(), shown, detail));
    }

    /// Malformed text; absent text is shown as empty.
    pub fn invalid_text(&mut self, at: &At<'_, '_>, detail: impl Into<String>) {
        self.invalid_value(at, at.text(), detail);
    }

    /// A malformed number; an absent one is shown as zero.
    pub fn invalid_int(&mut self, at: &At<'_, '_>, detail: impl Into<String>) {
        self.invalid_value(at, at.int().unwrap_or(0), detail);
    }

    /// Text that a check has found problems with.
    pub fn problems(&mut self, at: &At<'_, '_>, problems: Problems) {
        for problem in problems {
            self.invalid_text(at, problem);
        }
    }

    /// A number that a check has found problems with.
    pub fn int_problems(&mut self, at: &At<'_, '_>, problems: Problems) {
        for problem in problems {
            self.invalid_int(at, problem);
        }
    }

    /// Not one of the values there are.
    pub fn not_supported(&mut self, at: &At<'_, '_>, supported: &[&str]) {
        self.push(FieldError::not_supported(at.to_string(), at.text(), supported.iter().copied()));
    }

    /// Text that must be one of several, where absent text is the empty one.
    pub fn one_of(&mut self, at: &At<'_, '_>, supported: &[&str]) {
        if !supported.contains(&at.text()) {
            self.not_supported(at, supported);
        }
    }

    /// Text that must be one of several, if it is there.
    pub fn one_of_if_set(&mut self, at: &At<'_, '_>, supported: &[&str]) {
        if at.is_set() {
            self.one_of(at, supported);
        }
    }

    /// Text that must be there and one of several.
    pub fn required_one_of(&mut self, at: &At<'_, '_>, supported: &[&str]) {
        if self.required_text(at) {
            self.one_of(at, supported);
        }
    }

    pub fn forbidden(&mut self, at: &At<'_, '_>, detail: impl Into<String>) {
        self.push(FieldError::forbidden(at.to_string(), detail));
    }

    /// Not allowed here, if it is there.
    pub fn forbidden_if_set(&mut self, at: &At<'_, '_>, detail: &str) {
        if at.is_set() {
            self.forbidden(at, detail);
        }
    }

    pub fn duplicate(&mut self, at: &At<'_, '_>, shown: impl Into<Value>) {
        self.push(FieldError::duplicate(at.to_string(), shown));
    }

    /// A reference to what is not there.
    pub fn not_found(&mut self, at: &At<'_, '_>, shown: impl Into<Value>) {
        self.push(FieldError::not_found(at.to_string(), shown));
    }

    /// A reference to what is not there, with advice.
    pub fn not_found_because(&mut self, at: &At<'_, '_>, shown: impl Into<Value>, detail: impl Into<String>) {
        let mut error = FieldError::not_found(at.to_string(), shown);
        error.detail = detail.into();
        self.push(error);
    }

    /// Beyond its longest length.
    pub fn too_long(&mut self, at: &At<'_, '_>, most: usize) {
        self.push(FieldError::too_long(at.to_string(), most));
    }

    pub fn too_many(&mut self, at: &At<'_, '_>, most: usize) {
        self.push(FieldError::too_many(at.to_string(), at.len(), most));
    }

    /// What the server takes for its own fault.
    pub fn internal(&mut self, at: &At<'_, '_>, detail: String) {
        self.push(FieldError { reason: FieldReason::Internal, path: at.to_string(), value: None, detail, shown: None });
    }

    /// A number that must not be below zero; absent is zero.
    pub fn not_negative(&mut self, at: &At<'_, '_>) {
        if at.int().unwrap_or(0) < 0 {
            self.invalid_int(at, NOT_NEGATIVE);
        }
    }

    /// A number that must be above zero; absent is zero.
    pub fn positive(&mut self, at: &At<'_, '_>) {
        if at.int().unwrap_or(0) <= 0 {
            self.invalid_int(at, "must be greater than zero");
        }
    }

    /// A number within bounds, if it is there.
    pub fn in_range_if_set(&mut self, at: &At<'_, '_>, low: i64, high: i64) {
        if let Some(number) = at.int() {
            self.int_problems(at, names::is_in_range(number, low, high));
        }
    }

    /// A user or a group, if it is there.
    pub fn user_id_if_set(&mut self, at: &At<'_, '_>) {
        if let Some(id) = at.int() {
            self.int_problems(at, names::is_valid_user_id(id));
        }
    }

    /// A port by its number or by its name.
    pub fn port(&mut self, at: &At<'_, '_>) {
        match at.value {
            Value::String(name) => self.problems(at, names::is_valid_port_name(name)),
            _ => self.int_problems(at, names::is_valid_port_num(at.int().unwrap_or(0))),
        }
    }

    /// An amount that must not be below zero.
    pub fn quantity_not_negative(&mut self, at: &At<'_, '_>) {
        if let Some(quantity) = at.quantity().filter(|quantity| quantity.signum() < 0) {
            self.invalid_value(at, quantity.to_string(), NOT_NEGATIVE);
        }
    }

    /// A field that stays as it was made.
    pub fn immutable(&mut self, new: &At<'_, '_>, old: &At<'_, '_>) {
        self.immutable_because(new, old, IMMUTABLE);
    }

    /// A field that stays as it was made, and whose value upstream does not show.
    pub fn immutable_unshown(&mut self, new: &At<'_, '_>, old: &At<'_, '_>) {
        if new.value != old.value {
            self.invalid_value(new, Value::Null, IMMUTABLE);
        }
    }

    /// A field that stays as it was made, in other words.
    pub fn immutable_because(&mut self, new: &At<'_, '_>, old: &At<'_, '_>, detail: &str) {
        if new.value != old.value {
            self.invalid(new, detail);
        }
    }

    /// The key of a label.
    pub fn label_name(&mut self, at: &At<'_, '_>) {
        self.problems(at, names::is_qualified_name(at.text()));
    }

    /// A map of labels.
    pub fn labels(&mut self, at: &At<'_, '_>) {
        if !at.is_empty() {
            objectmeta::validate_labels(at.value, &at.to_string(), &mut self.0);
        }
    }

    /// A map of annotations.
    pub fn annotations(&mut self, at: &At<'_, '_>) {
        if !at.is_empty() {
            objectmeta::validate_annotations(at.value, &at.to_string(), &mut self.0);
        }
    }

    /// A label selector, if there is one.
    pub fn label_selector(&mut self, at: &At<'_, '_>) {
        self.labels(&at.at("matchLabels"));
        for expression in at.at("matchExpressions").items() {
            let values = expression.at("values");
            match expression.text_at("operator") {
                "In" | "NotIn" => {
                    if values.is_empty() {
                        self.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                    }
                }
                "Exists" | "DoesNotExist" => {
                    if !values.is_empty() {
                        self.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                    }
                }
                _ => self.invalid_text(&expression.at("operator"), "not a valid selector operator"),
            }
            self.label_name(&expression.at("key"));
            for value in values.items() {
                self.problems(&value, names::is_label_value(value.text()));
            }
        }
    }
}

/// What an update may not do to an object whose spec stays as it was made, and that needs no other check.
pub fn immutable_spec(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    errors.immutable(&At::root(new).at("spec"), &At::root(old).at("spec"));
    errors.into_vec()
}

/// Whether a path starts at the root.
pub fn is_absolute(path: &str) -> bool {
    path.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_place_knows_its_path_and_its_value() {
        let object = json!({"spec": {"list": [{"map": {"a/b": 1}}]}});
        let root = At::root(&object);
        let spec = root.at("spec");
        let list = spec.at("list");
        let item = list.index(0);
        let map = item.at("map");
        assert_eq!(map.key("a/b").to_string(), "spec.list[0].map[a/b]");
        assert_eq!(map.key("a/b").int(), Some(1));
        assert_eq!(root.at("spec.list").to_string(), "spec.list");
        assert_eq!(spec.named("shown", "list").to_string(), "spec.shown");
        assert!(!item.at("nothing").is_set());
        assert_eq!(map.entries().next().expect("an entry").1.to_string(), "spec.list[0].map[a/b]");
        assert_eq!(At::part("template.spec", &object).at("x").to_string(), "template.spec.x");
    }

    #[test]
    fn selectors_are_checked_in_upstreams_words() {
        let object = json!({"selector": {"matchLabels": {"-": "b"}, "matchExpressions": [
            {"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]}, {"key": "a", "operator": "Is"}]}});
        let root = At::root(&object);
        let mut errors = Errors::new();
        errors.label_selector(&root.at("selector"));
        let shown: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert!(
            shown[0].starts_with("selector.matchLabels: Invalid value: \"-\": name part must consist of"),
            "{}",
            shown[0]
        );
        assert_eq!(
            shown[1..],
            [
                "selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                "selector.matchExpressions[2].operator: Invalid value: \"Is\": not a valid selector operator",
            ]
        );
    }
}
