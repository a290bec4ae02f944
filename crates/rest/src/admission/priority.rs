//! Priority: a pod's priority class as the number and the policy it stands for.

use machinery::status::ApiError;
use machinery::{Value, value};

use super::compiled::Compiled;
use super::{Operation, Request};
use crate::registry::Registry;

const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];
const PREEMPTS: &str = "PreemptLowerPriority";

/// What a class stands for.
struct Class {
    name: String,
    value: i64,
    policy: String,
    is_default: bool,
}

/// The plug-in: all classes, read once per change.
pub struct Priorities(Option<Compiled<Class>>);

impl Priorities {
    /// On the cache of the classes.
    pub fn new(registry: &Registry) -> Self {
        let classes = registry.stored("scheduling.k8s.io", "priorityclasses");
        Self(classes.map(|classes| Compiled::new(classes.cache.clone(), Class::read)))
    }

    /// Resolves `spec.priorityClassName`, or the cluster's default class.
    pub fn admit(&self, request: &Request<'_>, pod: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        if !request.is_for("", "pods") {
            return Ok(());
        }
        match (request.operation, old) {
            (Operation::Create, _) => self.resolve(request, pod),
            (Operation::Update, Some(old)) => {
                // A client that does not know the fields does not take them away.
                for path in ["spec.priority", "spec.preemptionPolicy"] {
                    if let (None, Some(kept)) = (value::at(pod, path), value::at(old, path)) {
                        value::set(pod, path, kept.clone());
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn resolve(&self, request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
        let classes = self.0.as_ref().and_then(Compiled::current);
        let classes = classes.as_deref().map_or(&[][..], Vec::as_slice);
        let name = value::text(pod, "spec.priorityClassName");
        let class = match name {
            // Of several defaults the least counts.
            "" => classes.iter().filter(|class| class.is_default).min_by_key(|class| class.value),
            name => Some(
                classes
                    .iter()
                    .find(|class| class.name == name)
                    .ok_or_else(|| request.forbid(pod, &format!("no PriorityClass with name {name} was found")))?,
            ),
        };
        let (priority, policy) = class.map_or((0, PREEMPTS), |class| (class.value, class.policy.as_str()));
        if let Some(given) = value::int(pod, "spec.priority").filter(|given| *given != priority) {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            );
            return Err(request.forbid(pod, &why));
        }
        let given = value::at(pod, "spec.preemptionPolicy").and_then(Value::as_str);
        if let Some(given) = given.filter(|given| *given != policy) {
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return Err(request.forbid(pod, &why));
        }
        if let Some(class) = class {
            value::set(pod, "spec.priorityClassName", class.name.as_str());
        }
        value::set(pod, "spec.priority", priority);
        value::set(pod, "spec.preemptionPolicy", policy);
        Ok(())
    }

    /// Refuses a second default class.
    pub fn validate(&self, request: &Request<'_>, new: Option<&Value>) -> Result<(), ApiError> {
        let wanted = matches!(request.operation, Operation::Create | Operation::Update)
            && request.is_for("scheduling.k8s.io", "priorityclasses");
        let Some(class) = new.filter(|class| wanted && value::flag(class, "globalDefault")) else { return Ok(()) };
        let classes = self.0.as_ref().and_then(Compiled::current);
        let classes = classes.as_deref().map_or(&[][..], Vec::as_slice);
        let own = value::text(class, "metadata.name");
        let default = classes.iter().filter(|class| class.is_default).min_by_key(|class| class.value);
        match default.filter(|default| request.operation == Operation::Create || default.name != own) {
            Some(default) => {
                let why =
                    format!("PriorityClass {} is already marked as default. Only one default can exist", default.name);
                Err(request.forbid(class, &why))
            }
            None => Ok(()),
        }
    }
}

/// The classes of the system stay. Upstream's storage refuses their deletion, whether or not the plug-in runs; deletions of
/// whole collections go past it.
pub fn keep_system_classes(request: &Request<'_>) -> Result<(), ApiError> {
    let deleted = request.operation == Operation::Delete && request.is_for("scheduling.k8s.io", "priorityclasses");
    if deleted && request.info.verb == "delete" && SYSTEM_CLASSES.contains(&request.info.name.as_str()) {
        return Err(request.forbid_unnamed("this is a system priority class and cannot be deleted"));
    }
    Ok(())
}

impl Class {
    fn read(tree: &Value) -> Vec<Self> {
        let policy = Some(value::text(tree, "preemptionPolicy")).filter(|policy| !policy.is_empty());
        vec![Self {
            name: value::text(tree, "metadata.name").to_owned(),
            value: value::int(tree, "value").unwrap_or(0),
            policy: policy.unwrap_or(PREEMPTS).to_owned(),
            is_default: value::flag(tree, "globalDefault"),
        }]
    }
}
