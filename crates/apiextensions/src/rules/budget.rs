//! What is wrong with the rules of a schema, before any object is there: that they do not compile, look at what they cannot, or might cost too much.

use cel::Type;
use machinery::Value;
use machinery::status::{FieldError, FieldReason};
use serde_json::json;

use super::decl::{self, Decl, MAX_REQUEST};
use super::{compile_one, declarations};
use crate::{Additional, ListType, MapType, Rule, Schema};

/// What one expression may cost at most.
const EXPRESSION_LIMIT: u64 = 10_000_000;
/// What all expressions of a schema may cost at most.
const SCHEMA_LIMIT: u64 = 100_000_000;

/// The errors of the rules of a schema that stands at `path`. What an expression of its own may cost is not judged where nothing has changed, and
/// rules above `broken` paths are not looked at: their types could not be told.
pub fn inspect(schema: &Schema, path: &str, unchanged: bool, broken: &[String]) -> Vec<FieldError> {
    let mut inspector = Inspector { unchanged, broken, total: 0, expensive: Vec::new(), errors: Vec::new() };
    let place = Place { path: path.to_owned(), resource: true, times: Some(1), uncorrelated: None };
    inspector.schema(schema, Known::Unasked, &place);
    let Inspector { total, mut expensive, mut errors, .. } = inspector;
    if total > SCHEMA_LIMIT {
        expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        let contributed = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.extend(expensive.into_iter().take(4).map(|(path, _)| FieldError::forbidden(path, contributed)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, too_expensive(what, total, SCHEMA_LIMIT)));
    }
    errors
}

/// A place of a schema.
struct Place {
    path: String,
    resource: bool,
    /// How often there can be something here; nothing if nobody knows.
    times: Option<u64>,
    /// The place above whose items cannot be told apart from one version of an object to the next.
    uncorrelated: Option<String>,
}

/// What is known of the type of a place.
#[derive(Clone, Copy)]
enum Known<'d> {
    /// There are no rules above.
    Unasked,
    /// Rules above see it as this.
    As(&'d Decl),
    /// Rules above cannot see it, but it may have rules of its own.
    Unseen,
    /// Rules above see a list or map whose elements have no type.
    Empty,
    /// No type could be made of it or of something above.
    Failed,
}

struct Inspector<'b> {
    unchanged: bool,
    broken: &'b [String],
    total: u64,
    /// Where, and what it may cost.
    expensive: Vec<(String, u64)>,
    errors: Vec<FieldError>,
}

impl Inspector<'_> {
    fn schema(&mut self, schema: &Schema, known: Known<'_>, place: &Place) {
        // The type of a place is made where rules begin, and then taken from above.
        let own;
        let known = match known {
            Known::Unasked if schema.rules.is_empty() => Known::Unasked,
            Known::Unasked | Known::Unseen => {
                own = decl::of(schema, place.resource);
                own.as_ref().map_or(Known::Failed, Known::As)
            }
            known => known,
        };
        let element = match known {
            Known::As(decl) => decl.element.as_deref().map_or(Known::Empty, Known::As),
            known => known,
        };
        let times = most_elements(schema);
        if let Additional::Schema(values) = &schema.additional {
            self.schema(values, element, &place.below("additionalProperties", values, times));
        }
        for (name, property) in &schema.properties {
            let mut below = place.below(&format!("properties[{name}]"), property, times);
            if schema.map_type == Some(MapType::Atomic) {
                below.uncorrelated.get_or_insert_with(|| place.path.clone());
            }
            let field = match known {
                Known::As(decl) => decl.field(name).map_or(Known::Unseen, Known::As),
                known => known,
            };
            self.schema(property, field, &below);
        }
        if let Some(items) = &schema.items {
            let mut below = place.below("items", items, times);
            if schema.list_type != Some(ListType::Map) {
                below.uncorrelated.get_or_insert_with(|| place.path.clone());
            }
            self.schema(items, element, &below);
        }
        if schema.rules.is_empty() || self.is_broken(&place.path) {
            return;
        }
        let rules = format!("{}.x-kubernetes-validations", place.path);
        let failed = match known {
            Known::As(decl) => {
                for (index, rule) in schema.rules.iter().enumerate() {
                    self.rule(rule, decl, place, &format!("{rules}[{index}]"));
                }
                return;
            }
            Known::Empty => "failed to convert to declType for CEL validation rules",
            Known::Unasked | Known::Unseen | Known::Failed => {
                "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"
            }
        };
        let (reason, detail) = (FieldReason::Internal, failed.to_owned());
        self.errors.push(FieldError { reason, path: rules, value: None, detail, shown: None });
    }

    /// Whether something is wrong with the schema at a path or below it.
    fn is_broken(&self, path: &str) -> bool {
        self.broken.iter().any(|broken| broken.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '['])))
    }

    fn rule(&mut self, rule: &Rule, decl: &Decl, place: &Place, path: &str) {
        if rule.rule.trim().is_empty() {
            return;
        }
        let declarations = declarations(decl, rule.optional_old_self.unwrap_or(false));
        let sizes = |path: &[std::sync::Arc<str>]| decl.size_at(path);
        let at = format!("{path}.rule");
        let mut uses_old = false;
        let compiled = compile_one(&rule.rule, decl, &declarations, &Type::Bool, "");
        let good = compiled.is_ok();
        match compiled {
            Ok(program) => {
                uses_old = program.mentions("oldSelf");
                let times = place.times.unwrap_or_else(|| (MAX_REQUEST / (decl.min_size + 1)) as u64);
                let cost = program.estimate(&declarations, &sizes).saturating_mul(times);
                self.observe("estimated rule cost", cost, at.clone());
            }
            Err(why) => {
                let detail = why.unwrap_or_else(|| "cel expression must evaluate to a bool".to_owned());
                self.errors.push(invalid(at.clone(), rule, detail));
            }
        }
        if good && !rule.message_expression.is_empty() {
            let at = format!("{path}.messageExpression");
            match compile_one(&rule.message_expression, decl, &declarations, &Type::String, "messageExpression ") {
                Ok(program) => {
                    self.observe("estimated messageExpression cost", program.estimate(&declarations, &sizes), at);
                }
                Err(why) => {
                    let detail = why.unwrap_or_else(|| "messageExpression must evaluate to a string".to_owned());
                    self.errors.push(invalid(at, rule, detail));
                }
            }
        }
        match (&place.uncorrelated, rule.optional_old_self) {
            (Some(within), _) if uses_old => {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                self.errors.push(FieldError::invalid(at, rule.rule.as_str(), detail));
            }
            (_, Some(optional)) if !uses_old => {
                let detail = "may not be set if oldSelf is not used in rule";
                self.errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), optional, detail));
            }
            _ => {}
        }
    }

    /// Adds a cost, and says so if it is too high on its own.
    fn observe(&mut self, what: &str, cost: u64, at: String) {
        if !self.unchanged && cost > EXPRESSION_LIMIT {
            self.errors.push(FieldError::forbidden(at.clone(), too_expensive(what, cost, EXPRESSION_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((at, cost));
        }
    }
}

impl Place {
    fn below(&self, step: &str, schema: &Schema, times: Option<u64>) -> Self {
        Self {
            path: format!("{}.{step}", self.path),
            resource: schema.embedded_resource,
            times: self.times.zip(times).map(|(above, here)| above.saturating_mul(here)),
            uncorrelated: self.uncorrelated.clone(),
        }
    }
}

/// A rule that does not compile, shown as upstream shows it.
fn invalid(at: String, rule: &Rule, detail: String) -> FieldError {
    let optional = |text: &str| if text.is_empty() { "null".to_owned() } else { json!(text).to_string() };
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        json!(rule.rule),
        json!(rule.message),
        json!(rule.message_expression),
        optional(&rule.reason),
        json!(rule.field_path),
        json!(rule.optional_old_self),
    );
    FieldError {
        shown: Some(machinery::codec::json::html_safe(&shown)),
        ..FieldError::invalid(at, Value::Null, detail)
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// How many elements of its kind each of the parts of a place can be; nothing if nobody knows.
fn most_elements(schema: &Schema) -> Option<u64> {
    let limits = schema.limits.as_deref();
    let most = |limit: Option<i64>| limit.map(|most| most.max(0) as u64);
    match (schema.types.only(), &schema.additional) {
        (Some("object"), Additional::Schema(_) | Additional::Allowed(_)) => {
            most(limits.and_then(|limits| limits.max_properties))
        }
        (Some("array"), _) => most(limits.and_then(|limits| limits.max_items)),
        _ => Some(1),
    }
}
