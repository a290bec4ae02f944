//! What an expression can cost at most, computed before it ever runs.
//!
//! Upstream refuses some expressions for what they might cost on the largest object there can be. The numbers are those of its
//! estimator: a step costs one, a text a tenth per character, a comprehension its body as often as its range may have
//! elements. How large things are is known of literals, of scalars, and of what the caller knows the limits of.

use std::sync::Arc;

use crate::ast::{Expr, Fold, Literal, Macro, Node};
use crate::check::{Declarations, type_in};
use crate::types::Type;

/// Says how large what is at a path can be. Elements of lists are at `@items`, entries of maps at `@keys` and `@values`.
pub type Sizes<'a> = &'a dyn Fn(&[Arc<str>]) -> Option<u64>;

/// The cost of traversing a character, and of a character of a pattern.
const TRAVERSAL: f64 = 0.1;
const PATTERN: f64 = 0.25;
const LIST: u64 = 10;
const MAP: u64 = 30;
const STRUCT: u64 = 40;
/// The longest pattern behind the names that `validate` knows.
const NAMED_PATTERN: f64 = 128.0;

/// How many characters or elements there are, at least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    min: u64,
    max: u64,
}

impl Size {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    const fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// What it costs to look at all of it.
    fn traversal(self) -> u64 {
        scaled(self.max, TRAVERSAL)
    }
}

/// Rounded up, and bounded.
fn scaled(count: u64, factor: f64) -> u64 {
    // Beyond the largest number there is nothing: a conversion from a larger one gives just that.
    (count as f64 * factor).ceil() as u64
}

/// The keys (or indices) and values of a container that an expression makes.
#[derive(Debug, Clone, Copy)]
struct Entries {
    list: bool,
    key: Size,
    value: Size,
}

impl Entries {
    fn or(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = (one?, other?);
        Some(Self { list: one.list, key: one.key.or(other.key), value: one.value.or(other.value) })
    }
}

/// What is known of an expression.
#[derive(Debug, Clone)]
struct Known {
    cost: u64,
    size: Option<Size>,
    entries: Option<Entries>,
    path: Vec<Arc<str>>,
    ty: Type,
}

impl Known {
    fn size(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }
}

/// A name of a comprehension, and what it stands for.
struct Local {
    name: Arc<str>,
    path: Vec<Arc<str>>,
    size: Option<Size>,
    entries: Option<Entries>,
}

/// The path, the size and the entries of what a name stands for.
type Stand = (Vec<Arc<str>>, Option<Size>, Option<Entries>);

struct Estimator<'a> {
    declarations: &'a Declarations,
    sizes: Sizes<'a>,
    locals: Vec<Local>,
    types: Vec<(Arc<str>, Type)>,
}

/// The most that an expression can cost.
pub fn estimate(expr: &Expr, declarations: &Declarations, sizes: Sizes<'_>) -> u64 {
    Estimator { declarations, sizes, locals: Vec::new(), types: Vec::new() }.expr(expr).cost
}

impl Estimator<'_> {
    fn expr(&mut self, expr: &Expr) -> Known {
        let ty = type_in(expr, self.declarations, &self.types);
        let mut known = Known { cost: 0, size: None, entries: None, path: Vec::new(), ty };
        match &expr.node {
            Node::Literal(literal) => {
                known.size = Some(Size::exactly(match literal {
                    Literal::String(text) => text.chars().count() as u64,
                    Literal::Bytes(bytes) => bytes.len() as u64,
                    _ => 1,
                }));
            }
            Node::Ident(name) => {
                known.cost = 1;
                match self.locals.iter().rev().find(|local| local.name == *name) {
                    Some(local) => {
                        known.path.clone_from(&local.path);
                        known.entries = local.entries;
                        known.size = self.of_path(&known).or(local.size);
                    }
                    None => known.path = vec![name.clone()],
                }
            }
            Node::Select { operand, field, .. } => {
                let of = self.expr(operand);
                let step = u64::from(matches!(of.ty, Type::Map(..) | Type::Object(_) | Type::Named(_)));
                known.cost = of.cost.saturating_add(step);
                known.path = of.path;
                known.path.push(field.clone());
            }
            // Whether a field is there costs nothing beyond getting there.
            Node::Has { operand, .. } => known.cost = self.expr(operand).cost,
            Node::Call { function, target, args } => self.call(function, target.as_deref(), args, &mut known),
            Node::List(items) => {
                let items: Vec<Known> = items.iter().map(|(item, _)| self.expr(item)).collect();
                known.cost = total(&items).saturating_add(LIST);
                known.size = Some(Size::exactly(items.len() as u64));
                known.entries = Some(Entries { list: true, key: Size::exactly(1), value: union(&items) });
            }
            Node::Map(entries) => {
                let (keys, values): (Vec<Known>, Vec<Known>) =
                    entries.iter().map(|(key, value, _)| (self.expr(key), self.expr(value))).unzip();
                known.cost = total(&keys).saturating_add(total(&values)).saturating_add(MAP);
                known.size = Some(Size::exactly(entries.len() as u64));
                known.entries = Some(Entries { list: false, key: union(&keys), value: union(&values) });
            }
            Node::Struct { fields, .. } => {
                let fields: Vec<Known> = fields.iter().map(|(_, value, _)| self.expr(value)).collect();
                known.cost = total(&fields).saturating_add(STRUCT);
            }
            Node::Macro(fold) => self.fold(fold, &mut known),
        }
        known.size =
            known.size.or_else(|| self.of_path(&known)).or_else(|| is_scalar(&known.ty).then_some(Size::exactly(1)));
        known
    }

    /// The size of what is at the path of an expression.
    fn of_path(&self, known: &Known) -> Option<Size> {
        if known.path.is_empty() {
            return None;
        }
        (self.sizes)(&known.path).map(|max| Size { min: 0, max })
    }

    fn call(&mut self, function: &str, target: Option<&Expr>, args: &[Expr], known: &mut Known) {
        let args: Vec<Known> = args.iter().map(|arg| self.expr(arg)).collect();
        let target = target.map(|target| self.expr(target));
        let before = target.as_ref().map_or(0, |target| target.cost);
        let sum = total(&args);
        let cost = match (function, args.as_slice()) {
            ("dyn", [of]) => {
                (known.size, known.entries) = (of.size, of.entries);
                sum.saturating_add(1)
            }
            ("_&&_" | "_||_", _) => sum,
            ("_?_:_", [condition, yes, no]) => {
                known.size = Some(yes.size().or(no.size()));
                known.entries = Entries::or(yes.entries, no.entries);
                condition.cost.saturating_add(yes.cost.max(no.cost))
            }
            ("_[_]" | "_[?_]", [of, _]) => {
                known.path.clone_from(&of.path);
                known.path.push(if matches!(of.ty, Type::List(_)) { "@items" } else { "@values" }.into());
                known.size = of.entries.map(|entries| entries.value);
                sum.saturating_add(1)
            }
            _ => {
                let (own, size) = self.own_cost(function, target.as_ref(), &args);
                known.size = size;
                if function == "_+_"
                    && let [one, other] = args.as_slice()
                {
                    known.entries = Entries::or(one.entries, other.entries);
                }
                sum.saturating_add(own)
            }
        };
        known.cost = before.saturating_add(cost);
    }

    /// What a function costs beyond its arguments, and how large its result is where that is known.
    fn own_cost(&self, function: &str, target: Option<&Known>, args: &[Known]) -> (u64, Option<Size>) {
        let of = |at: usize| args.get(at).map_or(Size::UNKNOWN, Known::size);
        let on = target.map_or(Size::UNKNOWN, Known::size);
        let text = |known: &Known| matches!(known.ty, Type::String | Type::Bytes | Type::Dyn | Type::Any | Type::Free);
        match (function, args) {
            ("_==_", [one, other]) if one.ty == other.ty && matches!(one.ty, Type::Named(_)) => (1, None),
            ("_==_" | "_!=_", [one, other]) => (scaled(one.size().max.min(other.size().max), TRAVERSAL), None),
            ("_<_" | "_<=_" | "_>_" | "_>=_", [one, other]) if text(one) && text(other) => {
                (scaled(one.size().max.min(other.size().max), TRAVERSAL).max(1), None)
            }
            ("_+_", [one, other]) => {
                let size = one.size().plus(other.size());
                match (&one.ty, &other.ty) {
                    (Type::String | Type::Bytes, _) | (_, Type::String | Type::Bytes) => (size.traversal(), Some(size)),
                    (Type::List(_), _) | (_, Type::List(_)) => (1, Some(size)),
                    (Type::Dyn | Type::Any, Type::Dyn | Type::Any) => (size.traversal().max(1), Some(size)),
                    _ => (1, None),
                }
            }
            ("@in", [_, list]) => match list.ty {
                Type::Map(..) => (1, None),
                _ => (list.size().max.max(1), None),
            },
            ("matches" | "find" | "findAll", _) => {
                let (subject, pattern) = if target.is_some() { (on, of(0)) } else { (of(0), of(1)) };
                let cost = subject.plus(Size::exactly(1)).traversal().saturating_mul(scaled(pattern.max, PATTERN));
                (cost, (function != "matches").then_some(Size { min: 0, max: subject.max }))
            }
            ("contains", [_]) if target.is_some() => (on.traversal().saturating_mul(of(0).traversal()), None),
            ("startsWith" | "endsWith", [_]) => (of(0).traversal(), None),
            ("bytes", [from]) if from.ty == Type::String => {
                let size = from.size();
                (size.traversal(), Some(Size { min: size.min, max: size.max.saturating_mul(4) }))
            }
            ("string", [from]) if from.ty == Type::Bytes => {
                let size = from.size();
                (size.traversal(), Some(Size { min: size.min / 4, max: size.max }))
            }
            ("format", _) if target.is_some() => (on.traversal(), None),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", _) if target.is_some() => (on.traversal(), Some(on)),
            ("replace", [_, _, ..]) => (scaled(on.max, 2.0 * TRAVERSAL), Some(replaced(on, of(0), of(1)))),
            ("split", _) if target.is_some() => (scaled(on.max, 2.0 * TRAVERSAL), Some(Size { min: 0, max: on.max })),
            ("join", _) if target.is_some() => {
                let size = joined(on, self.element(target), args.first().map(Known::size));
                (size.traversal(), Some(size))
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes", _) if target.is_some() => {
                let per_element = match self.element(target) {
                    Some((Type::String | Type::Bytes, size)) => Some(size.traversal().saturating_add(1)),
                    Some(_) => Some(1),
                    None => (function == "includes").then_some(1),
                };
                (per_element.map_or_else(|| on.traversal(), |each| on.max.saturating_mul(each)), None)
            }
            ("url" | "jsonpatch.escapeKey", [_]) => (of(0).traversal(), Some(of(0))),
            ("cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver", [_, ..]) => {
                (of(0).traversal(), None)
            }
            ("ip", [_, ..]) => (of(0).traversal(), None),
            ("ip.isCanonical", [_]) => (scaled(of(0).max, 2.0 * TRAVERSAL), None),
            ("containsIP" | "containsCIDR", [other]) => {
                // Two addresses of up to 16 bytes are compared; a network is masked first; a text has to be read.
                let masked = if function == "containsCIDR" { scaled(16, TRAVERSAL) + 1 } else { 0 };
                let read = if other.ty == Type::String { other.size().traversal() } else { 0 };
                (scaled(32, TRAVERSAL).saturating_add(masked).saturating_add(read), None)
            }
            ("validate", [_, ..]) => (scaled(of(0).traversal(), NAMED_PATTERN * PATTERN), None),
            ("check", _) if target.is_some() => (350_000, None),
            _ => (1, None),
        }
    }

    /// The type and the size of the elements of a list.
    fn element(&self, list: Option<&Known>) -> Option<(Type, Size)> {
        let list = list?;
        let Type::List(of) = &list.ty else { return None };
        let mut path = list.path.clone();
        path.push("@items".into());
        let size = (self.sizes)(&path).filter(|_| !list.path.is_empty()).map(|max| Size { min: 0, max });
        Some(((**of).clone(), size.unwrap_or(Size::UNKNOWN)))
    }

    fn fold(&mut self, fold: &Macro, known: &mut Known) {
        let range = self.expr(&fold.range);
        if matches!(fold.fold, Fold::Bind | Fold::OptMap | Fold::OptFlatMap) {
            let (body, ty) = (&fold.body, range.ty.clone());
            let inner = match &ty {
                Type::Optional(inner) if fold.fold != Fold::Bind => (**inner).clone(),
                other => other.clone(),
            };
            let local = (range.path.clone(), range.size, range.entries);
            let body = self.within(&fold.names, vec![(local, inner)], |estimator| estimator.expr(body));
            // A binding is an empty list that is never walked; an optional value is asked for, taken out and wrapped again.
            let around = if fold.fold == Fold::Bind { LIST } else { LIST + 4 };
            (known.size, known.entries) = (body.size, body.entries);
            known.cost = range.cost.saturating_mul(if fold.fold == Fold::Bind { 1 } else { 2 });
            known.cost = known.cost.saturating_add(body.cost).saturating_add(around);
            return;
        }
        let step = self.step(fold, &range);
        // What starts the result, what ends it, and the condition and the step for every element.
        let (start, end, condition) = match fold.fold {
            Fold::All => (0, 1, 2),
            Fold::Exists => (0, 1, 3),
            Fold::ExistsOne => (0, 2, 0),
            Fold::TransformMap | Fold::TransformMapEntry => (MAP, 1, 0),
            _ => (LIST, 1, 0),
        };
        let times = range.size().max;
        known.cost = range.cost.saturating_add(start + end);
        known.cost = known.cost.saturating_add(times.saturating_mul(step.saturating_add(condition)));
        known.size = Some(match fold.fold {
            Fold::All | Fold::Exists | Fold::ExistsOne => Size::exactly(1),
            _ => range.size(),
        });
    }

    /// What one round of a comprehension costs.
    fn step(&mut self, fold: &Macro, range: &Known) -> u64 {
        let list = range.entries.map_or(matches!(range.ty, Type::List(_)), |entries| entries.list);
        let place = |name: &str| {
            let mut path = range.path.clone();
            path.push(name.into());
            path
        };
        let (key, value) = (range.entries.map(|entries| entries.key), range.entries.map(|entries| entries.value));
        let (key_type, value_type) = match &range.ty {
            Type::List(of) => (Type::Int, (**of).clone()),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            _ => (Type::Dyn, Type::Dyn),
        };
        let keys = ((place(if list { "@indices" } else { "@keys" }), key, None), key_type);
        let values = ((place(if list { "@items" } else { "@values" }), value, None), value_type);
        let locals = match fold.names.len() {
            2 => vec![keys, values],
            _ if list => vec![values],
            _ => vec![keys],
        };
        let (filter, body) = self.within(&fold.names, locals, |estimator| {
            let filter = fold.filter.as_ref().map(|filter| estimator.expr(filter).cost);
            (filter, estimator.expr(&fold.body).cost)
        });
        let step = match fold.fold {
            Fold::All | Fold::Exists => body.saturating_add(1),
            Fold::ExistsOne => body.saturating_add(2),
            // The element joins the list so far.
            Fold::Filter => body.saturating_add(LIST + 3),
            Fold::TransformMap | Fold::TransformMapEntry => body.saturating_add(3),
            _ => body.saturating_add(LIST + 2),
        };
        step.saturating_add(filter.unwrap_or(0))
    }

    fn within<T>(&mut self, names: &[Arc<str>], values: Vec<(Stand, Type)>, act: impl FnOnce(&mut Self) -> T) -> T {
        let known = self.locals.len();
        for (name, ((path, size, entries), ty)) in names.iter().zip(values) {
            self.locals.push(Local { name: name.clone(), path, size, entries });
            self.types.push((name.clone(), ty));
        }
        let outcome = act(self);
        self.locals.truncate(known);
        self.types.truncate(known);
        outcome
    }
}

fn total(all: &[Known]) -> u64 {
    all.iter().fold(0, |sum, known| sum.saturating_add(known.cost))
}

fn union(all: &[Known]) -> Size {
    all.iter().map(Known::size).reduce(Size::or).unwrap_or(Size::exactly(0))
}

fn is_scalar(ty: &Type) -> bool {
    matches!(ty, Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp)
}

/// How long a text is in which one part was replaced by another.
fn replaced(text: Size, part: Size, with: Size) -> Size {
    // How often the part is replaced, and what stays of the text, where replacing either pays or leaves the text as it is.
    let bound = |text: u64, part: u64, stays: bool| match part {
        // Nothing is between any two characters.
        0 => (text.saturating_add(1), text),
        _ if stays => (0, text),
        _ => (text.div_ceil(part), 0),
    };
    let (least, shortest) = bound(text.min, part.max, part.max <= with.min);
    let (most, longest) = bound(text.max, part.min, with.max <= part.min);
    Size { min: least, max: most }.times(with).plus(Size { min: shortest, max: longest })
}

/// How long a text is that was put together from the elements of a list.
fn joined(list: Size, element: Option<(Type, Size)>, separator: Option<Size>) -> Size {
    let elements = element.map_or(Size::exactly(0), |(_, size)| list.times(size));
    let between = Size { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
    elements.plus(separator.map_or(Size::exactly(0), |separator| separator.times(between)))
}
