//! What can be known before an expression runs: that its variables, fields and functions exist, and of which types.

use std::sync::Arc;

use crate::Problem;
use crate::ast::{Expr, Fold, Literal, Macro, Node};
use crate::signatures;
use crate::types::Type;

/// What an expression may use.
#[derive(Debug, Clone, Default)]
pub struct Declarations {
    variables: Vec<(String, Type)>,
    /// Objects may be built: `Object{...}` and `JSONPatch{...}` of mutations.
    pub builds_objects: bool,
    /// `cel.bind` gives names to what is used more than once.
    pub binds: bool,
    /// Fields may be spelled with escapes: `a__dot__b` is the field `a.b`.
    pub escaped_fields: bool,
}

impl Declarations {
    /// Adds a variable; one of the same name is replaced.
    pub fn add(&mut self, name: &str, ty: Type) {
        self.remove(name);
        self.variables.push((name.to_owned(), ty));
    }

    /// Takes a variable away.
    pub fn remove(&mut self, name: &str) {
        self.variables.retain(|(known, _)| known != name);
    }

    /// The type of a variable.
    pub fn get(&self, name: &str) -> Option<&Type> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, ty)| ty)
    }
}

/// The type of an expression, or everything that is wrong with it.
pub fn check(expr: &Expr, declarations: &Declarations) -> Result<Type, Vec<Problem>> {
    let mut checker = Checker { declarations, locals: Vec::new(), problems: Vec::new(), mixed: Vec::new(), formats: 0 };
    let ty = checker.expr(expr);
    if checker.problems.is_empty() {
        checker.problems.append(&mut checker.mixed);
    }
    // In the order of the text, however they were found.
    checker.problems.sort_by_key(|problem| problem.at);
    if checker.problems.is_empty() { Ok(ty.settled()) } else { Err(checker.problems) }
}

/// The type of a part of an expression that is known to be sound, with what the comprehensions around it declare.
pub(crate) fn type_in(expr: &Expr, declarations: &Declarations, locals: &[(Arc<str>, Type)]) -> Type {
    let locals = locals.to_vec();
    let mut checker = Checker { declarations, locals, problems: Vec::new(), mixed: Vec::new(), formats: 0 };
    checker.expr(expr).settled()
}

struct Checker<'a> {
    declarations: &'a Declarations,
    locals: Vec<(Arc<str>, Type)>,
    problems: Vec<Problem>,
    /// What only an expression that is otherwise sound is asked about: elements that are not of the type of those before them, and texts that
    /// are none of what they should be.
    mixed: Vec<Problem>,
    /// How many calls of `format` this is in: what they are given may be of any types.
    formats: usize,
}

/// Names of types are values too.
const TYPE_NAMES: [&str; 11] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type"];

impl Checker<'_> {
    fn wrong(&mut self, at: usize, message: impl Into<String>) -> Type {
        self.problems.push(Problem::new(at, message));
        Type::Dyn
    }

    fn expr(&mut self, expr: &Expr) -> Type {
        match &expr.node {
            Node::Literal(literal) => literal_type(literal),
            Node::Ident(name) => self.ident(expr.at, name),
            Node::Select { operand, field, optional } => {
                let qualified = match &operand.node {
                    // A variable whose name has a dot.
                    Node::Ident(name) => self.declarations.get(&format!("{name}.{field}")).cloned(),
                    _ => None,
                };
                if let Some(ty) = qualified {
                    return ty;
                }
                let ty = self.expr(operand);
                self.select(expr.at, &ty, field, *optional)
            }
            Node::Has { operand, field } => {
                let ty = self.expr(operand);
                self.select(expr.at, &ty, field, false);
                Type::Bool
            }
            Node::Call { function, args, .. } if matches!(&**function, "_&&_" | "_||_") => {
                args.iter().for_each(|arg| self.expect_bool(arg));
                Type::Bool
            }
            Node::Call { function, target, args } => {
                self.constant(function, args);
                let mut types = Vec::with_capacity(args.len() + 1);
                if let Some(target) = target {
                    types.push(self.expr(target));
                }
                let formats = usize::from(&**function == "format" && target.is_some());
                self.formats += formats;
                for arg in args {
                    let ty = self.expr(arg);
                    types.push(ty);
                }
                self.formats -= formats;
                self.call(expr.at, function, target.is_some(), &types)
            }
            Node::List(items) => {
                let mut of = None;
                for (item, optional) in items {
                    let ty = self.expr(item);
                    let ty = if *optional { unwrap_optional(&ty) } else { ty };
                    self.same(item.at, of.as_ref(), &ty);
                    of = Some(join(of, ty));
                }
                Type::list(of.unwrap_or(Type::Free))
            }
            Node::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for (key, value, optional) in entries {
                    let ty = self.expr(key);
                    self.same(key.at, keys.as_ref(), &ty);
                    keys = Some(join(keys, ty));
                    let ty = self.expr(value);
                    let ty = if *optional { unwrap_optional(&ty) } else { ty };
                    self.same(value.at, values.as_ref(), &ty);
                    values = Some(join(values, ty));
                }
                Type::map(keys.unwrap_or(Type::Free), values.unwrap_or(Type::Free))
            }
            Node::Struct { name, fields } => {
                for (_, value, _) in fields {
                    self.expr(value);
                }
                let builds = matches!(&**name, "Object" | "JSONPatch") || name.starts_with("Object.");
                if self.declarations.builds_objects && builds {
                    Type::Named(name.clone())
                } else {
                    self.wrong(expr.at, format!("undeclared reference to '{name}' (in container '')"))
                }
            }
            Node::Macro(fold) => self.fold(fold),
        }
    }

    /// An element is of the type of those before it; of `format` it need not be.
    fn same(&mut self, at: usize, before: Option<&Type>, ty: &Type) {
        if let Some(before) = before.filter(|before| !before.is_equivalent(ty) && self.formats == 0) {
            self.mixed.push(Problem::new(at, format!("expected type '{before:#}' but found '{ty:#}'")));
        }
    }

    fn ident(&mut self, at: usize, name: &str) -> Type {
        if let Some((_, ty)) = self.locals.iter().rev().find(|(known, _)| &**known == name) {
            return ty.clone();
        }
        match self.declarations.get(name) {
            Some(ty) => ty.clone(),
            None if TYPE_NAMES.contains(&name) => Type::Type,
            None => self.wrong(at, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, at: usize, ty: &Type, field: &str, optional: bool) -> Type {
        let found = match ty {
            Type::Dyn | Type::Any | Type::Free => Type::Dyn,
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match object.field(field) {
                Some(ty) => ty.clone(),
                None => return self.wrong(at, format!("undefined field '{field}'")),
            },
            Type::Optional(inner) => {
                let inner = self.select(at, inner, field, false);
                return Type::Optional(Arc::new(inner));
            }
            other => return self.wrong(at, format!("type '{other:#}' does not support field selection")),
        };
        if optional { Type::Optional(Arc::new(found)) } else { found }
    }

    fn call(&mut self, at: usize, function: &str, method: bool, types: &[Type]) -> Type {
        let all = signatures::of(function);
        if all.is_empty() {
            return self.wrong(at, format!("undeclared reference to '{function}' (in container '')"));
        }
        let fitting: Vec<&signatures::Signature> = all
            .iter()
            .filter(|signature| signature.method == method && signature.params.len() == types.len())
            .filter(|signature| fit(&signature.params, types).is_some())
            .collect();
        let mut results = fitting.iter().map(|signature| {
            let bound = fit(&signature.params, types).unwrap_or_default();
            substitute(&signature.result, &bound)
        });
        let Some(first) = results.next() else {
            let shown: Vec<String> = types.iter().map(|ty| format!("{ty:#}")).collect();
            let shown = match (method, shown.split_first()) {
                (true, Some((target, args))) => format!("{target}.({})", args.join(", ")),
                _ => format!("({})", shown.join(", ")),
            };
            return self.wrong(at, format!("found no matching overload for '{function}' applied to '{shown}'"));
        };
        // Several fit only when something is not known yet.
        if results.all(|other| other == first) { first } else { Type::Dyn }
    }

    /// What can be known of a text before it is ever used: whether it is a pattern, a time, a span.
    fn constant(&mut self, function: &str, args: &[Expr]) {
        let Some(Expr { at, node: Node::Literal(Literal::String(text)), .. }) = args.last() else { return };
        let sound = match function {
            "matches" => regex::Regex::new(text).is_ok(),
            "timestamp" => machinery::time::parse(text).is_some(),
            "duration" => machinery::duration::parse_nanos(text).is_ok(),
            _ => true,
        };
        if !sound {
            self.mixed.push(Problem::new(*at, format!("invalid {function} argument")));
        }
    }

    fn fold(&mut self, fold: &Macro) -> Type {
        let range = self.expr(&fold.range);
        let two = fold.names.len() == 2;
        let (first, second) = match (&range, fold.fold) {
            (Type::Optional(inner), Fold::OptMap | Fold::OptFlatMap) => ((**inner).clone(), Type::Dyn),
            (bound, Fold::Bind) => (bound.clone(), Type::Dyn),
            (Type::List(of), _) if two => (Type::Int, (**of).clone()),
            (Type::List(of), _) => ((**of).clone(), Type::Dyn),
            (Type::Map(key, value), _) => ((**key).clone(), (**value).clone()),
            (Type::Dyn | Type::Free, _) => (Type::Dyn, Type::Dyn),
            (other, _) => {
                let message = format!(
                    "expression of type '{other:#}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                (self.wrong(fold.range.at, message), Type::Dyn)
            }
        };
        let (first, second) = (first.settled(), second.settled());
        let known = self.locals.len();
        self.locals.extend(fold.names.iter().cloned().zip([first.clone(), second]));
        if let Some(filter) = &fold.filter {
            self.expect_bool(filter);
        }
        let body = if matches!(fold.fold, Fold::All | Fold::Exists | Fold::ExistsOne | Fold::Filter) {
            self.expect_bool(&fold.body);
            Type::Bool
        } else {
            self.expr(&fold.body)
        };
        self.locals.truncate(known);
        match fold.fold {
            Fold::All | Fold::Exists | Fold::ExistsOne => Type::Bool,
            Fold::Map => Type::list(body),
            Fold::Filter => Type::list(first),
            Fold::TransformMap => Type::map(first, body),
            Fold::TransformMapEntry => body,
            Fold::SortBy => range,
            Fold::OptFlatMap | Fold::Bind => body,
            Fold::OptMap => Type::Optional(Arc::new(body)),
        }
    }

    fn expect_bool(&mut self, expr: &Expr) {
        let ty = self.expr(expr);
        if !matches!(ty, Type::Bool | Type::Dyn | Type::Any | Type::Free) {
            self.wrong(expr.at, format!("expected type 'bool' but found '{ty:#}'"));
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

fn unwrap_optional(ty: &Type) -> Type {
    match ty {
        Type::Optional(inner) => (**inner).clone(),
        other => other.clone(),
    }
}

/// One type for both: the same, or unknown.
fn join(one: Option<Type>, other: Type) -> Type {
    match one {
        None => other,
        // The one that knows more.
        Some(one) if one.is_equivalent(&other) => {
            if one == one.settled() {
                one
            } else {
                other
            }
        }
        Some(_) => Type::Dyn,
    }
}

type Bound = Vec<(char, Type)>;

/// Whether arguments fit parameters, and what the parameters then stand for.
fn fit(params: &[Type], types: &[Type]) -> Option<Bound> {
    let mut bound = Bound::new();
    params.iter().zip(types).all(|(param, ty)| fits(param, ty, &mut bound)).then_some(bound)
}

fn fits(param: &Type, ty: &Type, bound: &mut Bound) -> bool {
    match (param, ty) {
        (Type::Param(letter), _) => match bound.iter().position(|(known, _)| known == letter) {
            None => {
                bound.push((*letter, ty.clone()));
                true
            }
            Some(at) => {
                let known = bound[at].1.clone();
                // What is unknown says nothing about what it is compared with, and null little.
                if matches!(known, Type::Dyn | Type::Any | Type::Null) || known != known.settled() {
                    bound[at].1 = ty.clone();
                }
                assignable(&known, ty)
            }
        },
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => fits(a, b, bound),
        (Type::Map(a, c), Type::Map(b, d)) => fits(a, b, bound) && fits(c, d, bound),
        _ => assignable(param, ty),
    }
}

/// Whether a value of one type may be one of the other.
fn assignable(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Any | Type::Free, _) | (_, Type::Dyn | Type::Any | Type::Free) => true,
        // Anything that is an object may be null; numbers and truths may not.
        (
            Type::Null,
            Type::Object(_) | Type::Named(_) | Type::Timestamp | Type::Duration | Type::Null | Type::Optional(_),
        )
        | (Type::Object(_) | Type::Named(_) | Type::Timestamp | Type::Duration | Type::Optional(_), Type::Null) => true,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => assignable(a, b),
        (Type::Map(a, c), Type::Map(b, d)) => assignable(a, b) && assignable(c, d),
        (a, b) => a == b,
    }
}

fn substitute(ty: &Type, bound: &Bound) -> Type {
    match ty {
        Type::Param(letter) => {
            bound.iter().find(|(known, _)| known == letter).map_or(Type::Free, |(_, bound)| bound.clone())
        }
        Type::List(of) => Type::list(substitute(of, bound)),
        Type::Map(key, value) => Type::map(substitute(key, bound), substitute(value, bound)),
        Type::Optional(of) => Type::Optional(Arc::new(substitute(of, bound))),
        other => other.clone(),
    }
}
