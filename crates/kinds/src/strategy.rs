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

/// What a subresource of an object is, besides `scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// A part of the object, which is read and written there as the whole is at its own place.
    Part,
    /// A request to do something with the object.
    Action(Action),
}

/// What can be asked to be done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To put it on a node.
    Bind,
    /// To delete it if nobody needs it.
    Evict,
    /// To let go of it.
    Finalize,
    /// To give it a token.
    IssueToken,
}

/// Where an object says how many replicas it has: dotted paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaling<'a> {
    /// How many there should be.
    pub replicas: &'a str,
    /// How many there are.
    pub observed: &'a str,
    /// Which pods they are: a selector, plain labels, or a text. Empty where nobody says.
    pub selector: &'a str,
}

/// What a field of a kind is called where it is stored, if there is such a field.
pub type FieldName = fn(&str) -> Option<String>;

/// What is true of some kinds and not of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags {
    /// Whether its objects are the namespaces that paths name.
    pub is_namespace: bool,
    /// Whether its objects are long and seldom read, so that they are packed in memory.
    pub is_long: bool,
    /// Whether its objects go by themselves after a while.
    pub expires: bool,
    /// Whether a write of the status leaves the metadata as it was.
    pub status_resets_metadata: bool,
    /// Whether finalizers without a domain must be among those that Kubernetes knows, for writes to this group. Upstream asks that of most kinds.
    pub judges_finalizers: bool,
    /// Whether what is found wrong twice is said once. The parts of upstream's server that extend its API say it each time.
    pub says_once: bool,
    /// Whether a new object begins with a `metadata.generation` of 1, whatever its author said.
    pub counts_generations: bool,
    /// Whether an update of an object that is not there creates it.
    pub creates_on_update: bool,
    /// Whether an update may leave `resourceVersion` out.
    pub allows_unconditional_update: bool,
    /// Whether a create may bring its status along.
    pub keeps_status_on_create: bool,
    /// Whether deletion leaves the dependents alone unless the request says otherwise.
    pub orphans_by_default: bool,
}

impl Flags {
    /// As most kinds are.
    pub const USUAL: Self = Self {
        is_namespace: false,
        is_long: false,
        expires: false,
        status_resets_metadata: false,
        judges_finalizers: true,
        says_once: true,
        counts_generations: false,
        creates_on_update: false,
        allows_unconditional_update: true,
        keeps_status_on_create: false,
        orphans_by_default: false,
    };
}

/// The rules of one kind. No I/O, no clock. Trees are in the kind's storage version.
pub trait Strategy: Send + Sync {
    /// In what the kind is unlike most.
    fn flags(&self) -> Flags {
        Flags::USUAL
    }

    /// The fields that field selectors may name, besides `metadata.name` and `metadata.namespace`.
    fn fields(&self) -> &[Field] {
        &[]
    }

    /// How names that selectors of this group use become those of [`Strategy::fields`], where the two differ.
    fn field_names(&self, _group: &str) -> Option<FieldName> {
        None
    }

    /// What a subresource is.
    fn subresource(&self, name: &str) -> Option<Subresource> {
        (name == "status").then_some(Subresource::Part)
    }

    /// What `scale` is made of, for kinds that have it.
    fn scaling(&self) -> Scaling<'_> {
        Scaling { replicas: "spec.replicas", observed: "status.replicas", selector: "spec.selector" }
    }

    /// What a write through a subresource (none: of the object itself) cannot own, since it is put back: upstream's reset fields. Upstream has
    /// some for `ephemeralcontainers` and `resize` too, but nothing there asks for them.
    fn resets(&self, subresource: &str, has_status: bool) -> &'static [&'static str] {
        match subresource {
            "" | "finalize" if has_status => &["status"],
            "status" if self.flags().status_resets_metadata => &["spec", "metadata"],
            "status" => &["spec"],
            _ => &[],
        }
    }

    /// Whether finalizers without a domain must be among those that Kubernetes knows, for writes to this group. Upstream asks that of most kinds.
    fn judges_finalizers(&self, _group: &str) -> bool {
        self.flags().judges_finalizers
    }

    /// Which names are allowed.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Whether a change is one that `metadata.generation` counts. Most kinds count whatever the user wants otherwise.
    fn desired_state_changed(&self, new: &Value, old: &Value) -> bool {
        self.flags().counts_generations && desired_state(new).ne(desired_state(old))
    }

    /// Whether something in the object besides its finalizers holds back its removal: a namespace's `spec.finalizers`.
    fn holds(&self, _object: &Value) -> bool {
        false
    }

    /// What changes in an object when its deletion begins.
    fn prepare_for_deletion(&self, _object: &mut Value) {}

    /// Reads an object of a kind whose fields only its definition knows: drops what is unknown and answers with the complaints of a strict reader, or
    /// with what cannot be read at all. Built-in kinds are read by their facts instead.
    fn read(&self, _object: &mut Value) -> Option<Result<Vec<String>, String>> {
        None
    }

    /// As [`Strategy::read`], of what a server-side apply made. Upstream does not read that again: a null that is no value stays, for validation to
    /// refuse it.
    fn read_applied(&self, object: &mut Value) -> Option<Result<Vec<String>, String>> {
        self.read(object)
    }

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

    /// Everything wrong with a change, and what its client should be told though it is allowed: for kinds of which finding out both costs as much as
    /// finding out one.
    fn judge_update(&self, new: &Value, old: &Value) -> (Vec<FieldError>, Vec<String>) {
        (self.validate_update(new, old), self.warnings(new, Some(old)))
    }

    /// As [`Strategy::judge_update`], of a change of the status.
    fn judge_status_update(&self, new: &Value, old: &Value) -> (Vec<FieldError>, Vec<String>) {
        (self.validate_status_update(new, old), Vec::new())
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

    /// Warnings about what the client sent, before [`Strategy::prepare_for_create`] changes it.
    fn warnings_about_sent(&self, _sent: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Warnings about what is allowed all the same. `old` is there for a change.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// How long a deletion waits for somebody to finish the object. `asked` is `gracePeriodSeconds`, if given.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> Grace {
        Grace::None
    }
}

/// What the user wants: everything but metadata and status.
pub fn desired_state(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind"))
}

/// A kind that needs nothing special.
pub struct Plain;

impl Strategy for Plain {}

/// A kind that needs nothing special, but that its status is written alone.
pub struct PlainWithStatus;

impl Strategy for PlainWithStatus {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, ..Flags::USUAL }
    }
}
