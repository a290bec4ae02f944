//! `x-kubernetes-validations`: expressions that hold for the objects of a custom resource.
//!
//! Expressions are compiled once per schema, with the types of the schema ([`decl`]), and asked from the root down, each about its own place, within one
//! budget for the whole object. What was wrong before and has not changed is told as a warning only.

mod budget;
mod decl;
mod path;
#[cfg(test)]
mod tests;
mod typed;

use cel::{Declarations, Fault, PER_CALL_LIMIT, Program, Scope, Type};
use machinery::Value;
use machinery::status::{FieldError, FieldReason, go_quote};

use crate::correlate::{OldItems, same};
use crate::schema::Combined;
use crate::{Additional, Rule, Schema};
use decl::Decl;

pub use budget::inspect;
pub use decl::of_kind;
pub use path::field_path;

/// What all rules may cost for one object, or for all defaults of a schema.
pub(crate) const BUDGET: u64 = 10_000_000;
/// The longest message that an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;
const EXHAUSTED: &str = "validation failed due to running out of cost budget, no further validation rules will be run";
/// What is said instead, when the object has errors that rules could not be asked about.
const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// The rules of a schema.
#[derive(Debug, Default)]
pub struct Rules {
    root: Option<Node>,
}

/// The rules of a place and of what is below it.
#[derive(Debug)]
struct Node {
    /// `type` of the schema.
    kind: &'static str,
    /// Whether values have to be told by their type: a time is a text in JSON.
    typed: bool,
    rules: Vec<Compiled>,
    /// Whether no type could be made, so that no rule can be asked.
    untyped: bool,
    items: Option<Box<Node>>,
    properties: Vec<(String, Node)>,
    additional: Option<Box<Node>>,
    all_of: Vec<Node>,
}

#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Result<Program, String>,
    message: Option<Program>,
    uses_old: bool,
    /// Where the error is, below the place of the rule.
    path: String,
}

impl Rules {
    /// Compiles the rules of a schema, which is that of whole objects.
    pub fn compile(schema: &Schema) -> Self {
        Self::of_part(schema, true)
    }

    /// Compiles the rules of a schema, which is that of resources or of parts of them.
    pub(crate) fn of_part(schema: &Schema, resource: bool) -> Self {
        Self { root: node(schema, schema, decl::of(schema, resource).as_ref()) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Asks the rules about an object that replaces `old`, after `errors` have been found in it, and adds what they say. What was so before goes to
    /// `warnings`.
    pub fn validate(
        &self,
        schema: &Schema,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Vec<FieldError>,
        warnings: &mut Vec<String>,
    ) {
        let Some(root) = &self.root else { return };
        let blocking = |error: &FieldError| {
            use FieldReason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(error.reason, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        // What everybody checks of metadata counts as well.
        let about = object.get("metadata").map(|metadata| {
            let namespaced = !machinery::value::text(metadata, "namespace").is_empty();
            machinery::objectmeta::validate_object_meta(metadata, namespaced, |_, _| Vec::new(), "metadata")
        });
        if errors.iter().chain(about.iter().flatten()).any(blocking) {
            return errors.push(FieldError::invalid("<nil>", Value::Null, UNCHECKED));
        }
        let floats = typed::has_floats(object) || old.is_some_and(typed::has_floats);
        let mut asking = Asking { budget: BUDGET, floats, errors, warnings };
        let before = Before { old, above: None, root: true };
        asking.place(&Place { node: root, schema, value: object, old, before, path: "" });
    }

    /// Asks the rules about a value that is always new, such as a default, within what is left of a budget.
    pub(crate) fn ask(&self, schema: &Schema, value: &Value, old: Option<&Value>, budget: &mut u64) -> Vec<FieldError> {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        if let Some(root) = &self.root {
            let floats = typed::has_floats(value) || old.is_some_and(typed::has_floats);
            let mut asking = Asking { budget: *budget, floats, errors: &mut errors, warnings: &mut warnings };
            let before = Before { old: None, above: None, root: true };
            asking.place(&Place { node: root, schema, value, old, before, path: "" });
            *budget = asking.budget;
        }
        errors
    }
}

/// What is known of the value that another replaces, for what was wrong before.
#[derive(Clone, Copy)]
struct Before<'a> {
    /// The old value here.
    old: Option<&'a Value>,
    /// The nearest place above whose old value is known, old and new.
    above: Option<(&'a Schema, &'a Value, &'a Value)>,
    root: bool,
}

impl<'a> Before<'a> {
    /// Whether nothing has changed here, or above where that is all that is known.
    fn excuses(self, schema: &Schema, value: &Value) -> bool {
        match self.old {
            Some(old) => same(schema, value, old),
            None => self.above.is_some_and(|(schema, old, new)| same(schema, new, old)),
        }
    }

    fn below(self, schema: &'a Schema, value: &'a Value, get: impl FnOnce(&'a Value) -> Option<&'a Value>) -> Self {
        match self.old {
            Some(old) => Self { old: get(old), above: Some((schema, old, value)), root: false },
            None => self,
        }
    }

    fn field(self, schema: &'a Schema, value: &'a Value, name: &str) -> Self {
        if self.root && matches!(name, "apiVersion" | "kind") {
            return Self { old: None, above: None, root: false };
        }
        self.below(schema, value, |old| old.get(name))
    }
}

struct Asking<'e> {
    budget: u64,
    /// Whether there are numbers that are no integers.
    floats: bool,
    errors: &'e mut Vec<FieldError>,
    warnings: &'e mut Vec<String>,
}

/// A place of an object, with the rules that there are about it.
struct Place<'a> {
    node: &'a Node,
    schema: &'a Schema,
    value: &'a Value,
    /// What it replaces, as rules see it.
    old: Option<&'a Value>,
    before: Before<'a>,
    path: &'a str,
}

/// No more rules are asked.
struct Stop;

impl Asking<'_> {
    fn place(&mut self, place: &Place<'_>) -> Option<Stop> {
        let Place { node, schema, value, old, before, path } = *place;
        if value.is_null() {
            return None;
        }
        if let Some(stop) = self.rules(place) {
            return Some(stop);
        }
        for one in &node.all_of {
            let before = Before { old: None, ..before };
            if let Some(stop) = self.place(&Place { node: one, before, ..*place }) {
                return Some(stop);
            }
        }
        match value {
            Value::Array(items) => {
                let (Some(below), Some(of)) = (&node.items, &schema.items) else { return None };
                let (old_items, items_before) = (OldItems::of(schema, old), OldItems::of(schema, before.old));
                for (index, item) in items.iter().enumerate() {
                    let old = old_items.get(schema, item);
                    let before = before.below(schema, value, |_| items_before.get(schema, item));
                    let path = format!("{path}[{index}]");
                    let stop = self.place(&Place { node: below, schema: of, value: item, old, before, path: &path });
                    if stop.is_some() {
                        return stop;
                    }
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let (below, of, path) = match (node.property(name), &node.additional) {
                        (Some(below), _) if path.is_empty() => (below, schema.property(name), name.clone()),
                        (Some(below), _) => (below, schema.property(name), format!("{path}.{name}")),
                        (None, Some(below)) => (&**below, schema.field(name), format!("{path}[{name}]")),
                        (None, None) => continue,
                    };
                    let Some(of) = of else { continue };
                    let old = old.and_then(|old| old.get(name));
                    let before = before.field(schema, value, name);
                    let stop = self.place(&Place { node: below, schema: of, value: field, old, before, path: &path });
                    if stop.is_some() {
                        return stop;
                    }
                }
            }
            _ => {}
        }
        None
    }

    fn rules(&mut self, place: &Place<'_>) -> Option<Stop> {
        let Place { node, schema, value, .. } = *place;
        let old = place.old.filter(|old| !old.is_null());
        if node.untyped {
            let message = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            self.errors.push(FieldError::invalid(place.shown(), node.kind, message));
            return None;
        }
        if node.rules.is_empty() {
            return None;
        }
        let mut scope = Scope::new(PER_CALL_LIMIT);
        let floats = self.floats;
        let typed = |value| match node.typed || floats {
            true => typed::value(schema, value, floats),
            false => cel::Value::from(value),
        };
        scope.add("self", typed(value));
        for compiled in &node.rules {
            let optional = compiled.rule.optional_old_self.unwrap_or(false);
            if compiled.uses_old && old.is_none() && !optional {
                continue;
            }
            if compiled.uses_old {
                match (old, optional) {
                    (Some(old), false) => scope.add("oldSelf", typed(old)),
                    (Some(old), true) => scope.add("oldSelf", cel::Value::some(typed(old))),
                    (None, _) => scope.add("oldSelf", cel::Value::Optional(None)),
                }
            }
            match self.rule(compiled, place, &scope) {
                Ok(()) => {}
                Err(stop) => return Some(stop),
            }
        }
        None
    }

    fn rule<'a>(&mut self, compiled: &'a Compiled, place: &Place<'_>, scope: &Scope<'a>) -> Result<(), Stop> {
        let Place { node, value, .. } = *place;
        let invalid = |message: String| FieldError::invalid(place.shown(), node.kind, message);
        let program = match &compiled.program {
            Ok(program) => program,
            Err(why) => {
                self.errors.push(invalid(format!("rule compile error: {why}")));
                return Ok(());
            }
        };
        if self.budget == 0 {
            self.errors.push(invalid(EXHAUSTED.to_owned()));
            return Err(Stop);
        }
        let outcome = program.evaluate(scope);
        let cost = scope.take_cost();
        if !matches!(outcome, Err(Fault::Cost)) && cost > self.budget {
            self.errors.push(invalid(EXHAUSTED.to_owned()));
            return Err(Stop);
        }
        self.budget = self.budget.saturating_sub(cost);
        let text = text_of(&compiled.rule);
        match outcome {
            Ok(cel::Value::Bool(true)) => return Ok(()),
            Ok(_) => {}
            Err(Fault::Cost) => {
                let limit = Fault::Cost;
                let message = format!(
                    "'{limit}': no further validation rules will be run due to call cost exceeds limit for rule: {text}"
                );
                self.errors.push(invalid(message));
                return Err(Stop);
            }
            Err(fault) if fault.to_string().starts_with("no such overload") => {
                let message = format!(
                    "'{fault}': call arguments did not match a supported operator, function or macro signature for rule: {text}"
                );
                self.errors.push(invalid(message));
                return Ok(());
            }
            Err(fault) => {
                self.errors.push(invalid(format!("{fault} evaluating rule: {text}")));
                return Ok(());
            }
        }
        let at = match (compiled.path.as_str(), place.shown()) {
            ("", place) => place.to_owned(),
            (path, "<nil>") => path.to_owned(),
            (path, place) => format!("{place}.{path}"),
        };
        let made = compiled.message.as_ref().map(|message| self.message(message, scope));
        let (error, stops) = match made {
            Some(Err(Some(why))) => (FieldError::invalid(at, node.kind, why), true),
            other => (failed(&compiled.rule, node, value, at, other.and_then(Result::ok)), false),
        };
        if !compiled.uses_old && place.before.excuses(place.schema, value) {
            self.warnings.push(error.to_string());
        } else {
            self.errors.push(error);
        }
        if stops { Err(Stop) } else { Ok(()) }
    }

    /// The message that an expression makes; an error without a text means that another message has to do.
    fn message<'a>(&mut self, message: &'a Program, scope: &Scope<'a>) -> Result<String, Option<String>> {
        let outcome = message.evaluate(scope);
        let cost = scope.take_cost();
        if matches!(outcome, Err(Fault::Cost)) {
            let source = go_quote(message.source());
            return Err(Some(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source}"
            )));
        }
        if cost > self.budget {
            let why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            return Err(Some(why.to_owned()));
        }
        self.budget -= cost;
        let made = outcome.map_err(|_| None)?;
        let text = made.as_str().map(str::trim).ok_or(None)?;
        let fits = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
        if fits { Ok(text.to_owned()) } else { Err(None) }
    }
}

impl Place<'_> {
    fn shown(&self) -> &str {
        if self.path.is_empty() { "<nil>" } else { self.path }
    }
}

/// The error of a rule that does not hold.
fn failed(rule: &Rule, node: &Node, value: &Value, at: String, message: Option<String>) -> FieldError {
    let detail = message.unwrap_or_else(|| match rule.message.as_str() {
        "" => format!("failed rule: {}", text_of(rule)),
        message => message.trim().to_owned(),
    });
    let shown = (!matches!(node.kind, "object" | "array")).then(|| value.clone());
    match rule.reason.as_str() {
        "FieldValueForbidden" => FieldError::forbidden(at, detail),
        "FieldValueRequired" => FieldError::required(at, detail),
        "FieldValueDuplicate" => FieldError { value: shown, ..FieldError::duplicate(at, Value::Null) },
        _ => FieldError { value: shown, ..FieldError::invalid(at, Value::Null, detail) },
    }
}

/// How a rule is named in messages.
fn text_of(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

impl Node {
    fn property(&self, name: &str) -> Option<&Node> {
        self.properties.iter().find(|(known, _)| known == name).map(|(_, node)| node)
    }
}

/// The rules that `validation` has about places of `schema`; they are the same but below `allOf`.
fn node(validation: &Schema, schema: &Schema, decl: Option<&Decl>) -> Option<Node> {
    let rules: Vec<Compiled> = match decl {
        Some(decl) => validation.rules.iter().filter_map(|rule| compile(rule, schema, decl).ok()).collect(),
        None => Vec::new(),
    };
    let items = match (&validation.items, &schema.items) {
        (Some(validation), Some(schema)) => {
            let element = decl.and_then(|decl| decl.element.as_deref());
            node(validation, schema, element).map(Box::new)
        }
        _ => None,
    };
    let mut properties = Vec::new();
    for (name, validation) in &validation.properties {
        let Some(property) = schema.property(name) else { continue };
        let own;
        let below = match decl.and_then(|decl| decl.field(name)) {
            Some(below) => below,
            // What expressions cannot spell they cannot look at from above, but it has rules of its own.
            None if cel::escape(name).is_none() => {
                own = decl::of(property, property.embedded_resource);
                let Some(own) = &own else { continue };
                own
            }
            // The metadata of a resource has the rules of the schema, and the type that every resource has.
            None => continue,
        };
        properties.extend(node(validation, property, Some(below)).map(|node| (name.clone(), node)));
    }
    let additional = match (&validation.additional, &schema.additional) {
        (Additional::Schema(validation), Additional::Schema(schema)) => {
            let element = decl.and_then(|decl| decl.element.as_deref());
            node(validation, schema, element).map(Box::new)
        }
        _ => None,
    };
    let empty = Vec::new();
    let all = validation.combined.as_deref().map_or(&empty, |Combined { all_of, .. }| all_of);
    let all_of: Vec<Node> = all.iter().filter_map(|one| node(one, schema, decl)).collect();
    let untyped = decl.is_none() && !validation.rules.is_empty();
    let nothing = rules.is_empty() && items.is_none() && properties.is_empty() && additional.is_none();
    if nothing && all_of.is_empty() && !untyped {
        return None;
    }
    Some(Node {
        kind: schema.types.only().unwrap_or_default(),
        typed: !rules.is_empty() && typed::is_needed(schema),
        rules,
        untyped,
        items,
        properties,
        additional,
        all_of,
    })
}

/// What the expressions of a rule may use.
fn declarations(decl: &Decl, optional: bool) -> Declarations {
    declare(decl.ty.clone(), optional)
}

fn declare(of: Type, optional: bool) -> Declarations {
    let mut declarations = Declarations::default();
    declarations.escaped_fields = true;
    declarations.add("self", of.clone());
    declarations.add("oldSelf", if optional { Type::Optional(of.into()) } else { of });
    declarations
}

/// A rule that says nothing.
struct Empty;

fn compile(rule: &Rule, schema: &Schema, decl: &Decl) -> Result<Compiled, Empty> {
    if rule.rule.trim().is_empty() {
        return Err(Empty);
    }
    let declarations = declarations(decl, rule.optional_old_self.unwrap_or(false));
    let program = compile_one(&rule.rule, decl, &declarations, &Type::Bool, "")
        .map_err(|why| why.unwrap_or_else(|| "cel expression must evaluate to a bool".to_owned()));
    let message = (!rule.message_expression.is_empty())
        .then(|| compile_one(&rule.message_expression, decl, &declarations, &Type::String, "messageExpression ").ok());
    Ok(Compiled {
        uses_old: program.as_ref().is_ok_and(|program| program.mentions("oldSelf")),
        path: field_path(&rule.field_path, schema, true).map(|(path, _)| path).unwrap_or_default(),
        message: message.flatten(),
        program,
        rule: rule.clone(),
    })
}

/// Compiles an expression that has to be of a type; without a text the type is wrong.
fn compile_one(
    source: &str,
    decl: &Decl,
    declarations: &Declarations,
    wanted: &Type,
    what: &str,
) -> Result<Program, Option<String>> {
    match Program::compile(source, declarations) {
        Ok(program) if program.output() == wanted => Ok(program),
        Ok(_) => Err(None),
        Err(why) => {
            // Types get their names only for whom they are shown to: large schemas have thousands.
            let optional = matches!(declarations.get("oldSelf"), Some(Type::Optional(_)));
            let named = declare(decl::named(&decl.ty, "selfType1"), optional);
            let why = Program::compile(source, &named).err().unwrap_or(why);
            Err(Some(format!("{what}compilation failed: {why}")))
        }
    }
}
