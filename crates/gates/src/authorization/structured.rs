//! The file of `--authorization-config`: an `AuthorizationConfiguration`, checked field by field as upstream checks it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use machinery::names::is_dns1123_subdomain;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::conditions::Conditions;
use super::settings::{Error, Mode, Place, Remoteness, Settings};
use crate::configuration;

/// The authorizers there are.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
/// The longest that a webhook may be waited for.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the file. `policy` is what ABAC decides by.
pub fn load(path: &Path, policy: Option<&Path>) -> Result<Settings, Error> {
    let failed = |why: String| Error::File { path: path.display().to_string(), why };
    let (tree, content) = configuration::load(path, "AuthorizationConfiguration", &shape()).map_err(failed)?;
    let modes = read(&tree, policy).map_err(|errors| failed(configuration::together(&errors)))?;
    let file = File { path: path.to_owned(), policy: policy.map(Path::to_owned), content };
    Ok(Settings { modes, file: Some(file) })
}

/// Where the authorizers are said, to be read again when that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub path: PathBuf,
    /// What ABAC decides by.
    policy: Option<PathBuf>,
    /// What was in it.
    pub content: Vec<u8>,
}

impl File {
    /// The authorizers of another content of the file.
    pub fn modes(&self, content: &[u8]) -> Result<Vec<Mode>, Error> {
        let failed = |why: String| Error::File { path: self.path.display().to_string(), why };
        let tree = configuration::read(content, "AuthorizationConfiguration", &shape()).map_err(failed)?;
        read(&tree, self.policy.as_deref()).map_err(|errors| failed(configuration::together(&errors)))
    }
}

/// The fields of the file.
fn shape() -> Value {
    json!({"authorizers": [{
        "type": null, "name": null,
        "webhook": {
            "authorizedTTL": null, "cacheAuthorizedRequests": null, "unauthorizedTTL": null,
            "cacheUnauthorizedRequests": null, "timeout": null, "subjectAccessReviewVersion": null,
            "matchConditionSubjectAccessReviewVersion": null, "failurePolicy": null,
            "connectionInfo": {"type": null, "kubeConfigFile": null},
            "matchConditions": [{"expression": null}],
        },
    }]})
}

fn read(tree: &Value, policy: Option<&Path>) -> Result<Vec<Mode>, Vec<FieldError>> {
    let entries = value::list(tree, "authorizers");
    if entries.is_empty() {
        return Err(vec![FieldError::required("authorizers", "at least one authorization mode must be defined")]);
    }
    let (mut modes, mut errors) = (Vec::new(), Vec::new());
    let (mut types, mut names): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let at = format!("authorizers[{index}].");
        let kind = value::text(entry, "type");
        let kind_at = format!("{at}type");
        if kind.is_empty() {
            errors.push(FieldError::required(kind_at, ""));
            continue;
        }
        if !TYPES.contains(&kind) {
            errors.push(FieldError::not_supported(kind_at, kind, TYPES));
            continue;
        }
        if types.contains(&kind) && kind != "Webhook" {
            errors.push(FieldError::duplicate(kind_at, kind));
            continue;
        }
        types.push(kind);
        let name = value::text(entry, "name");
        errors.extend(misnamed(name, &names, format!("{at}name")));
        if kind != "Webhook" && !name.is_empty() && name != kind.to_lowercase() {
            let why = format!("expected name {} for authorizer {kind} instead of {name}", kind.to_lowercase());
            errors.push(FieldError::invalid(format!("{at}name"), name, why));
        }
        names.push(name);
        let webhook = entry.get("webhook").filter(|webhook| webhook.is_object());
        modes.extend(match (kind, webhook) {
            ("Webhook", None) => {
                errors.push(FieldError::required(format!("{at}webhook"), "required when type=Webhook"));
                None
            }
            ("Webhook", Some(tree)) => {
                let how = webhook_of(tree, &at, &mut errors);
                Some(Mode::Webhook(Remoteness { name: name.to_owned(), ..how }))
            }
            (_, Some(_)) => {
                let why = "may only be specified when type=Webhook";
                errors.push(FieldError::invalid(format!("{at}webhook"), "non-null", why));
                None
            }
            ("AlwaysAllow", _) => Some(Mode::AlwaysAllow),
            ("AlwaysDeny", _) => Some(Mode::AlwaysDeny),
            ("Node", _) => Some(Mode::Node),
            ("RBAC", _) => Some(Mode::Rbac),
            _ => {
                if policy.is_none() {
                    let why = "authorization-mode ABAC's authorization policy file not passed";
                    errors.push(FieldError::required(kind_at, why));
                }
                policy.map(|policy| Mode::Abac(policy.to_owned()))
            }
        });
    }
    if errors.is_empty() { Ok(modes) } else { Err(errors) }
}

fn misnamed(name: &str, known: &[&str], path: String) -> Option<FieldError> {
    if name.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    if known.contains(&name) {
        return Some(FieldError::duplicate(path, name));
    }
    let problems = is_dns1123_subdomain(name);
    let why = || format!("authorizer name is invalid: {}", problems.join(", "));
    (!problems.is_empty()).then(|| FieldError::invalid(path, name, why()))
}

fn webhook_of(tree: &Value, at: &str, errors: &mut Vec<FieldError>) -> Remoteness {
    let text = |key: &str| value::text(tree, key);
    let mut period = |key: &str, default: Option<Duration>, most: Option<Duration>| {
        let path = format!("{at}{key}");
        let most = most.unwrap_or(Duration::MAX);
        match (text(key), default) {
            ("", Some(default)) => default,
            ("", None) => {
                errors.push(FieldError::required(path, ""));
                Duration::ZERO
            }
            (given, default) => match (machinery::duration::parse(given), default) {
                // A period of zero is one that was not given.
                (Some(Duration::ZERO), Some(default)) => default,
                (Some(Duration::ZERO), None) => {
                    errors.push(FieldError::required(path, ""));
                    Duration::ZERO
                }
                (Some(read), _) if read <= most => read,
                _ => {
                    let why = if default.is_none() { "must be > 0s and <= 30s" } else { "must be > 0s" };
                    errors.push(FieldError::invalid(path, given, why));
                    Duration::ZERO
                }
            },
        }
    };
    let timeout = period("timeout", None, Some(MAX_TIMEOUT));
    let authorized_ttl = period("authorizedTTL", Some(Duration::from_secs(300)), None);
    let unauthorized_ttl = period("unauthorizedTTL", Some(Duration::from_secs(30)), None);
    let mut word = |key: &str, known: &[&str], missing: Option<&str>| match (text(key), missing) {
        ("", None) => {}
        ("", Some(why)) => errors.push(FieldError::required(format!("{at}{key}"), why)),
        (given, _) if !known.contains(&given) => {
            errors.push(FieldError::not_supported(format!("{at}{key}"), given, known.iter().copied()));
        }
        _ => {}
    };
    word("subjectAccessReviewVersion", &["v1", "v1beta1"], Some(""));
    let conditions = value::list(tree, "matchConditions");
    let missing = (!conditions.is_empty()).then_some("required if match conditions are specified");
    word("matchConditionSubjectAccessReviewVersion", &["v1"], missing);
    word("failurePolicy", &["NoOpinion", "Deny"], Some(""));
    word("connectionInfo.type", &["InClusterConfig", "KubeConfigFile"], Some(""));
    let named = text("connectionInfo.kubeConfigFile");
    let kubeconfig_at = format!("{at}connectionInfo.kubeConfigFile");
    let place = match text("connectionInfo.type") {
        "InClusterConfig" => {
            if !named.is_empty() {
                let why = "can only be set when type=KubeConfigFile";
                errors.push(FieldError::invalid(kubeconfig_at, named, why));
            }
            Place::InCluster
        }
        kind => {
            let kubeconfig = PathBuf::from(named);
            errors.extend(unusable(&kubeconfig, kubeconfig_at).filter(|_| kind == "KubeConfigFile"));
            Place::Kubeconfig(kubeconfig)
        }
    };
    let conditions: Vec<String> =
        conditions.iter().map(|condition| value::text(condition, "expression").to_owned()).collect();
    if let Err(wrong) = Conditions::compile(&conditions, at) {
        errors.extend(wrong);
    }
    let cached = |key: &str| value::at(tree, key).and_then(Value::as_bool).unwrap_or(true);
    Remoteness {
        name: String::new(),
        place,
        version: text("subjectAccessReviewVersion").to_owned(),
        authorized_ttl: if cached("cacheAuthorizedRequests") { authorized_ttl } else { Duration::ZERO },
        unauthorized_ttl: if cached("cacheUnauthorizedRequests") { unauthorized_ttl } else { Duration::ZERO },
        timeout,
        fails_closed: text("failurePolicy") == "Deny",
        conditions,
    }
}

fn unusable(kubeconfig: &Path, path: String) -> Option<FieldError> {
    let shown = kubeconfig.display().to_string();
    if shown.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    if !kubeconfig.is_absolute() {
        return Some(FieldError::invalid(path, shown, "must be an absolute path"));
    }
    match std::fs::metadata(kubeconfig) {
        Err(error) => Some(FieldError::invalid(path, shown, format!("error loading file: {error}"))),
        Ok(found) if !found.is_file() => Some(FieldError::invalid(path, shown, "must be a regular file")),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(tree: &Value, expect: &[&str]) {
        let errors = read(tree, None).expect_err("refused");
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(shown, expect);
    }

    #[test]
    fn authorizers_are_checked_as_upstream_checks_them() {
        refused(&json!({}), &["authorizers: Required value: at least one authorization mode must be defined"]);
        let entries = json!({"authorizers": [
            {"name": "a"},
            {"type": "Other", "name": "a"},
            {"type": "RBAC", "name": "rbac"},
            {"type": "RBAC", "name": "b"},
            {"type": "Node", "name": "rbac", "webhook": {}},
            {"type": "Webhook", "name": "Capital", "webhook": null},
            {"type": "AlwaysDeny", "name": "other"},
            {"type": "AlwaysAllow"},
            {"type": "Webhook", "name": "w"},
            {"type": "ABAC", "name": "abac"},
        ]});
        refused(
            &entries,
            &[
                "authorizers[0].type: Required value",
                "authorizers[1].type: Unsupported value: \"Other\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
                "authorizers[3].type: Duplicate value: \"RBAC\"",
                "authorizers[4].name: Duplicate value: \"rbac\"",
                "authorizers[4].name: Invalid value: \"rbac\": expected name node for authorizer Node instead of rbac",
                "authorizers[4].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
                "authorizers[5].name: Invalid value: \"Capital\": authorizer name is invalid: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                "authorizers[5].webhook: Required value: required when type=Webhook",
                "authorizers[6].name: Invalid value: \"other\": expected name alwaysdeny for authorizer AlwaysDeny instead of other",
                "authorizers[7].name: Required value",
                "authorizers[8].webhook: Required value: required when type=Webhook",
                "authorizers[9].type: Required value: authorization-mode ABAC's authorization policy file not passed",
            ],
        );
    }

    #[test]
    fn webhooks_say_all_that_they_must() {
        let webhook = |tree: Value| json!({"authorizers": [{"type": "Webhook", "name": "w", "webhook": tree}]});
        let in_cluster = |kubeconfig: Value| {
            webhook(json!({"timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
                "connectionInfo": {"type": "InClusterConfig", "kubeConfigFile": kubeconfig}}))
        };
        refused(
            &in_cluster(json!("/x")),
            &[
                "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"/x\": can only be set when type=KubeConfigFile",
            ],
        );
        let read = read(&in_cluster(json!(null)), None).expect("a webhook");
        assert!(matches!(&read[..], [Mode::Webhook(how)] if how.place == Place::InCluster));
        refused(
            &webhook(json!({"matchConditions": [{"expression": "1"}], "connectionInfo": {"type": "KubeConfigFile"}})),
            &[
                "authorizers[0].timeout: Required value",
                "authorizers[0].subjectAccessReviewVersion: Required value",
                "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
                "authorizers[0].failurePolicy: Required value",
                "authorizers[0].connectionInfo.kubeConfigFile: Required value",
                "authorizers[0].matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
            ],
        );
        refused(
            &webhook(json!({"timeout": "31s", "authorizedTTL": "-1s", "subjectAccessReviewVersion": "v2",
                "matchConditionSubjectAccessReviewVersion": "v1beta1", "failurePolicy": "Maybe",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "relative"}})),
            &[
                "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
                "authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s",
                "authorizers[0].subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\"",
                "authorizers[0].matchConditionSubjectAccessReviewVersion: Unsupported value: \"v1beta1\": supported values: \"v1\"",
                "authorizers[0].failurePolicy: Unsupported value: \"Maybe\": supported values: \"NoOpinion\", \"Deny\"",
                "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"relative\": must be an absolute path",
            ],
        );
    }
}
