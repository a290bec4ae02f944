//! Match conditions: what must hold of a request for a webhook or a policy to be about it.

use cel::{Declarations, Program, Scope, Type, Value as Computed};
use machinery::{Value, value};

use super::cel::{self as expressions, Asker, CONDITIONS_BUDGET};

/// All conditions of one webhook or policy.
#[derive(Debug)]
pub struct Conditions {
    all: Vec<Result<Program, String>>,
    /// Whether a condition whose evaluation fails refuses the request; otherwise nobody is asked.
    fails_closed: bool,
}

impl Conditions {
    /// Of a webhook, or of the spec of a policy.
    pub fn read(tree: &Value, declarations: &Declarations, fails_closed: bool) -> Self {
        let compile = |tree: &Value| {
            expressions::compile(value::text(tree, "expression"), declarations, &[Type::Bool])
                .map_err(|why| format!("compilation error: {why}"))
        };
        Self { all: value::list(tree, "matchConditions").iter().map(compile).collect(), fails_closed }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether every condition holds. One that does not counts before one whose evaluation fails.
    pub async fn hold<'a>(&'a self, scope: &Scope<'a>, asker: &Asker<'_>) -> Result<bool, String> {
        let mut budget = CONDITIONS_BUDGET;
        let mut unknown = Vec::new();
        for condition in &self.all {
            let outcome = match condition {
                Ok(program) => {
                    expressions::evaluate(program, scope, asker, &mut budget).await.map_err(|why| why.to_string())
                }
                Err(why) => Err(why.clone()),
            };
            match outcome {
                Ok(Computed::Bool(false)) => return Ok(false),
                Ok(_) => {}
                Err(why) => unknown.push(why),
            }
        }
        match super::together(&unknown) {
            None => Ok(true),
            Some(_) if !self.fails_closed => Ok(false),
            Some(why) => Err(why),
        }
    }
}
