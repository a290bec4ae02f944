//! Computing an expression, step by step, each step at its cost.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::ast::{Expr, Fold, Literal, Macro, Node};
use crate::functions;
use crate::functions::authz::Question;
use crate::functions::opaque::Opaque;
use crate::scope::Scope;
use crate::value::{Kind, List, Map, Value};

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The expression makes no sense for these values.
    #[error("{0}")]
    Error(String),
    /// It costs too much.
    #[error("operation cancelled: actual cost limit exceeded")]
    Cost,
    /// It asks what somebody may do, and nobody has said yet.
    #[error("an authorization check is pending")]
    Pending(Box<Question>),
}

impl Fault {
    /// For a function that does not take these.
    pub(crate) fn overload() -> Self {
        Self::Error("no such overload".to_owned())
    }
}

pub(crate) type Outcome<'a> = Result<Value<'a>, Fault>;

pub fn evaluate<'a>(expr: &'a Expr, scope: &Scope<'a>) -> Outcome<'a> {
    Eval { scope, locals: Vec::new() }.expr(expr)
}

struct Eval<'s, 'a> {
    scope: &'s Scope<'a>,
    locals: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Eval<'_, 'a> {
    fn expr(&mut self, expr: &'a Expr) -> Outcome<'a> {
        match self.node(&expr.node)? {
            Value::Opaque(Opaque::Fault(why)) => Err(Fault::Error(why.to_string())),
            value => Ok(value),
        }
    }

    fn node(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Literal(literal) => Ok(constant(literal)),
            Node::Ident(name) => self.ident(name),
            Node::Select { operand, field, optional } => self.select(operand, field, *optional),
            Node::Has { operand, field } => self.has(operand, field),
            Node::Call { function, target, args } => self.call(function, target.as_deref(), args),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Struct { name, fields } => self.structure(name, fields),
            Node::Macro(fold) => self.fold(fold),
        }
    }

    fn ident(&mut self, name: &'a str) -> Outcome<'a> {
        self.scope.spend(1)?;
        if let Some((_, value)) = self.locals.iter().rev().find(|(known, _)| *known == name) {
            return Ok(value.clone());
        }
        if let Some(value) = self.scope.get(name) {
            return Ok(value);
        }
        match name {
            "bool" | "int" | "uint" | "double" | "string" | "bytes" | "list" | "map" | "null_type" | "type"
            | "optional_type" => Ok(Value::Type(name.into())),
            _ => Err(Fault::Error(format!("no such attribute(s): {name}"))),
        }
    }

    /// Whether this names the variables that are computed when they are used.
    fn is_composition(&self, operand: &Expr) -> bool {
        matches!(&operand.node, Node::Ident(name) if &**name == "variables")
            && self.scope.has_composed()
            && !self.locals.iter().any(|(known, _)| *known == "variables")
    }

    fn select(&mut self, operand: &'a Expr, field: &'a str, optional: bool) -> Outcome<'a> {
        if self.is_composition(operand) {
            self.scope.spend(1)?;
            return self.scope.composed(field);
        }
        if let Node::Ident(name) = &operand.node
            && let Some(value) = self.scope.get(&format!("{name}.{field}"))
        {
            self.scope.spend(1)?;
            return Ok(value);
        }
        let operand = self.expr(operand)?;
        self.scope.spend(1)?;
        let chained = matches!(operand, Value::Optional(_));
        let from = match operand {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (*inner).clone(),
            other => other,
        };
        let found = match &from {
            Value::Map(map) => map.field(field),
            _ => return Err(Fault::overload()),
        };
        match (found, optional || chained) {
            (found, true) => Ok(found.map_or(Value::Optional(None), Value::some)),
            (Some(found), false) => Ok(found),
            (None, false) => Err(Fault::Error(format!("no such key: {field}"))),
        }
    }

    fn has(&mut self, operand: &'a Expr, field: &str) -> Outcome<'a> {
        if self.is_composition(operand) {
            return Ok(Value::Bool(self.scope.is_composed(field)));
        }
        let present = |value: &Value<'_>| match value {
            Value::Map(map) => Ok(map.field(field).is_some()),
            _ => Err(Fault::overload()),
        };
        match self.expr(operand)? {
            Value::Optional(None) => Ok(Value::Bool(false)),
            Value::Optional(Some(inner)) => present(&inner).map(Value::Bool),
            other => present(&other).map(Value::Bool),
        }
    }

    fn call(&mut self, function: &'a str, target: Option<&'a Expr>, args: &'a [Expr]) -> Outcome<'a> {
        match (function, args) {
            ("_&&_", [left, right]) => return self.logic(left, right, false),
            ("_||_", [left, right]) => return self.logic(left, right, true),
            ("_?_:_", [condition, yes, no]) => {
                return match self.expr(condition)? {
                    Value::Bool(true) => self.expr(yes),
                    Value::Bool(false) => self.expr(no),
                    _ => Err(Fault::overload()),
                };
            }
            ("or" | "orValue", [other]) if target.is_some() => {
                // The alternative is computed only if it is needed.
                let target = self.expr(target.expect("it was just looked at"))?;
                self.scope.spend(1)?;
                return match target {
                    Value::Optional(None) => self.expr(other),
                    Value::Optional(Some(inner)) if function == "orValue" => Ok((*inner).clone()),
                    there @ Value::Optional(Some(_)) => Ok(there),
                    _ => Err(Fault::overload()),
                };
            }
            _ => {}
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target {
            values.push(self.expr(target)?);
        }
        for arg in args {
            values.push(self.expr(arg)?);
        }
        functions::call(self.scope, function, target.is_some(), &values)
    }

    /// One side may decide, whatever is wrong with the other.
    fn logic(&mut self, left: &'a Expr, right: &'a Expr, decisive: bool) -> Outcome<'a> {
        self.scope.spend(1)?;
        let truth = |outcome: Outcome<'a>| match outcome {
            Ok(Value::Bool(truth)) => Ok(truth),
            Ok(_) => Err(Fault::overload()),
            Err(fault) => Err(fault),
        };
        let first = truth(self.expr(left));
        match first {
            Ok(truth) if truth == decisive => return Ok(Value::Bool(decisive)),
            Err(fault @ (Fault::Cost | Fault::Pending(_))) => return Err(fault),
            _ => {}
        }
        match (first, truth(self.expr(right))) {
            (_, Ok(truth)) if truth == decisive => Ok(Value::Bool(decisive)),
            (_, Err(fault @ (Fault::Cost | Fault::Pending(_)))) | (Err(fault), _) | (_, Err(fault)) => Err(fault),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decisive)),
        }
    }

    fn list(&mut self, items: &'a [(Expr, bool)]) -> Outcome<'a> {
        self.scope.spend(10)?;
        let mut list = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.expr(item)?, *optional) {
                (Value::Optional(inner), true) => list.extend(inner.map(|inner| (*inner).clone())),
                (value, _) => list.push(value),
            }
        }
        Ok(Value::list(list))
    }

    fn map(&mut self, entries: &'a [(Expr, Expr, bool)]) -> Outcome<'a> {
        self.scope.spend(30)?;
        let mut map: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.expr(key)?;
            if !matches!(key.kind(), Kind::Bool | Kind::Int | Kind::Uint | Kind::String) {
                return Err(Fault::Error(format!("unsupported key type: {}", key.type_name())));
            }
            let value = match (self.expr(value)?, *optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(inner)), true) => (*inner).clone(),
                (value, _) => value,
            };
            if map.iter().any(|(known, _)| known.same(&key)) {
                return Err(Fault::Error(format!("Failed with repeated key {}", functions::strings::show(&key))));
            }
            self.scope.spend(map.len() as u64 / 8)?;
            map.push((key, value));
        }
        Ok(Value::map(map))
    }

    fn structure(&mut self, name: &'a str, fields: &'a [(std::sync::Arc<str>, Expr, bool)]) -> Outcome<'a> {
        self.scope.spend(40)?;
        let mut map = Vec::with_capacity(fields.len());
        for (field, value, optional) in fields {
            if name == "JSONPatch" && !matches!(&**field, "op" | "path" | "from" | "value") {
                return Err(Fault::Error(format!("no such field: {field}")));
            }
            let value = match (self.expr(value)?, *optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(inner)), true) => (*inner).clone(),
                (value, _) => value,
            };
            map.push((Value::String(Cow::Borrowed(field)), value));
        }
        Ok(Value::map(map))
    }

    fn fold(&mut self, fold: &'a Macro) -> Outcome<'a> {
        let range = self.expr(&fold.range)?;
        match (fold.fold, range) {
            (Fold::OptMap | Fold::OptFlatMap, Value::Optional(None)) => Ok(Value::Optional(None)),
            (Fold::OptMap, Value::Optional(Some(value))) => {
                let body = self.with(fold, [(*value).clone(), Value::Null], |eval| eval.expr(&fold.body))?;
                Ok(Value::some(body))
            }
            (Fold::OptFlatMap, Value::Optional(Some(value))) => {
                self.with(fold, [(*value).clone(), Value::Null], |eval| eval.expr(&fold.body))
            }
            (Fold::Bind, value) => self.with(fold, [value, Value::Null], |eval| eval.expr(&fold.body)),
            (_, Value::List(list)) => self.over_list(fold, &list),
            (_, Value::Map(map)) => self.over_map(fold, &map),
            _ => Err(Fault::overload()),
        }
    }

    /// With the comprehension's names standing for these.
    fn with<T>(
        &mut self,
        fold: &'a Macro,
        values: [Value<'a>; 2],
        act: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let known = self.locals.len();
        self.locals.extend(fold.names.iter().map(|name| &**name).zip(values));
        let outcome = act(self);
        self.locals.truncate(known);
        outcome
    }

    fn over_list(&mut self, fold: &'a Macro, list: &List<'a>) -> Outcome<'a> {
        let indexed = fold.names.len() == 2;
        let items = list.items().enumerate().map(|(at, item)| {
            if indexed { [Value::Int(at.try_into().unwrap_or(i64::MAX)), item] } else { [item, Value::Null] }
        });
        self.over(fold, items)
    }

    fn over_map(&mut self, fold: &'a Macro, map: &Map<'a>) -> Outcome<'a> {
        self.over(fold, map.entries().into_iter().map(|(key, value)| [key, value]))
    }

    fn over(&mut self, fold: &'a Macro, items: impl Iterator<Item = [Value<'a>; 2]>) -> Outcome<'a> {
        match fold.fold {
            Fold::All => self.decided(fold, items, false),
            Fold::Exists => self.decided(fold, items, true),
            Fold::ExistsOne => {
                let mut count = 0;
                for values in items {
                    count += usize::from(self.truth(fold, &fold.body, values)?);
                }
                Ok(Value::Bool(count == 1))
            }
            Fold::Filter => {
                let mut kept = Vec::new();
                for values in items {
                    let first = values[0].clone();
                    if self.truth(fold, &fold.body, values)? {
                        kept.push(first);
                    }
                }
                self.scope.spend(10)?;
                Ok(Value::list(kept))
            }
            Fold::SortBy => self.sorted(fold, items),
            _ => self.transformed(fold, items),
        }
    }

    /// `all` and `exists`: one element may decide, whatever is wrong with others.
    fn decided(&mut self, fold: &'a Macro, items: impl Iterator<Item = [Value<'a>; 2]>, decisive: bool) -> Outcome<'a> {
        let mut wrong = None;
        for values in items {
            match self.truth(fold, &fold.body, values) {
                Ok(truth) if truth == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(fault @ Fault::Error(_)) => wrong = wrong.or(Some(fault)),
                Err(fault) => return Err(fault),
            }
        }
        wrong.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn transformed(&mut self, fold: &'a Macro, items: impl Iterator<Item = [Value<'a>; 2]>) -> Outcome<'a> {
        let (mut list, mut map) = (Vec::new(), Vec::new());
        for values in items {
            if let Some(filter) = &fold.filter
                && !self.truth(fold, filter, values.clone())?
            {
                continue;
            }
            let key = values[0].clone();
            self.scope.spend(1)?;
            let made = self.with(fold, values, |eval| eval.expr(&fold.body))?;
            match (fold.fold, made) {
                (Fold::TransformMap, made) => map.push((key, made)),
                (Fold::TransformMapEntry, Value::Map(made)) => {
                    for (key, value) in made.entries() {
                        if map.iter().any(|(known, _): &(Value<'a>, Value<'a>)| known.same(&key)) {
                            let shown = functions::strings::show(&key);
                            return Err(Fault::Error(format!("insert failed: key {shown} already exists")));
                        }
                        self.scope.spend(map.len() as u64 / 8)?;
                        map.push((key, value));
                    }
                }
                (Fold::TransformMapEntry, _) => return Err(Fault::overload()),
                (_, made) => list.push(made),
            }
        }
        self.scope.spend(10)?;
        Ok(if fold.fold == Fold::Map { Value::list(list) } else { Value::map(map) })
    }

    fn sorted(&mut self, fold: &'a Macro, items: impl Iterator<Item = [Value<'a>; 2]>) -> Outcome<'a> {
        let mut keyed = Vec::new();
        for values in items {
            let item = values[0].clone();
            keyed.push((self.with(fold, values, |eval| eval.expr(&fold.body))?, item));
            self.scope.spend(2)?;
        }
        if keyed.windows(2).any(|pair| pair[0].0.compare(&pair[1].0).is_none()) {
            return Err(Fault::Error("list elements must be comparable".to_owned()));
        }
        keyed.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(Ordering::Equal));
        Ok(Value::list(keyed.into_iter().map(|(_, item)| item).collect()))
    }

    fn truth(&mut self, fold: &'a Macro, expr: &'a Expr, values: [Value<'a>; 2]) -> Result<bool, Fault> {
        self.scope.spend(1)?;
        match self.with(fold, values, |eval| eval.expr(expr))? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(Fault::overload()),
        }
    }
}

fn constant(literal: &Literal) -> Value<'_> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(truth) => Value::Bool(*truth),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::String(Cow::Borrowed(text)),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}
