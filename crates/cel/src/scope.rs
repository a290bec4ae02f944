//! What an expression sees while it runs, and what it may cost.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Program;
use crate::eval::Fault;
use crate::functions::authz::{Decision, Question};
use crate::value::Value;

/// A variable that is computed when it is first used: `variables.name`.
#[derive(Debug)]
pub struct Composed {
    pub name: String,
    /// Its expression, or why it does not compile.
    pub program: Result<Program, String>,
}

/// The variables of one evaluation or of several over the same request.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    variables: Vec<(&'static str, Value<'a>)>,
    composed: &'a [Composed],
    computed: Mutex<HashMap<usize, Result<Value<'a>, Fault>>>,
    decisions: Mutex<HashMap<Question, Decision>>,
    spent: AtomicU64,
    limit: u64,
}

impl<'a> Scope<'a> {
    /// Without variables; what one evaluation costs is limited.
    pub fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Adds a variable; one of the same name is replaced.
    pub fn add(&mut self, name: &'static str, value: impl Into<Value<'a>>) {
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, value.into()));
    }

    /// Adds variables that are computed when they are used, each over those before it.
    pub fn compose(&mut self, composed: &'a [Composed]) {
        self.composed = composed;
    }

    /// Tells what somebody may do, who was asked about.
    pub fn decide(&self, question: Question, decision: Decision) {
        self.decisions.lock().expect("nobody panics while deciding").insert(question, decision);
    }

    /// What was spent since this was last asked.
    pub fn take_cost(&self) -> u64 {
        self.spent.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value<'a>> {
        self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    pub(crate) fn has_composed(&self) -> bool {
        !self.composed.is_empty()
    }

    pub(crate) fn is_composed(&self, name: &str) -> bool {
        self.composed.iter().any(|composed| composed.name == name)
    }

    /// The value of a composed variable, computed once.
    pub(crate) fn composed(&self, name: &str) -> Result<Value<'a>, Fault> {
        let at = self.composed.iter().position(|composed| composed.name == name);
        let at = at.ok_or_else(|| Fault::Error(format!("no such key: {name}")))?;
        if let Some(known) = self.computed.lock().expect("nobody panics while computing").get(&at) {
            return known.clone();
        }
        let composed: &'a Composed = &self.composed[at];
        let computed = match &composed.program {
            Ok(program) => program.evaluate(self),
            Err(why) => Err(Fault::Error(format!("composited variable {name:?} fails to compile: {why}"))),
        };
        let computed = match computed {
            Err(Fault::Error(why)) => {
                Err(Fault::Error(format!("composited variable {name:?} fails to evaluate: {why}")))
            }
            other => other,
        };
        // A question that is open now may be answered when the variable is used again.
        if !matches!(computed, Err(Fault::Pending(_))) {
            self.computed.lock().expect("nobody panics while computing").insert(at, computed.clone());
        }
        computed
    }

    pub(crate) fn decision(&self, question: &Question) -> Result<Decision, Fault> {
        let known = self.decisions.lock().expect("nobody panics while deciding").get(question).cloned();
        known.ok_or_else(|| Fault::Pending(Box::new(question.clone())))
    }

    /// Spends; fails when there is no more.
    pub(crate) fn spend(&self, cost: u64) -> Result<(), Fault> {
        let before = self.spent.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) > self.limit { Err(Fault::Cost) } else { Ok(()) }
    }
}
