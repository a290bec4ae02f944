//! MutatingAdmissionPolicy: changes writes by configurations to apply and by JSON patches, both computed by expressions.

use std::sync::Arc;

use cel::{Composed, Program, Type, Value as Computed};
use gates::authorization::Authorizers;
use machinery::status::{ApiError, Cause, Reason};
use machinery::{Value, apply, patch, value};

use super::super::Operation;
use super::super::cel::{self as expressions, Asker, BUDGET, Seen};
use super::super::chain::Write;
use super::super::reinvocation::{Asker as Asked, Rounds};
use super::super::subject::Subject;
use super::params::collect;
use super::{Binding, Common, Configured};
use crate::registry::Registry;

enum Mutation {
    /// A configuration to lay over the object.
    Apply(Result<Program, String>),
    /// The operations of a JSON patch.
    Patch(Result<Program, String>),
}

struct Policy {
    common: Common,
    composed: Vec<Composed>,
    mutations: Vec<Mutation>,
    /// Whether it wants to look again when others changed the object after it.
    again: bool,
}

pub struct MutatingPolicies(Option<Configured<Policy>>);

/// A policy that could not be applied.
struct Problem {
    message: String,
    ignored: bool,
}

impl MutatingPolicies {
    /// On the caches of policies and bindings.
    pub fn new(registry: &Registry, authorizers: Arc<Authorizers>) -> Self {
        let plurals = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
        Self(Configured::new(registry, authorizers, plurals, |tree| vec![Policy::read(tree)]))
    }

    /// Whether there are any, and bindings too.
    pub fn are_there(&self) -> bool {
        self.0.as_ref().is_some_and(Configured::are_there)
    }

    /// Lets every policy in force change the object, one after the other.
    pub async fn mutate(&self, write: Write<'_>, new: &mut Value, rounds: &mut Rounds) -> Result<(), ApiError> {
        let Write { api, request, old, .. } = write;
        let current = self.0.as_ref().and_then(|configured| {
            Some((configured, configured.current(&Subject { api, request, new: Some(new), old })?))
        });
        let Some((configured, (policies, bindings))) = current else { return Ok(()) };
        if request.operation == Operation::Connect {
            // There is nothing to change in a connection.
            return Ok(());
        }
        rounds.enter(Asked::Policies, Some(new));
        let mut problems = Vec::new();
        for policy in policies.iter() {
            for binding in bindings.iter() {
                if binding.policy != policy.common.name {
                    continue;
                }
                let subject = Subject { api, request, new: Some(new), old };
                let hop = hops::stage(hops::Stage::MutatingPolicy, request.operation.verb());
                let outcome = policy.invoke(&subject, binding, &configured.asker(&subject), rounds).await;
                hop.within(request.exchange.trace).by(hops::label(&policy.common.name)).end_unnamed();
                match outcome {
                    Ok(Some(changed)) => *new = changed,
                    Ok(None) => {}
                    Err(why) => problems.push(policy.problem(binding, &why)),
                }
            }
        }
        rounds.leave(Asked::Policies, Some(new));
        refuse(&Subject { api, request, new: Some(new), old }, &problems)
    }
}

/// All problems that count as one refusal; the first is its message.
fn refuse(subject: &Subject<'_>, problems: &[Problem]) -> Result<(), ApiError> {
    let counting: Vec<&Problem> = problems.iter().filter(|problem| !problem.ignored).collect();
    let Some(first) = counting.first() else { return Ok(()) };
    let mut error = ApiError::forbidden(&subject.request.resource.name, subject.name(), "");
    error.message.clone_from(&first.message);
    error.reason = Some(Reason::Invalid);
    let causes = counting.iter().map(|problem| Cause {
        reason: String::new(),
        message: problem.message.clone(),
        field: String::new(),
    });
    error.details.get_or_insert_default().causes.extend(causes);
    Err(error)
}

impl Policy {
    fn read(tree: &Value) -> Self {
        let spec = &tree["spec"];
        let (common, composed, mut declarations) = Common::read(tree);
        declarations.builds_objects = true;
        let mutations = value::list(spec, "mutations").iter().map(|tree| match value::text(tree, "patchType") {
            "JSONPatch" => Mutation::Patch(expressions::compile(
                value::text(tree, "jsonPatch.expression"),
                &declarations,
                &[Type::list(Type::Named("JSONPatch".into())), Type::list(Type::Dyn)],
            )),
            _ => Mutation::Apply(expressions::compile(
                value::text(tree, "applyConfiguration.expression"),
                &declarations,
                &[Type::Named("Object".into())],
            )),
        });
        Self {
            mutations: mutations.collect(),
            again: value::text(spec, "reinvocationPolicy") == "IfNeeded",
            composed,
            common,
        }
    }

    /// Applies the policy, once for each object of parameters. `Some` is the object as it changed it.
    async fn invoke(
        &self,
        subject: &Subject<'_>,
        binding: &Binding,
        asker: &Asker<'_>,
        rounds: &mut Rounds,
    ) -> Result<Option<Value>, String> {
        let configured = |error: ApiError| format!("failed to configure policy: {}", error.message);
        let Some(version) = self.common.matching.matches(subject).map_err(configured)? else { return Ok(None) };
        if !binding.is_about(subject).map_err(|error| format!("failed to configure binding: {}", error.message))? {
            return Ok(None);
        }
        let all =
            collect(subject, &self.common, binding).map_err(|why| format!("failed to configure binding: {why}"))?;
        let Some(before) = subject.new else { return Ok(None) };
        let mut current = before.clone();
        for params in &all {
            let name = params.as_ref().map_or("", |params| value::text(params, "metadata.name"));
            let space = params.as_ref().map_or("", |params| value::text(params, "metadata.namespace"));
            let id = format!("{}/{}/{space}/{name}", self.common.name, binding.name);
            let now = Subject { new: Some(&current), ..*subject };
            let mut seen = Seen::of(&now, &version).map_err(|error| error.message)?;
            let params = params.as_ref().unwrap_or(&Value::Null);
            if !self.holds(&seen, params, asker).await? || !rounds.asks(Asked::Policies, &id) {
                continue;
            }
            for mutation in &self.mutations {
                let shown = mutation.apply(self, &seen, params, asker, &version).await?;
                let stored = subject.take(shown, &version, &current).map_err(|error| error.message)?;
                seen.change(subject.show(&stored, &version));
                current = stored;
            }
            rounds.asked(Asked::Policies, &id, current != *before, self.again);
        }
        Ok((current != *before).then_some(current))
    }

    async fn holds(&self, seen: &Seen, params: &Value, asker: &Asker<'_>) -> Result<bool, String> {
        if self.common.conditions.is_empty() {
            return Ok(true);
        }
        let mut scope = seen.scope(self.common.param_kind.is_some().then_some(params), true);
        scope.compose(&self.composed);
        self.common.conditions.hold(&scope, asker).await
    }

    fn problem(&self, binding: &Binding, why: &str) -> Problem {
        let message = format!("policy '{}' with binding '{}' denied request: {why}", self.common.name, binding.name);
        Problem { message, ignored: !self.common.fails_closed }
    }
}

impl Mutation {
    /// The object as it is shown, changed.
    async fn apply(
        &self,
        policy: &Policy,
        seen: &Seen,
        params: &Value,
        asker: &Asker<'_>,
        version: &facts::Resource,
    ) -> Result<Value, String> {
        let (Self::Apply(program) | Self::Patch(program)) = self;
        let program = program.as_ref().map_err(Clone::clone)?;
        let mut scope = seen.scope(policy.common.param_kind.is_some().then_some(params), true);
        scope.compose(&policy.composed);
        let mut budget = BUDGET;
        let computed = expressions::evaluate(program, &scope, asker, &mut budget).await;
        let computed = computed.map_err(|why| why.to_string())?;
        let mut object = seen.object().clone();
        match self {
            Self::Patch(_) => {
                let operations = operations(&computed)?;
                match patch::json::apply(&mut object, &operations) {
                    Ok(()) => Ok(object),
                    // A test that fails means that the patch is not meant.
                    Err(error) if error.to_string().ends_with("test failed") => Ok(seen.object().clone()),
                    Err(error) => Err(format!("JSON Patch: {error}")),
                }
            }
            Self::Apply(_) => {
                let mut config = computed.to_json().filter(Value::is_object).ok_or_else(|| {
                    format!("unsupported return type from ApplyConfiguration expression: {}", computed.type_name())
                })?;
                value::set(&mut config, "apiVersion", value::text(&object, "apiVersion"));
                value::set(&mut config, "kind", value::text(&object, "kind"));
                let of = version.def().ok_or_else(|| format!("error applying patch: no schema of {}", version.kind))?;
                apply::overlay(&object, &config, of).map_err(|why| format!("error applying patch: {why}"))
            }
        }
    }
}

/// The operations of a patch that an expression computed.
fn operations(computed: &Computed<'_>) -> Result<Value, String> {
    let tree = computed.to_json().filter(Value::is_array);
    let mut tree = tree.ok_or("type mismatch: JSONPatchType.expression should evaluate to array")?;
    for operation in tree.as_array_mut().into_iter().flatten() {
        let Some(fields) = operation.as_object_mut() else {
            return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned());
        };
        // `value: null` is a value; an empty `from` is none.
        fields.retain(|key, value| key != "from" || value != "");
    }
    Ok(tree)
}
