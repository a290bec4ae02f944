//! ServiceAccount: every pod runs as one, gets its token, the cluster's CA and its namespace mounted, and, where the
//! account says so, uses no secrets but the account's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machinery::object::Object;
use machinery::status::ApiError;
use machinery::{Value, names, value};
use serde::Deserialize;
use serde_json::json;
use storage::cache::{Filter, Start};

use super::pods::{List, placed, push, spec};
use super::{Operation, Request};
use crate::registry::Resource;
use crate::verbs::Api;

const DEFAULT: &str = "default";
/// How long a pod waits for the default account of its namespace.
const PATIENCE: Duration = Duration::from_millis(1500);
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// How long a mounted token lives before the kubelet must have replaced it: an hour and a little, as upstream's.
const TOKEN_SECONDS: i64 = 3607;
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    value::at(object, "metadata.annotations")?.get(key)?.as_str()
}

/// What every new pod wants to know of its account: read without making a tree of all the rest.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Account {
    metadata: AccountMeta,
    image_pull_secrets: Option<Vec<Value>>,
    automount_service_account_token: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccountMeta {
    annotations: Option<BTreeMap<String, String>>,
}

impl Account {
    fn read(object: &Object) -> Result<Self, ApiError> {
        object.decode().map_err(|error| ApiError::internal(format!("a service account cannot be read: {error}")))
    }

    /// Whether its pods use no secrets but those that it lists.
    fn enforces_secrets(&self) -> bool {
        let annotation = self.metadata.annotations.as_ref().and_then(|all| all.get(ENFORCE));
        matches!(annotation.map(String::as_str), Some("true" | "True" | "TRUE" | "t" | "T" | "1"))
    }
}

/// The account that a pod names. The default one of a new namespace is on its way: whoever makes both at once waits for it.
async fn account(api: &Api, request: &Request<'_>, pod: &Value) -> Result<Arc<Object>, ApiError> {
    let name = value::text(pod, "spec.serviceAccountName");
    let accounts = api.registry.stored("", "serviceaccounts").ok_or_else(ApiError::no_such_path)?;
    let key = accounts.key(&request.info.namespace, name);
    if let Some(known) = accounts.cache.get(&key) {
        return Ok(known);
    }
    let found = match api.read(accounts, &key).await? {
        None if name == DEFAULT => awaited(api, accounts, &key, &request.info.namespace).await?,
        found => found,
    };
    found.ok_or_else(|| {
        let problems = names::name_is_path_segment(name, false);
        let why = match problems.is_empty() {
            true => format!("serviceaccount \"{name}\" not found"),
            false => format!("invalid resource name {name:?}: [{}]", problems.join(" ")),
        };
        request.forbid(pod, &format!("error looking up service account {}/{name}: {why}", request.info.namespace))
    })
}

async fn awaited(api: &Api, accounts: &Resource, key: &str, namespace: &str) -> Result<Option<Arc<Object>>, ApiError> {
    let filter = Filter::namespace(namespace);
    let mut changes = accounts.cache.subscribe(&*api.store, &filter, Start::Now, 0).await?;
    let appears = async {
        loop {
            if let Some(found) = accounts.cache.get(key) {
                return Some(found);
            }
            changes.live.recv().await?;
        }
    };
    Ok(tokio::time::timeout(PATIENCE, appears).await.ok().flatten())
}

/// Names the account and mounts its token.
pub async fn admit(api: &Api, request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    if request.operation != Operation::Create || !request.is_for("", "pods") {
        return Ok(());
    }
    if annotation(pod, MIRROR).is_some() {
        return mirror_problem(pod).map_or(Ok(()), |why| Err(request.forbid(pod, why)));
    }
    if value::text(pod, "spec.serviceAccountName").is_empty() {
        value::set(pod, "spec.serviceAccountName", DEFAULT);
    }
    let name = value::text(pod, "spec.serviceAccountName").to_owned();
    value::set(pod, "spec.serviceAccount", name);
    let account = Account::read(&*account(api, request, pod).await?)?;
    if let Some(pull_secrets) = account.image_pull_secrets.filter(|secrets| !secrets.is_empty())
        && value::list(pod, "spec.imagePullSecrets").is_empty()
    {
        value::set(pod, "spec.imagePullSecrets", pull_secrets);
    }
    let wants = value::at(pod, "spec.automountServiceAccountToken").and_then(Value::as_bool);
    let mounts = wants.or(account.automount_service_account_token).unwrap_or(true);
    if mounts {
        mount_token(pod);
    }
    Ok(())
}

/// Refuses mirrors of static pods that use what only the API server can give, and secrets that are not the account's.
pub async fn validate(api: &Api, request: &Request<'_>, new: Option<&Value>) -> Result<(), ApiError> {
    let ephemeral = request.operation == Operation::Update
        && request.resource.name.group.is_empty()
        && request.resource.name.resource == "pods"
        && request.info.subresource == "ephemeralcontainers";
    let made = request.operation == Operation::Create && request.is_for("", "pods");
    let Some(pod) = new.filter(|_| made || ephemeral) else { return Ok(()) };
    if made && annotation(pod, MIRROR).is_some() {
        return mirror_problem(pod).map_or(Ok(()), |why| Err(request.forbid(pod, why)));
    }
    if value::text(pod, "spec.serviceAccountName").is_empty() {
        let name = value::text(pod, "metadata.name");
        let why = format!("no service account specified for pod {}/{name}", request.info.namespace);
        return Err(request.forbid(pod, &why));
    }
    let account = account(api, request, pod).await?;
    if !Account::read(&account)?.enforces_secrets() {
        return Ok(());
    }
    match foreign_secret(pod, &account.to_value(), ephemeral) {
        Some(why) => Err(request.forbid(pod, &why)),
        None => Ok(()),
    }
}

fn mirror_problem(pod: &Value) -> Option<&'static str> {
    if !value::text(pod, "spec.serviceAccountName").is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    let volumes = value::list(pod, "spec.volumes");
    let named = |tree: &Value, path: &str| value::at(tree, path).is_some_and(|named| !named.is_null());
    let projects =
        |volume: &Value, what: &str| value::list(volume, "projected.sources").iter().any(|source| named(source, what));
    let secret = !value::list(pod, "spec.imagePullSecrets").is_empty()
        || volumes.iter().any(|volume| named(volume, "secret") || projects(volume, "secret"))
        || placed(spec(pod), &List::ALL).any(|(_, _, container)| secrets_of(container).next().is_some());
    if secret {
        return Some("a mirror pod may not reference secrets");
    }
    let token = volumes.iter().any(|volume| projects(volume, "serviceAccountToken"));
    token.then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// The secrets in a container's environment, each with the variable it is for, if it is for one.
fn secrets_of(container: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let single = value::list(container, "env").iter().filter_map(|variable| {
        let secret = value::at(variable, "valueFrom.secretKeyRef").filter(|secret| secret.is_object())?;
        Some((Some(value::text(variable, "name")), value::text(secret, "name")))
    });
    let whole = value::list(container, "envFrom").iter().filter_map(|source| {
        let secret = source.get("secretRef").filter(|secret| secret.is_object())?;
        Some((None, value::text(secret, "name")))
    });
    single.chain(whole)
}

/// The first use of a secret that the account does not list.
fn foreign_secret(pod: &Value, account: &Value, ephemeral: bool) -> Option<String> {
    let owner = value::text(account, "metadata.name");
    let lists =
        |key: &str, name: &str| value::list(account, key).iter().any(|known| value::text(known, "name") == name);
    let not_listed = format!("is not allowed because service account {owner} does not reference that secret");
    if !ephemeral {
        for volume in value::list(pod, "spec.volumes") {
            let Some(secret) = volume.get("secret").filter(|secret| secret.is_object()) else { continue };
            let name = value::text(secret, "secretName");
            if !lists("secrets", name) {
                return Some(format!("volume with secret.secretName=\"{name}\" {not_listed}"));
            }
        }
    }
    let places: &[List] = if ephemeral { &[List::Ephemeral] } else { &[List::Init, List::Plain] };
    for (list, _, container) in placed(spec(pod), places) {
        let who = format!("{} {}", list.noun(), value::text(container, "name"));
        if let Some((variable, name)) = secrets_of(container).find(|(_, name)| !lists("secrets", name)) {
            let place = variable.map_or_else(|| "envFrom".to_owned(), |variable| format!("envVar {variable}"));
            return Some(format!("{who} with {place} referencing secret.secretName=\"{name}\" {not_listed}"));
        }
    }
    let pulls = value::list(pod, "spec.imagePullSecrets").iter().enumerate().filter(|_| !ephemeral);
    pulls.map(|(at, secret)| (at, value::text(secret, "name"))).find(|(_, name)| !lists("imagePullSecrets", name)).map(
        |(at, name)| {
            format!(
                "imagePullSecrets[{at}].name=\"{name}\" is not allowed because service account {owner} does not reference that imagePullSecret"
            )
        },
    )
}

/// Mounts the token into every container that has nothing at its place. A volume that is there already is used again.
fn mount_token(pod: &mut Value) {
    let present = value::list(pod, "spec.volumes")
        .iter()
        .map(|volume| value::text(volume, "name"))
        .find(|name| name.starts_with(VOLUME_PREFIX))
        .map(str::to_owned);
    let volume = present.clone().unwrap_or_else(|| {
        let suffix = machinery::names::suffix(|below| rand::random_range(0..below));
        format!("{VOLUME_PREFIX}{suffix}")
    });
    let mut mounted = false;
    for list in ["spec.initContainers", "spec.containers"] {
        for container in value::list_mut(pod, list) {
            let taken = value::list(container, "volumeMounts")
                .iter()
                .any(|mount| value::text(mount, "mountPath") == MOUNT_PATH);
            if taken {
                continue;
            }
            mounted = true;
            push(container, "volumeMounts", json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
        }
    }
    if !mounted || present.is_some() {
        return;
    }
    let projected = json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    push(pod, "spec.volumes", projected);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_others_are_seen_wherever_they_are_used() {
        let account =
            json!({"metadata": {"name": "a"}, "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "pull"}]});
        let env = |name: &str| json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]);
        let check = |pod: Value, ephemeral: bool, expect: Option<&str>| {
            let refusal = foreign_secret(&pod, &account, ephemeral);
            let suffix = " is not allowed because service account a does not reference that ";
            let short = refusal.as_deref().map(|refusal| refusal.split(suffix).next().unwrap_or_default());
            assert_eq!(short, expect, "{pod}");
        };
        check(json!({"spec": {"containers": [{"name": "c", "env": env("own")}]}}), false, None);
        check(
            json!({"spec": {"containers": [{"name": "c", "env": env("other")}]}}),
            false,
            Some("container c with envVar V referencing secret.secretName=\"other\""),
        );
        check(
            json!({"spec": {"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "other"}}]}]}}),
            false,
            Some("init container i with envFrom referencing secret.secretName=\"other\""),
        );
        check(
            json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "other"}}]}}),
            false,
            Some("volume with secret.secretName=\"other\""),
        );
        check(json!({"spec": {"imagePullSecrets": [{"name": "x"}]}}), false, Some("imagePullSecrets[0].name=\"x\""));
        check(
            json!({"spec": {"ephemeralContainers": [{"name": "e", "env": env("other")}]}}),
            true,
            Some("ephemeral container e with envVar V referencing secret.secretName=\"other\""),
        );
    }

    #[test]
    fn a_token_is_mounted_once_however_often_it_is_asked_for() {
        let mut pod = json!({"spec": {"containers": [{"name": "c"}]}});
        mount_token(&mut pod);
        let once = pod.clone();
        mount_token(&mut pod);
        assert_eq!(pod, once);
        value::list_mut(&mut pod, "spec.containers")[0] = json!({"name": "late"});
        mount_token(&mut pod);
        assert_eq!(value::list(&pod, "spec.volumes").len(), 1, "a container that came later uses the same volume");
    }

    #[test]
    fn mirrors_use_nothing_of_the_api_servers() {
        let check = |spec: Value, expect: Option<&str>| assert_eq!(mirror_problem(&json!({"spec": spec})), expect);
        check(json!({"containers": [{"name": "c"}]}), None);
        check(json!({"serviceAccountName": "a"}), Some("a mirror pod may not reference service accounts"));
        check(json!({"volumes": [{"secret": {"secretName": "s"}}]}), Some("a mirror pod may not reference secrets"));
        check(
            json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
            Some("a mirror pod may not use ServiceAccountToken volume projections"),
        );
    }
}
