//! Policies: rules about writes as expressions in the API, and the bindings that put them in force.
//!
//! Policies and bindings are compiled once per change. A request that no policy is about pays for looking at the rules;
//! a cluster without bindings pays a comparison.

mod mutating;
mod params;
mod validating;

use std::sync::Arc;

use cel::{Composed, Declarations};
use gates::authorization::Authorizers;
use machinery::Value;
use machinery::status::ApiError;
use machinery::value;

use super::cel::{self as expressions, Asker, Uses};
use super::compiled::Compiled;
use super::conditions::Conditions;
use super::matching::Matching;
use super::subject::Subject;
use crate::registry::Registry;
pub use mutating::MutatingPolicies;
pub use validating::ValidatingPolicies;

const GROUP: &str = "admissionregistration.k8s.io";

/// What policies of both kinds have.
struct Common {
    name: String,
    fails_closed: bool,
    matching: Matching,
    conditions: Conditions,
    /// `apiVersion` and `kind` of the parameters.
    param_kind: Option<(String, String)>,
}

impl Common {
    /// With the policy's variables, and what its expressions may use.
    fn read(tree: &Value) -> (Self, Vec<Composed>, Declarations) {
        let spec = &tree["spec"];
        let kind = spec.get("paramKind").filter(|kind| kind.is_object());
        let param_kind =
            kind.map(|kind| (value::text(kind, "apiVersion").to_owned(), value::text(kind, "kind").to_owned()));
        let uses = Uses { params: param_kind.is_some(), authorizer: true };
        let mut declarations = expressions::declarations(uses);
        let composed = expressions::variables(value::list(spec, "variables"), &mut declarations);
        let fails_closed = value::text(spec, "failurePolicy") != "Ignore";
        let common = Self {
            name: value::text(tree, "metadata.name").to_owned(),
            fails_closed,
            matching: Matching::of_policy(&spec["matchConstraints"]),
            conditions: Conditions::read(spec, &declarations, fails_closed),
            param_kind,
        };
        (common, composed, declarations)
    }
}

/// What puts a policy in force.
struct Binding {
    name: String,
    policy: String,
    matching: Option<Matching>,
    actions: Vec<String>,
    param_ref: Option<Value>,
}

impl Binding {
    fn read(tree: &Value) -> Vec<Self> {
        let spec = &tree["spec"];
        let object = |key: &str| spec.get(key).filter(|value| value.is_object());
        let actions = value::list(spec, "validationActions").iter().filter_map(Value::as_str).map(str::to_owned);
        vec![Self {
            name: value::text(tree, "metadata.name").to_owned(),
            policy: value::text(spec, "policyName").to_owned(),
            matching: object("matchResources").map(Matching::of_policy),
            actions: actions.collect(),
            param_ref: object("paramRef").cloned(),
        }]
    }

    fn is_about(&self, subject: &Subject<'_>) -> Result<bool, ApiError> {
        match &self.matching {
            None => Ok(true),
            Some(matching) => matching.matches(subject).map(|version| version.is_some()),
        }
    }
}

/// All policies of a kind, and all bindings of it.
type Current<P> = (Arc<Vec<P>>, Arc<Vec<Binding>>);

/// A kind of policies and its bindings.
struct Configured<P> {
    policies: Compiled<P>,
    bindings: Compiled<Binding>,
    authorizers: Arc<Authorizers>,
}

impl<P> Configured<P> {
    fn new(
        registry: &Registry,
        authorizers: Arc<Authorizers>,
        [policies, bindings]: [&str; 2],
        read: fn(&Value) -> Vec<P>,
    ) -> Option<Self> {
        let cache = |plural| registry.stored(GROUP, plural).map(|resource| resource.cache.clone());
        Some(Self {
            policies: Compiled::new(cache(policies)?, read),
            bindings: Compiled::new(cache(bindings)?, Binding::read),
            authorizers,
        })
    }

    fn are_there(&self) -> bool {
        self.policies.current().is_some() && self.bindings.current().is_some()
    }

    /// The policies and bindings there are, if there are both and the request may be shown to them.
    fn current(&self, subject: &Subject<'_>) -> Option<Current<P>> {
        let current = self.policies.current().zip(self.bindings.current())?;
        (!subject.is_exempt()).then_some(current)
    }

    fn asker<'a>(&'a self, subject: &Subject<'a>) -> Asker<'a> {
        Asker { authorizers: &self.authorizers, request: subject.request }
    }
}
