//! PodSecurity: a namespace's labels say which of the pod security standards its pods must meet, and which they should.
//!
//! `enforce` refuses pods; `audit` notes and `warn` warns, for pods and for everything that makes pods.

mod checks;
mod standard;
mod violation;

use std::fmt;

use gates::notes::Notes;
use kinds::keep::keep;
use machinery::status::{ApiError, FieldError};
use machinery::{Value, value};
use storage::cache::Filter;

use super::{Operation, Request};
use crate::verbs::Api;
pub use checks::Violation;
use checks::violations;
pub use standard::{Level, Version};

const PREFIX: &str = "pod-security.kubernetes.io/";
/// A mode with the labels that set its level and its version.
const ENFORCE: [&str; 2] = ["pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/enforce-version"];
const AUDIT: [&str; 2] = ["pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/audit-version"];
const WARN: [&str; 2] = ["pod-security.kubernetes.io/warn", "pod-security.kubernetes.io/warn-version"];
/// The most pods that are looked at when a namespace becomes stricter.
const MAX_EXISTING: usize = 3000;

/// A level and the version of the standards it is meant in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub level: Level,
    pub version: Version,
}

impl Wanted {
    const OPEN: Self = Self { level: Level::Privileged, version: Version::LATEST };

    /// What a pod does that the level forbids.
    pub fn violations(self, metadata: &Value, spec: &Value) -> Vec<Violation> {
        violations(self.level, self.version, metadata, spec)
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.name(), self.version)
    }
}

/// What is asked of pods where a namespace says nothing, and who is asked nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub enforce: Wanted,
    /// Is noted when not met.
    pub audit: Wanted,
    /// Is warned about when not met.
    pub warn: Wanted,
    /// Users that may do anything.
    pub exempt_users: Vec<String>,
    /// Namespaces where anything goes.
    pub exempt_namespaces: Vec<String>,
    /// Runtime classes that are safe by themselves.
    pub exempt_runtime_classes: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enforce: Wanted::OPEN,
            audit: Wanted::OPEN,
            warn: Wanted::OPEN,
            exempt_users: Vec::new(),
            exempt_namespaces: Vec::new(),
            exempt_runtime_classes: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads a `PodSecurityConfiguration`.
    pub fn read(tree: &Value) -> Result<Self, String> {
        let mode = |name: &str| -> Result<Wanted, String> {
            let defaults = &tree["defaults"];
            let (level, version) = (value::text(defaults, name), value::text(defaults, &format!("{name}-version")));
            let level = if level.is_empty() { Some(Level::Privileged) } else { Level::parse(level) };
            let version = if version.is_empty() { Some(Version::LATEST) } else { Version::parse(version) };
            Ok(Wanted {
                level: level
                    .ok_or_else(|| format!("defaults.{name}: must be one of privileged, baseline, restricted"))?,
                version: version.ok_or_else(|| format!("defaults.{name}-version: must be \"latest\" or \"v1.x\""))?,
            })
        };
        let exempt = |key: &str| -> Vec<String> {
            let list = value::list(&tree["exemptions"], key);
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Ok(Self {
            enforce: mode("enforce")?,
            audit: mode("audit")?,
            warn: mode("warn")?,
            exempt_users: exempt("usernames"),
            exempt_namespaces: exempt("namespaces"),
            exempt_runtime_classes: exempt("runtimeClasses"),
        })
    }
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
        let wanted = |[level, version]: [&str; 2], default: Wanted, lax: Level| {
            let level = match label(level) {
                None => default.level,
                // A level that is none must not be laxer than the strictest, nor refuse what only should be noted.
                Some(text) => Level::parse(text).unwrap_or(lax),
            };
            let version =
                label(version).map_or(default.version, |text| Version::parse(text).unwrap_or(Version::LATEST));
            Wanted { level, version }
        };
        Self {
            enforce: wanted(ENFORCE, settings.enforce, Level::Restricted),
            audit: wanted(AUDIT, settings.audit, Level::Privileged),
            warn: wanted(WARN, settings.warn, Level::Privileged),
        }
    }

    fn is_open(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|wanted| wanted.level == Level::Privileged)
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
        return check_namespace(settings, api, &request.exchange.notes, new, old);
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
        request.exchange.notes.annotate("pod-security.kubernetes.io/exempt", dimension);
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
                advise(&policy, &request.exchange.notes, made);
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
    let (metadata, spec) = parts(pod);
    let notes = &request.exchange.notes;
    notes.annotate("pod-security.kubernetes.io/enforce-policy", policy.enforce.to_string());
    let found = policy.enforce.violations(metadata, spec);
    let refused =
        (!found.is_empty()).then(|| format!("violates PodSecurity \"{}\": {}", policy.enforce, listed(&found)));
    // Who is refused need not be warned of the same.
    advise_beside(policy, notes, metadata, spec, refused.is_some());
    match refused {
        Some(why) => Err(request.forbid(pod, &why)),
        None => Ok(()),
    }
}

fn parts(pod: &Value) -> (&Value, &Value) {
    (pod.get("metadata").unwrap_or(&Value::Null), pod.get("spec").unwrap_or(&Value::Null))
}

fn listed(found: &[Violation]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn advise(policy: &Policy, notes: &Notes, template: &Value) {
    let (metadata, spec) = parts(template);
    advise_beside(policy, notes, metadata, spec, false);
}

fn advise_beside(policy: &Policy, notes: &Notes, metadata: &Value, spec: &Value, refused: bool) {
    let violation_text = |wanted: Wanted| {
        let found = wanted.violations(metadata, spec);
        (!found.is_empty()).then(|| format!("would violate PodSecurity \"{wanted}\": {}", listed(&found)))
    };
    if let Some(text) = violation_text(policy.audit) {
        notes.annotate("pod-security.kubernetes.io/audit-violations", text);
    }
    if let Some(text) = violation_text(policy.warn).filter(|_| !refused) {
        notes.warn(text);
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

/// A namespace must not ask for what does not exist, and gets a warning that names which of its pods do not meet what it now asks for.
fn check_namespace(
    settings: &Settings,
    api: &Api,
    notes: &Notes,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let errors = label_errors(new);
    let name = value::text(new, "metadata.name");
    // What was wrong before must not stand in the way of mending something else.
    if !errors.is_empty() && old.is_none_or(|old| label_errors(old).is_empty()) {
        return Err(ApiError::invalid("", "Namespace", name, &errors));
    }
    let Some(old) = old else { return Ok(()) };
    let wanted = |namespace: &Value| {
        let labels = value::at(namespace, "metadata.labels").cloned().unwrap_or_default();
        Policy::of(settings, |key| labels.get(key).and_then(Value::as_str)).enforce
    };
    let (before, after) = (wanted(old), wanted(new));
    let laxer = after.version == before.version && after.level <= before.level;
    if after == before || after.level == Level::Privileged || laxer {
        return Ok(());
    }
    if settings.exempt_namespaces.iter().any(|exempt| exempt == name) {
        notes.warn(format!(
            "namespace {name:?} is exempt from Pod Security, and the policy (enforce={after}) will be ignored"
        ));
        return Ok(());
    }
    warn_of_pods(api, notes, name, after);
    Ok(())
}

/// Warns of the pods that a stricter namespace would not let in again: those with the same problems together.
fn warn_of_pods(api: &Api, notes: &Notes, namespace: &str, wanted: Wanted) {
    let Some(pods) = api.registry.stored("", "pods") else { return };
    let (all, _) = pods.cache.list(&Filter::namespace(namespace), None, 0);
    let mut controllers: Vec<String> = Vec::new();
    // Reasons, the first pod with them, and how many others have them.
    let mut by_reasons: Vec<(String, String, usize)> = Vec::new();
    for pod in all.iter().take(MAX_EXISTING) {
        let pod = pod.to_value();
        if let Some(owner) = rules::owners::controller_in(&pod).map(|owner| value::text(owner, "uid")) {
            // One pod of a set speaks for all.
            if controllers.iter().any(|known| known == owner) {
                continue;
            }
            controllers.push(owner.to_owned());
        }
        let (metadata, spec) = parts(&pod);
        let found = wanted.violations(metadata, spec);
        if found.is_empty() {
            continue;
        }
        let reasons = found.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ");
        match by_reasons.iter_mut().find(|(known, _, _)| *known == reasons) {
            Some((_, _, others)) => *others += 1,
            None => by_reasons.push((reasons, value::text(&pod, "metadata.name").to_owned(), 0)),
        }
    }
    if by_reasons.is_empty() {
        return;
    }
    notes.warn(format!(
        "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{wanted}\""
    ));
    for (reasons, pod, others) in by_reasons {
        notes.warn(match others {
            0 => format!("{pod}: {reasons}"),
            1 => format!("{pod} (and 1 other pod): {reasons}"),
            others => format!("{pod} (and {others} other pods): {reasons}"),
        });
    }
}

fn label_errors(namespace: &Value) -> Vec<FieldError> {
    let labels = value::at(namespace, "metadata.labels").and_then(Value::as_object);
    let mut errors = Vec::new();
    for (key, text) in labels.into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        let Some(mode) = key.strip_prefix(PREFIX) else { continue };
        let at = format!("metadata.labels[{key}]");
        match mode {
            "enforce" | "audit" | "warn" if Level::parse(text).is_none() => {
                errors.push(FieldError::invalid(at, text, "must be one of privileged, baseline, restricted"));
            }
            "enforce-version" | "audit-version" | "warn-version" if Version::parse(text).is_none() => {
                errors.push(FieldError::invalid(at, text, "must be \"latest\" or \"v1.x\""));
            }
            _ => {}
        }
    }
    errors
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
        assert_eq!(policy.enforce.to_string(), "baseline:v1.30");
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
    }
}
