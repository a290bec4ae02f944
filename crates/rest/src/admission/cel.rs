//! The expressions of webhooks and policies: which variables they may use, what those are for a request, what they cost.

pub use cel::policy::{Uses, compile, declarations, variables};
use cel::{Check, Decision, Fault, Program, Question, Scope};
use gates::authorization::{Attributes, Authorizers, Selectors};
use machinery::Value;
use machinery::object::Object;
use machinery::rest::User;
use machinery::selector::field::FieldSelector;
use machinery::selector::label::LabelSelector;
use machinery::status::ApiError;

use super::Request;
use super::subject::Subject;

/// What all evaluations of a policy over a request may cost together.
pub const BUDGET: u64 = 10_000_000;
/// The same for match conditions.
pub const CONDITIONS_BUDGET: u64 = 2_500_000;
/// What is said when it is spent.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What expressions see of a request, in owned form: scopes borrow from it.
pub struct Seen {
    object: Value,
    old_object: Value,
    request: Value,
    namespace: Value,
    check: Check,
}

impl Seen {
    /// Of a request, as a version of its resource shows it.
    pub fn of(subject: &Subject<'_>, version: &facts::Resource) -> Result<Self, ApiError> {
        let shown = |object: Option<&Value>| object.map(|object| subject.show(object, version)).unwrap_or_default();
        let (info, name) = (subject.request.info, subject.name());
        Ok(Self {
            object: shown(subject.new),
            old_object: shown(subject.old),
            request: subject.describe(version),
            namespace: subject.own_namespace()?.map(|namespace| visible(&namespace)).unwrap_or_default(),
            check: Check::Resource {
                group: info.group.as_str().into(),
                resource: info.resource.as_str().into(),
                subresource: info.subresource.as_str().into(),
                namespace: info.namespace.as_str().into(),
                name: name.into(),
                field_selector: "".into(),
                label_selector: "".into(),
            },
        })
    }

    /// The object was changed.
    pub fn change(&mut self, object: Value) {
        self.object = object;
    }

    /// The object as it would be.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// A scope with the variables of every request.
    pub fn scope<'a>(&'a self, params: Option<&'a Value>, authorizer: bool) -> Scope<'a> {
        let mut scope = Scope::new(cel::PER_CALL_LIMIT);
        scope.add("object", &self.object);
        scope.add("oldObject", &self.old_object);
        scope.add("request", &self.request);
        scope.add("namespaceObject", &self.namespace);
        if let Some(params) = params {
            scope.add("params", params);
        }
        if authorizer {
            scope.add("authorizer", cel::Value::authorizer());
            scope.add("authorizer.requestResource", cel::Value::request_resource(self.check.clone()));
        }
        scope
    }
}

/// What expressions may see of a namespace.
fn visible(namespace: &Object) -> Value {
    let mut tree = namespace.to_value();
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !matches!(key.as_str(), "managedFields" | "ownerReferences" | "selfLink"));
    }
    tree
}

/// Evaluates, finding out what the expression asks about others. `budget` is what may still be spent.
pub async fn evaluate<'a>(
    program: &'a Program,
    scope: &Scope<'a>,
    asker: &Asker<'_>,
    budget: &mut u64,
) -> Result<cel::Value<'a>, Failure> {
    loop {
        scope.take_cost();
        let outcome = program.evaluate(scope);
        if let Err(Fault::Pending(question)) = outcome {
            let decision = asker.decide(&question).await;
            scope.decide(*question, decision);
            continue;
        }
        let cost = scope.take_cost();
        if cost > *budget {
            *budget = 0;
            return Err(Failure::OutOfBudget);
        }
        *budget -= cost;
        return outcome
            .map_err(|fault| Failure::Error(format!("expression '{}' resulted in error: {fault}", program.source())));
    }
}

/// Why an expression came to nothing.
#[derive(Debug)]
pub enum Failure {
    /// Nothing more may be evaluated.
    OutOfBudget,
    /// This one makes no sense for the request.
    Error(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OutOfBudget => f.write_str(OUT_OF_BUDGET),
            Self::Error(why) => f.write_str(why),
        }
    }
}

/// Who finds out what expressions ask.
pub struct Asker<'a> {
    pub authorizers: &'a Authorizers,
    /// For whom they ask.
    pub request: &'a Request<'a>,
}

impl Asker<'_> {
    async fn decide(&self, question: &Question) -> Decision {
        let account = match &question.subject {
            cel::Subject::Requester => None,
            cel::Subject::ServiceAccount { namespace, name } => {
                let own = format!("system:serviceaccounts:{namespace}");
                let groups = ["system:serviceaccounts", own.as_str(), "system:authenticated"];
                Some(User::new(format!("system:serviceaccount:{namespace}:{name}"), groups))
            }
        };
        let user = account.as_ref().unwrap_or(self.request.user);
        let mut selectors = Selectors::default();
        let attributes = match &*question.check {
            Check::Path(path) => {
                Attributes { is_resource: false, path, ..Attributes::question(user, &question.verb, "", "", "") }
            }
            Check::Resource { group, resource, subresource, namespace, name, field_selector, label_selector } => {
                // A selector that cannot be read narrows nothing, so the question is about more than was meant.
                selectors.fields = FieldSelector::parse(field_selector).ok().filter(|_| !field_selector.is_empty());
                selectors.labels = LabelSelector::parse(label_selector).ok().filter(|_| !label_selector.is_empty());
                let question = Attributes::question(user, &question.verb, group, resource, name);
                question.in_namespace(namespace).of_subresource(subresource)
            }
        };
        let attributes = Attributes { selectors: Some(&selectors), ..attributes }.within(self.request.exchange.trace);
        let verdict = self.authorizers.authorize(&attributes).await;
        Decision { allowed: verdict.allows(), reason: verdict.reason().to_owned(), error: String::new() }
    }
}
