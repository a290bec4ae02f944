//! PodSecurity: a namespace's labels say which of the pod security standards its pods must meet, and which they should.
//!
//! `enforce` refuses pods; `audit` notes and `warn` warns, for pods and for everything that makes pods.

mod checks;

use machinery::status::ApiError;
use machinery::{Value, value};

use super::{Operation, Request};
use crate::gates::context;
use crate::rest::{Api, keep};
pub use checks::Level;
use checks::violations;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// What is asked of pods where a namespace says nothing, and who is asked nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Must be met.
    pub enforce: Level,
    /// Is noted when not met.
    pub audit: Level,
    /// Is warned about when not met.
    pub warn: Level,
    /// Users that may do anything.
    pub exempt_users: Vec<String>,
    /// Namespaces where anything goes.
    pub exempt_namespaces: Vec<String>,
    /// Runtime classes that are safe by themselves.
    pub exempt_runtime_classes: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let open = Level::Privileged;
        Self {
            enforce: open,
            audit: open,
            warn: open,
            exempt_users: Vec::new(),
            exempt_namespaces: Vec::new(),
            exempt_runtime_classes: Vec::new(),
        }
    }
}

/// A level and the version of the standards it is meant in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    level: Level,
    version: String,
}

/// What a namespace asks for.
#[derive(Debug, PartialEq, Eq)]
struct Policy {
    enforce: Wanted,
    audit: Wanted,
    warn: Wanted,
}

impl Policy {
    fn of<'a>(settings: &Settings, label: impl Fn(&str) -> Option<&'a str>) -> Self {
        let wanted = |mode: &str, default: Level, lax: Level| {
            let level = match label(&format!("{PREFIX}{mode}")) {
                None => default,
                // A level that is none must not be laxer than the strictest, nor refuse what only should be noted.
                Some(text) => Level::parse(text).unwrap_or(lax),
            };
            let version = label(&format!("{PREFIX}{mode}-version")).unwrap_or("latest").to_owned();
            Wanted { level, version }
        };
        Self {
            enforce: wanted("enforce", settings.enforce, Level::Restricted),
            audit: wanted("audit", settings.audit, Level::Privileged),
            warn: wanted("warn", settings.warn, Level::Privileged),
        }
    }

    fn is_open(&self) -> bool {
        [&self.enforce, &self.audit, &self.warn].iter().all(|wanted| wanted.level == Level::Privileged)
    }
}

/// Where a kind keeps the pods it makes.
fn template(group: &str, plural: &str) -> Option<&'static str> {
    match (group, plural) {
        ("", "podtemplates") => Some("template"),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets")
        | ("batch", "jobs") => Some("spec.template"),
        ("batch", "cronjobs") => Some("spec.jobTemplate.spec.template"),
        _ => None,
    }
}

/// Refuses, notes and warns.
pub fn validate(
    settings: &Settings,
    api: &Api,
    request: &Request<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let Some(new) = new.filter(|_| matches!(request.operation, Operation::Create | Operation::Update)) else {
        return Ok(());
    };
    let name = &request.resource.name;
    let pod = name.group.is_empty()
        && name.resource == "pods"
        && matches!(request.info.subresource.as_str(), "" | "ephemeralcontainers" | "resize");
    let template = template(&name.group, &name.resource).filter(|_| request.info.subresource.is_empty());
    if request.is_for("", "namespaces") {
        return check_labels(request, new);
    }
    if !pod && template.is_none() {
        return Ok(());
    }
    let namespaces = api.registry.stored("", "namespaces");
    let Some(namespace) = namespaces.and_then(|all| all.cache.get(&request.info.namespace)) else { return Ok(()) };
    let policy = Policy::of(settings, |key| namespace.meta().label(key));
    if policy.is_open() {
        return Ok(());
    }
    if let Some(dimension) = exempt(settings, request, new, template) {
        context::annotate("pod-security.kubernetes.io/exempt", dimension);
        return Ok(());
    }
    match template {
        None => {
            if old.is_some_and(|old| !is_significant(new, old)) {
                return Ok(());
            }
            check_pod(&policy, request, new)
        }
        Some(path) => {
            if let Some(made) = value::at(new, path) {
                advise(&policy, made);
            }
            Ok(())
        }
    }
}

fn exempt(settings: &Settings, request: &Request<'_>, new: &Value, template: Option<&str>) -> Option<&'static str> {
    let spec =
        template.map_or_else(|| value::at(new, "spec"), |path| value::at(new, path).and_then(|made| made.get("spec")));
    let class = spec.map_or("", |spec| value::text(spec, "runtimeClassName"));
    if settings.exempt_namespaces.contains(&request.info.namespace) {
        Some("namespace")
    } else if settings.exempt_users.contains(&request.user.name) {
        Some("user")
    } else if !class.is_empty() && settings.exempt_runtime_classes.iter().any(|exempt| exempt == class) {
        Some("runtimeClass")
    } else {
        None
    }
}

fn check_pod(policy: &Policy, request: &Request<'_>, pod: &Value) -> Result<(), ApiError> {
    let empty = Value::Null;
    let (metadata, spec) = (pod.get("metadata").unwrap_or(&empty), pod.get("spec").unwrap_or(&empty));
    let Wanted { level, version } = &policy.enforce;
    context::annotate("pod-security.kubernetes.io/enforce-policy", format!("{}:{version}", level.name()));
    let found = violations(*level, metadata, spec);
    let refused = (!found.is_empty())
        .then(|| format!("violates PodSecurity \"{}:{version}\": {}", level.name(), found.join(", ")));
    // Who is refused need not be warned of the same.
    advise_beside(policy, metadata, spec, refused.is_some());
    match refused {
        Some(why) => Err(request.forbid(pod, &why)),
        None => Ok(()),
    }
}

fn advise(policy: &Policy, template: &Value) {
    let empty = Value::Null;
    let (metadata, spec) = (template.get("metadata").unwrap_or(&empty), template.get("spec").unwrap_or(&empty));
    advise_beside(policy, metadata, spec, false);
}

fn advise_beside(policy: &Policy, metadata: &Value, spec: &Value, refused: bool) {
    let told = |wanted: &Wanted| {
        let found = violations(wanted.level, metadata, spec);
        (!found.is_empty()).then(|| {
            format!("would violate PodSecurity \"{}:{}\": {}", wanted.level.name(), wanted.version, found.join(", "))
        })
    };
    if let Some(text) = told(&policy.audit) {
        context::annotate("pod-security.kubernetes.io/audit-violations", text);
    }
    if let Some(text) = told(&policy.warn).filter(|_| !refused) {
        context::warn(text);
    }
}

/// Whether an update could make a pod less safe: what cannot change need not be checked again.
fn is_significant(new: &Value, old: &Value) -> bool {
    let mut same = new.clone();
    // Tolerations, deadlines and images are the only parts of a pod's spec that can change and are safe.
    for path in
        ["spec.tolerations", "spec.activeDeadlineSeconds", "spec.terminationGracePeriodSeconds", "spec.schedulingGates"]
    {
        keep(&mut same, old, path);
    }
    let app_armor = |pod: &Value| -> Vec<(String, Value)> {
        let all = value::at(pod, "metadata.annotations").and_then(Value::as_object).into_iter().flatten();
        all.filter(|(key, _)| key.contains("apparmor") || key.contains("seccomp"))
            .map(|(key, text)| (key.clone(), text.clone()))
            .collect()
    };
    same.get("spec") != old.get("spec") || app_armor(new) != app_armor(old)
}

/// A namespace must not ask for a level that does not exist.
fn check_labels(request: &Request<'_>, namespace: &Value) -> Result<(), ApiError> {
    let labels = value::at(namespace, "metadata.labels").and_then(Value::as_object);
    let mut errors = Vec::new();
    for (key, text) in labels.into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        let Some(mode) = key.strip_prefix(PREFIX) else { continue };
        let at = format!("metadata.labels[{key}]");
        match mode {
            "enforce" | "audit" | "warn" if Level::parse(text).is_none() => {
                let why = "must be one of privileged, baseline, restricted";
                errors.push(machinery::status::FieldError::invalid(at, text, why));
            }
            "enforce-version" | "audit-version" | "warn-version" if !is_version(text) => {
                let why = "must be \"latest\" or \"v1.x\"";
                errors.push(machinery::status::FieldError::invalid(at, text, why));
            }
            _ => {}
        }
    }
    if errors.is_empty() || request.operation == Operation::Delete {
        return Ok(());
    }
    Err(ApiError::invalid("", "Namespace", value::text(namespace, "metadata.name"), &errors))
}

fn is_version(text: &str) -> bool {
    let minor = |text: &str| !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    text == "latest" || text.strip_prefix("v1.").is_some_and(minor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_choose_levels_and_versions() {
        let label = |key: &str| match key {
            "pod-security.kubernetes.io/enforce" => Some("baseline"),
            "pod-security.kubernetes.io/enforce-version" => Some("v1.30"),
            "pod-security.kubernetes.io/warn" => Some("nonsense"),
            _ => None,
        };
        let policy = Policy::of(&Settings::default(), label);
        assert_eq!(policy.enforce, Wanted { level: Level::Baseline, version: "v1.30".to_owned() });
        assert_eq!(policy.warn.level, Level::Privileged);
        assert!(!policy.is_open() && Policy::of(&Settings::default(), |_| None).is_open());
        let nonsense = Policy::of(&Settings::default(), |key| key.ends_with("enforce").then_some("nonsense"));
        assert_eq!(nonsense.enforce.level, Level::Restricted);
    }

    #[test]
    fn updates_that_cannot_hurt_are_let_through() {
        let pod = |image: &str, seconds: i64| json!({"metadata": {}, "spec": {"activeDeadlineSeconds": seconds, "containers": [{"name": "c", "image": image}]}});
        assert!(!is_significant(&pod("a", 5), &pod("a", 9)));
        assert!(is_significant(&pod("b", 5), &pod("a", 5)));
        assert!(is_version("latest") && is_version("v1.37") && !is_version("1.37") && !is_version("v1."));
    }
}
