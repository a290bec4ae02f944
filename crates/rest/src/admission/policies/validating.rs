//! ValidatingAdmissionPolicy: refuses, warns and notes as its bindings say.

use std::sync::Arc;

use cel::{Composed, Program, Scope, Type, Value as Computed};
use gates::authorization::Authorizers;
use machinery::status::{ApiError, Cause, Reason};
use machinery::{Value, value};
use serde_json::json;

use super::super::cel::{self as expressions, Asker, BUDGET, Failure, Seen};
use super::super::subject::Subject;
use super::params::{collect, kind_of};
use super::{Binding, Common, Configured};
use crate::registry::Registry;

/// The longest message that an expression may compose.
const MAX_MESSAGE: usize = 5 * 1024;
/// The longest note for the audit log that an expression may compose.
const MAX_ANNOTATION: usize = 10 * 1024;
/// The most failures that are noted in the audit log.
const MAX_FAILURES: usize = 50;

struct Validation {
    expression: Result<Program, String>,
    source: String,
    message: String,
    message_expression: Option<Program>,
    reason: Reason,
}

struct Policy {
    common: Common,
    composed: Vec<Composed>,
    validations: Vec<Validation>,
    annotations: Vec<(String, Result<Program, String>)>,
}

pub struct ValidatingPolicies(Option<Configured<Policy>>);

/// What is wrong with a request.
#[derive(Debug, PartialEq)]
struct Finding {
    /// Which validation found it.
    index: usize,
    message: String,
    reason: Reason,
}

/// What a policy has to say about a request.
#[derive(Debug, Default)]
struct Judgement {
    findings: Vec<Finding>,
    annotations: Vec<(String, String)>,
    /// Notes that could not be composed; they refuse the request whatever the binding's actions are.
    failed_annotations: Vec<String>,
}

impl ValidatingPolicies {
    /// On the caches of policies and bindings.
    pub fn new(registry: &Registry, authorizers: Arc<Authorizers>) -> Self {
        let plurals = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
        Self(Configured::new(registry, authorizers, plurals, |tree| vec![Policy::read(tree)]))
    }

    /// Evaluates every policy in force; then the first that denies is the answer.
    pub async fn validate(&self, subject: &Subject<'_>) -> Result<(), ApiError> {
        let Some((configured, (policies, bindings))) =
            self.0.as_ref().and_then(|configured| Some((configured, configured.current(subject)?)))
        else {
            return Ok(());
        };
        let asker = configured.asker(subject);
        let (mut denials, mut failures) = (Vec::new(), Vec::new());
        for policy in policies.iter() {
            let own: Vec<&Binding> = bindings.iter().filter(|binding| binding.policy == policy.common.name).collect();
            let hop = hops::stage(hops::Stage::ValidatingPolicy, subject.request.operation.verb());
            policy.consider(subject, &own, &asker, &mut denials, &mut failures).await?;
            hop.within(subject.request.exchange.trace).by(hops::label(&policy.common.name)).end_unnamed();
        }
        if !failures.is_empty() {
            failures.truncate(MAX_FAILURES);
            subject
                .request
                .exchange
                .notes
                .annotate("validation.policy.admission.k8s.io/validation_failure", json!(failures).to_string());
        }
        denials.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Policy {
    fn read(tree: &Value) -> Self {
        let spec = &tree["spec"];
        let (common, composed, declarations) = Common::read(tree);
        // Messages and notes are about the request, not about who may do what.
        let mut plain = declarations.clone();
        plain.remove("authorizer");
        plain.remove("authorizer.requestResource");
        let validations = value::list(spec, "validations").iter().map(|tree| {
            let message_expression = value::text(tree, "messageExpression");
            Validation {
                expression: expressions::compile(value::text(tree, "expression"), &declarations, &[Type::Bool]),
                source: value::text(tree, "expression").trim().to_owned(),
                message: value::text(tree, "message").trim().to_owned(),
                message_expression: Some(message_expression)
                    .filter(|text| !text.trim().is_empty())
                    .and_then(|text| expressions::compile(text, &plain, &[Type::String]).ok()),
                reason: Reason::parse(value::text(tree, "reason")).unwrap_or(Reason::Invalid),
            }
        });
        let annotations = value::list(spec, "auditAnnotations").iter().map(|tree| {
            let expression = value::text(tree, "valueExpression");
            let wanted = [Type::String, Type::Null];
            (value::text(tree, "key").to_owned(), expressions::compile(expression, &plain, &wanted))
        });
        Self { validations: validations.collect(), annotations: annotations.collect(), composed, common }
    }

    async fn consider(
        &self,
        subject: &Subject<'_>,
        bindings: &[&Binding],
        asker: &Asker<'_>,
        denials: &mut Vec<ApiError>,
        failures: &mut Vec<Value>,
    ) -> Result<(), ApiError> {
        if bindings.is_empty() {
            return Ok(());
        }
        let version = match self.common.matching.matches(subject) {
            Ok(Some(version)) => version,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.misconfigured(subject, None, &error.message, denials);
                return Ok(());
            }
        };
        if let Err(why) = kind_of(subject, &self.common) {
            self.misconfigured(subject, None, &why, denials);
            return Ok(());
        }
        let mut seen = None;
        let mut notes: Vec<(String, Vec<String>)> = Vec::new();
        for binding in bindings {
            let params = match binding.is_about(subject).map_err(|error| error.message) {
                Ok(false) => continue,
                Ok(true) => collect(subject, &self.common, binding),
                Err(why) => Err(why),
            };
            let params = match params {
                Ok(params) => params,
                Err(why) => {
                    self.misconfigured(subject, Some(binding), &why, denials);
                    continue;
                }
            };
            for params in params {
                let seen = match &mut seen {
                    Some(seen) => seen,
                    none => none.insert(Seen::of(subject, &version)?),
                };
                let judgement = self.judge(seen, params.as_ref().unwrap_or(&Value::Null), asker).await;
                for (key, text) in judgement.annotations {
                    let position = notes.iter().position(|(known, _)| *known == key);
                    let at = position.unwrap_or_else(|| {
                        notes.push((key, Vec::new()));
                        notes.len() - 1
                    });
                    if !notes[at].1.contains(&text) {
                        notes[at].1.push(text);
                    }
                }
                for finding in judgement.findings {
                    self.act(subject, binding, &finding, denials, failures);
                }
                for why in judgement.failed_annotations {
                    denials.push(self.denial(subject, Some(binding), &why, Reason::Invalid));
                }
            }
        }
        for (key, texts) in notes {
            subject.request.exchange.notes.annotate(format!("{}/{key}", self.common.name), texts.join(", "));
        }
        Ok(())
    }

    /// What the policy finds in a request with one object of parameters.
    async fn judge(&self, seen: &Seen, params: &Value, asker: &Asker<'_>) -> Judgement {
        let mut judgement = Judgement::default();
        let scope = self.scope(seen, params, true);
        match self.common.conditions.hold(&scope, asker).await {
            Ok(true) => {}
            Ok(false) => return judgement,
            Err(why) => return judgement.failed(self.common.fails_closed, 0, why),
        }
        let mut budget = BUDGET;
        let plain = self.scope(seen, params, false);
        for (index, validation) in self.validations.iter().enumerate() {
            let outcome = match &validation.expression {
                Ok(program) => expressions::evaluate(program, &scope, asker, &mut budget).await,
                Err(why) => Err(Failure::Error(format!("compilation error: {why}"))),
            };
            match outcome {
                Ok(Computed::Bool(true)) => {}
                Ok(_) => {
                    let message = validation.compose_message(&plain, asker, &mut budget).await;
                    judgement.findings.push(Finding { index, message, reason: validation.reason });
                }
                Err(Failure::OutOfBudget) => {
                    return Judgement::default().failed(
                        self.common.fails_closed,
                        0,
                        expressions::OUT_OF_BUDGET.to_owned(),
                    );
                }
                Err(Failure::Error(why)) => judgement = judgement.failed(self.common.fails_closed, index, why),
            }
        }
        self.annotate(&plain, asker, &mut judgement).await;
        judgement
    }

    async fn annotate<'a>(&'a self, scope: &Scope<'a>, asker: &Asker<'_>, judgement: &mut Judgement) {
        let mut budget = BUDGET;
        for (key, compiled) in &self.annotations {
            let outcome = match compiled {
                Ok(program) => {
                    expressions::evaluate(program, scope, asker, &mut budget).await.map_err(|why| why.to_string())
                }
                Err(why) => Err(format!("compilation error: {why}")),
            };
            match outcome {
                Ok(Computed::String(text)) if !text.trim().is_empty() => {
                    let text = text.trim();
                    let end = (0..=MAX_ANNOTATION.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
                    judgement.annotations.push((key.clone(), text[..end.unwrap_or(0)].to_owned()));
                }
                Ok(Computed::String(_) | Computed::Null) => {}
                Ok(other) => judgement.failed_annotations.push(format!(
                    "valueExpression resulted in unsupported return type: {}. Return type must be either string or null.",
                    other.type_name()
                )),
                Err(why) if self.common.fails_closed => judgement.failed_annotations.push(why),
                Err(_) => {}
            }
        }
    }

    fn scope<'a>(&'a self, seen: &'a Seen, params: &'a Value, authorizer: bool) -> Scope<'a> {
        let mut scope = seen.scope(self.common.param_kind.is_some().then_some(params), authorizer);
        scope.compose(&self.composed);
        scope
    }

    /// Does with a finding what the binding says.
    fn act(
        &self,
        subject: &Subject<'_>,
        binding: &Binding,
        finding: &Finding,
        denials: &mut Vec<ApiError>,
        failures: &mut Vec<Value>,
    ) {
        let (policy, message) = (&self.common.name, &finding.message);
        for action in &binding.actions {
            match action.as_str() {
                "Deny" => denials.push(self.denial(subject, Some(binding), message, finding.reason)),
                "Audit" => failures.push(json!({
                    "message": message, "policy": policy, "binding": binding.name,
                    "expressionIndex": finding.index, "validationActions": binding.actions,
                })),
                "Warn" => subject.request.exchange.notes.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {message}",
                    binding.name
                )),
                _ => {}
            }
        }
    }

    /// A policy or binding that cannot be used refuses what it is about, unless its failures are to be ignored.
    fn misconfigured(&self, subject: &Subject<'_>, binding: Option<&Binding>, why: &str, denials: &mut Vec<ApiError>) {
        if self.common.fails_closed {
            let what = if binding.is_some() { "binding" } else { "policy" };
            denials.push(self.denial(subject, binding, &format!("failed to configure {what}: {why}"), Reason::Invalid));
        }
    }

    fn denial(&self, subject: &Subject<'_>, binding: Option<&Binding>, why: &str, reason: Reason) -> ApiError {
        let policy = &self.common.name;
        let message = match binding {
            Some(binding) => {
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{}' denied request: {why}", binding.name)
            }
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {why}"),
        };
        let mut error = ApiError::forbidden(&subject.request.resource.name, subject.name(), &message);
        error.code = reason.code();
        error.reason = Some(reason);
        let cause = Cause { reason: String::new(), message, field: String::new() };
        error.details.get_or_insert_default().causes.push(cause);
        error
    }
}

impl Judgement {
    fn failed(mut self, fails_closed: bool, index: usize, message: String) -> Self {
        if fails_closed {
            self.findings.push(Finding { index, message, reason: Reason::Invalid });
        }
        self
    }
}

impl Validation {
    /// The composed message, the given one, or the expression itself.
    async fn compose_message<'a>(&'a self, scope: &Scope<'a>, asker: &Asker<'_>, budget: &mut u64) -> String {
        if let Some(program) = &self.message_expression
            && let Ok(Computed::String(text)) = expressions::evaluate(program, scope, asker, budget).await
        {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                return text.to_owned();
            }
        }
        match self.message.as_str() {
            "" => format!("failed expression: {}", self.source),
            message => message.to_owned(),
        }
    }
}
