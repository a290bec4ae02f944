//! What differs from kind to kind, as small pure functions. Create, update, patch, delete and watch are written once.

use machinery::Value;
use machinery::object::Field;
use machinery::rest::User;
use machinery::status::FieldError;

/// Which names a kind allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain: most kinds.
    Subdomain,
    /// A DNS-1123 label: namespaces.
    Label,
    /// A DNS-1035 label: services.
    Label1035,
    /// Anything that can be one segment of a path: RBAC kinds.
    PathSegment,
    /// The key of a config map: candidates for leases.
    ConfigMapKey,
    /// The strategy judges it together with something else: trust bundles.
    Own,
}

/// How an object of a kind goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// At once, when nothing holds it.
    None,
    /// After so many seconds, in which somebody (a kubelet) finishes it.
    Seconds(i64),
}

/// The rules of one kind. No I/O, no clock. Trees are in the kind's storage version.
pub trait Strategy: Send + Sync {
    /// The fields that field selectors may name, besides `metadata.name` and `metadata.namespace`.
    fn fields(&self) -> &'static [Field] {
        &[]
    }

    /// Which names are allowed.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Whether a new object begins with a `metadata.generation` of 1, whatever its author said.
    fn counts_generations(&self) -> bool {
        false
    }

    /// Whether a change is one that `metadata.generation` counts. Most kinds count whatever the user wants otherwise.
    fn wish_changed(&self, new: &Value, old: &Value) -> bool {
        self.counts_generations() && wish(new).ne(wish(old))
    }

    /// Whether an update of an object that is not there creates it.
    fn creates_on_update(&self) -> bool {
        false
    }

    /// Whether an update may leave `resourceVersion` out.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Whether a create may bring its status along.
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// Whether something in the object besides its finalizers holds back its removal: a namespace's `spec.finalizers`.
    fn holds(&self, _object: &Value) -> bool {
        false
    }

    /// What changes in an object when its deletion begins.
    fn prepare_for_deletion(&self, _object: &mut Value) {}

    /// Fills in what the user left out, beyond the defaults in the schema.
    fn default(&self, _object: &mut Value) {}

    /// Fills in the times that the user left out.
    fn stamp(&self, _object: &mut Value, _now: &dyn Fn() -> String) {}

    /// Gives a new object without labels those of something it holds; whether it did. Who wrote the object wrote them.
    fn take_labels(&self, _new: &mut Value) -> bool {
        false
    }

    /// Takes such labels away again, if they are still what was given: [`Strategy::prepare_for_create`] has the last word on them.
    fn return_labels(&self, _new: &mut Value) {}

    /// Drops what only the system may say, before a create.
    fn prepare_for_create(&self, _new: &mut Value) {}

    /// Writes down who creates the object, in kinds that say so.
    fn record_creator(&self, _new: &mut Value, _creator: &User) {}

    /// Keeps what this request may not change, before an update.
    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    /// Keeps what a status update may not change, beyond `spec`.
    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    /// Fills in the times of a change of the status.
    fn stamp_status(&self, _new: &mut Value, _old: &Value, _now: &dyn Fn() -> String) {}

    /// Everything wrong with a new object.
    fn validate(&self, _new: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// What is wrong besides, for a version that is stricter than the others. `old` is there for a change.
    fn validate_version(&self, _api_version: &str, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        Vec::new()
    }

    /// Everything wrong with a change.
    fn validate_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Everything wrong with a change of the status.
    fn validate_status_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Keeps what a change through a subresource of its own may not change, and only that: `ephemeralcontainers`, `resize`,
    /// `approval`.
    fn prepare_for_subresource_update(&self, _subresource: &str, new: &mut Value, old: &Value) {
        self.prepare_for_update(new, old);
    }

    /// Everything wrong with a change through a subresource of its own.
    fn validate_subresource_update(&self, _subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_update(new, old)
    }

    /// What the client should be told about what it sent, before [`Strategy::prepare_for_create`] changes it.
    fn warnings_about_sent(&self, _sent: &Value) -> Vec<String> {
        Vec::new()
    }

    /// What is allowed, and the client should be told about all the same. `old` is there for a change.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// How long a deletion waits for somebody to finish the object. `asked` is `gracePeriodSeconds`, if given.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> Grace {
        Grace::None
    }

    /// Whether deletion leaves the dependents alone unless the request says otherwise.
    fn orphans_by_default(&self) -> bool {
        false
    }
}

/// What the user wants: everything but metadata and status.
pub fn wish(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind"))
}

/// A kind that needs nothing special.
pub struct Plain;

impl Strategy for Plain {}
