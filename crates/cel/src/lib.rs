//! The Common Expression Language as Kubernetes speaks it in policies and match conditions.
//!
//! [`Program::compile`] reads an expression and checks it against the variables it may use ([`Declarations`]);
//! [`Program::evaluate`] computes it over a [`Scope`], within a budget of cost that upstream's numbers define. Both are
//! pure, and bounded for whatever users write: the parser limits nesting, the evaluator limits cost, and the objects that
//! expressions look at are borrowed, never copied.
//!
//! One thing an expression may ask that nobody here can answer: whether somebody may do something. Then evaluation stops
//! with [`Fault::Pending`], and the caller, who can find out, tells the scope and evaluates again.

mod ast;
mod check;
mod escape;
mod estimate;
mod eval;
mod functions;
mod lex;
mod parse;
pub mod policy;
pub mod regexp;
pub mod schema;
mod scope;
mod signatures;
mod types;
mod unordered;
mod value;

pub use check::Declarations;
pub use escape::{escape, is_reserved, unescape};
pub use estimate::Sizes;
pub use eval::Fault;
pub use functions::authz::{Check, Decision, Question, Subject};
pub use scope::{Composed, Scope};
pub use types::{ObjectType, Type};
pub use unordered::Unordered;
pub use value::{Kind, Value};

use ast::Expr;

/// What one evaluation may cost, wherever Kubernetes has expressions.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// The longest expression that is read, in characters.
const MAX_LENGTH: usize = 100_000;

/// What nests no deeper than this is no burden for anybody's stack.
const SHALLOW: usize = 48;
/// Enough for the deepest expression that is read.
const DEEP_STACK: usize = 16 << 20;

#[derive(Debug)]
pub struct Program {
    source: String,
    expr: Expr,
    output: Type,
}

impl Program {
    /// Reads and checks an expression. The error is upstream's text, with a pointer into the expression.
    pub fn compile(source: &str, declarations: &Declarations) -> Result<Self, String> {
        let length = source.chars().count();
        if length > MAX_LENGTH {
            return Err(format!(
                "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}"
            ));
        }
        let compiled = on_own_stack(nesting(source) > SHALLOW, || {
            let expr = parse::parse(source, declarations).map_err(|problem| vec![problem])?;
            let output = check::check(&expr, declarations)?;
            Ok(Self { source: source.to_owned(), expr, output })
        });
        compiled.map_err(|problems: Vec<Problem>| {
            let all: Vec<String> = problems.iter().map(|problem| problem.render(source)).collect();
            all.join("\n")
        })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The type of what it computes, as far as it is known.
    pub fn output(&self) -> &Type {
        &self.output
    }

    /// Whether what it computes may be of a type: it is, or nobody knows before it is computed.
    pub fn may_be(&self, wanted: &Type) -> bool {
        match &self.output {
            // A field of an object nobody knows the type of is not taken for a truth.
            Type::Dyn => !self.expr.is_plain_access(),
            known => known == wanted,
        }
    }

    /// Whether it looks at a field of a variable anywhere.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        on_own_stack(self.expr.depth > SHALLOW, || self.expr.selects(variable, field))
    }

    /// Whether it names a variable anywhere.
    pub fn mentions(&self, variable: &str) -> bool {
        on_own_stack(self.expr.depth > SHALLOW, || self.expr.mentions(variable))
    }

    /// The most that it can cost, on the largest objects that `sizes` allows.
    pub fn estimate(&self, declarations: &Declarations, sizes: Sizes<'_>) -> u64 {
        estimate::estimate(&self.expr, declarations, sizes)
    }

    pub fn evaluate<'a>(&'a self, scope: &Scope<'a>) -> Result<Value<'a>, Fault> {
        on_own_stack(self.expr.depth > SHALLOW, || eval::evaluate(&self.expr, scope))
    }
}

/// How deep a text can nest at most: as deep as its brackets, whether they match or not.
fn nesting(source: &str) -> usize {
    source.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{')).count()
}

/// What is nested deeply gets a stack of its own: nobody knows how much of the caller's is left.
fn on_own_stack<T: Send>(deep: bool, act: impl FnOnce() -> T + Send) -> T {
    if !deep {
        return act();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(DEEP_STACK).spawn_scoped(scope, act);
        let joined = thread.expect("a machine that serves requests has a thread left").join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Something wrong at a place of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// In bytes from the beginning.
    pub at: usize,
    pub message: String,
}

impl Problem {
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// Upstream's text: place, message, the line, and a mark under the place.
    fn render(&self, source: &str) -> String {
        let at = self.at.min(source.len());
        let before = &source[..at];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = source[start..at].chars().count();
        let text = source[start..].lines().next().unwrap_or_default();
        let dots = ".".repeat(column);
        format!("ERROR: <input>:{line}:{}: {}\n | {text}\n | {dots}^", column + 1, self.message)
    }
}

#[cfg(test)]
mod environment;
#[cfg(test)]
mod tests;
