//! What a definition's status says: which names it has, whether it is served, and whether its community agrees.

use std::collections::HashSet;

use machinery::status::go_quote;
use machinery::{Value, value};
use serde_json::json;

/// Holds a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The annotation that says where a definition was approved of.
pub const APPROVAL: &str = "api-approved.kubernetes.io";
const POLICY: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Whether a condition of a definition is true.
pub fn condition_is(definition: &Value, kind: &str, status: &str) -> bool {
    let conditions = value::list(definition, "status.conditions");
    conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == status)
}

/// The conditions of a definition while they are being changed.
pub struct Conditions<'a> {
    definition: &'a mut Value,
    now: &'a str,
}

impl<'a> Conditions<'a> {
    /// Of a definition, at a time.
    pub fn of(definition: &'a mut Value, now: &'a str) -> Self {
        Self { definition, now }
    }

    /// Sets a condition. Its time is that of the last change between true and false.
    pub fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let mut conditions = value::list(self.definition, "status.conditions").to_vec();
        let new = |since: &Value| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since});
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            Some(known) => {
                let since = &known["lastTransitionTime"];
                let same = known["status"] == status && !since.is_null();
                *known = if same { new(&since.clone()) } else { new(&json!(self.now)) };
            }
            None => conditions.push(new(&json!(self.now))),
        }
        value::set(self.definition, "status.conditions", conditions);
    }

    /// Takes a condition away.
    pub fn remove(&mut self, kind: &str) {
        let conditions = value::list(self.definition, "status.conditions");
        if conditions.iter().any(|condition| condition["type"] == kind) {
            let others: Vec<Value> = conditions.iter().filter(|condition| condition["type"] != kind).cloned().collect();
            value::set(self.definition, "status.conditions", others);
        }
    }
}

/// Gives a definition the names it asks for, as far as no other of its group has them, and says so in its conditions. What is accepted is
/// established at once, unless its conversion cannot be asked.
pub fn accept_names<'a>(definition: &mut Value, others: impl Iterator<Item = &'a Value>, now: &str) {
    let (mut resources, mut kinds) = (HashSet::new(), HashSet::new());
    for other in others.filter(|other| value::at(other, "spec.group") == value::at(definition, "spec.group")) {
        let accepted = |field: &str| value::text(other, &format!("status.acceptedNames.{field}")).to_owned();
        resources.extend([accepted("plural"), accepted("singular")]);
        resources.extend(texts(other, "status.acceptedNames.shortNames"));
        kinds.extend([accepted("kind"), accepted("listKind")]);
    }
    let conflict = accept(definition, &resources, &kinds);
    let mut conditions = Conditions::of(definition, now);
    let accepted = conflict.is_none();
    match conflict {
        Some((reason, message)) => conditions.set("NamesAccepted", "False", reason, &message),
        None => conditions.set("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
    }
    if condition_is(definition, "Established", "True") {
        return;
    }
    let bundle = value::text(definition, "spec.conversion.webhook.clientConfig.caBundle").to_owned();
    let mut conditions = Conditions::of(definition, now);
    if !accepted {
        conditions.set("Established", "False", "NotAccepted", "not all names are accepted");
    } else if !bundle.is_empty() && !is_bundle(&bundle) {
        let message = "The conversion webhook CABundle is invalid";
        conditions.set("Established", "False", "InvalidCABundle", message);
    } else {
        conditions.set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted");
    }
}

/// Whether a text is base64 of something that has a certificate in it.
fn is_bundle(text: &str) -> bool {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----")
}

fn texts(definition: &Value, path: &str) -> Vec<String> {
    value::list(definition, path).iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Why a name could not be given: a reason and a message.
type Conflict = Option<(&'static str, String)>;

/// Takes over the names that are free. The last conflict is the one that is told.
fn accept(definition: &mut Value, resources: &HashSet<String>, kinds: &HashSet<String>) -> Conflict {
    let mut conflict = None;
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        conflict = accept_one(definition, field, resources, reason).or(conflict);
    }
    let (wanted, has) =
        (texts(definition, "spec.names.shortNames"), texts(definition, "status.acceptedNames.shortNames"));
    let taken = wanted.iter().filter(|name| !has.contains(name) && resources.contains(*name));
    match taken.map(|name| in_use(name)).collect::<Vec<_>>().as_slice() {
        [] => adopt(definition, "shortNames"),
        [one] => conflict = Some(("ShortNamesConflict", one.clone())),
        several => conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        conflict = accept_one(definition, field, kinds, reason).or(conflict);
    }
    adopt(definition, "categories");
    conflict
}

fn accept_one(definition: &mut Value, field: &str, used: &HashSet<String>, reason: &'static str) -> Conflict {
    let path = format!("status.acceptedNames.{field}");
    let wanted = value::text(definition, &format!("spec.names.{field}")).to_owned();
    if wanted != value::text(definition, &path) && used.contains(&wanted) {
        return Some((reason, in_use(&wanted)));
    }
    value::set(definition, &path, wanted);
    None
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", go_quote(name))
}

/// Takes over a list of names as it is wanted.
fn adopt(definition: &mut Value, field: &str) {
    let path = format!("status.acceptedNames.{field}");
    match value::at(definition, &format!("spec.names.{field}")).cloned() {
        Some(names) => value::set(definition, &path, names),
        None => drop(value::remove(definition, &path)),
    }
}

/// Whether the community agrees with a definition in one of its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Missing,
    /// It says that nobody approved of it.
    Bypassed,
    /// It says where it was approved of.
    Given,
    Invalid,
}

/// Whether a definition is approved of, and why that is so; nothing for groups that need no approval.
pub fn approval_of(definition: &Value) -> Option<(Approval, String)> {
    let group = value::text(definition, "spec.group");
    let guarded = |suffix: &str| group == suffix || group.ends_with(&format!(".{suffix}"));
    if !guarded("k8s.io") && !guarded("kubernetes.io") {
        return None;
    }
    let annotations = value::at(definition, "metadata.annotations");
    let said = annotations.and_then(|all| all.get(APPROVAL)).and_then(Value::as_str).unwrap_or_default();
    let is_url = said.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/') && !said.contains(char::is_whitespace)
    });
    let needed = format!("protected groups must have approval annotation {}", go_quote(APPROVAL));
    Some(if said.is_empty() {
        (Approval::Missing, format!("{needed}, {POLICY}"))
    } else if said.starts_with("unapproved") {
        (Approval::Bypassed, format!("not approved: {}", go_quote(said)))
    } else if is_url {
        (Approval::Given, format!("approved in {said}"))
    } else {
        let message = format!("{needed} with either a URL or a reason starting with \"unapproved\", {POLICY}");
        (Approval::Invalid, message)
    })
}

/// Says whether a definition in a group of the community has its approval.
pub fn approval(definition: &mut Value, now: &str) {
    const KIND: &str = "KubernetesAPIApprovalPolicyConformant";
    let Some((approval, message)) = approval_of(definition) else { return };
    let (status, reason) = match approval {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Given => ("True", "ApprovedAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
    };
    Conditions::of(definition, now).set(KIND, status, reason, &message);
}
