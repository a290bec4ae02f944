//! The file: `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`, its rules for resources and its providers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use machinery::{Value, codec, value};

use super::cipher::Cipher;
use super::kms::Kms;
use super::{Error, SEALED};

/// How long a key management service may take unless something else is said.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// The rules, by `(group, resource)`; `*` is any.
#[derive(Debug)]
pub struct Configuration {
    rules: HashMap<(String, String), Rule>,
}

/// Who may have sealed objects of a resource; the first one seals.
#[derive(Debug, Default)]
pub struct Rule {
    /// In order; never empty.
    pub providers: Vec<Provider>,
}

/// One key, or none.
#[derive(Debug, Clone)]
pub enum Provider {
    Identity,
    /// A key of the file.
    Local {
        /// What its bytes begin with.
        prefix: Bytes,
        cipher: Cipher,
    },
    /// A key of somebody else's.
    Service {
        /// What its bytes begin with.
        prefix: Bytes,
        kms: Arc<Kms>,
    },
}

impl Provider {
    /// Whether these bytes can be its own.
    pub fn wrote(&self, stored: &[u8]) -> bool {
        match self {
            Self::Identity => !stored.starts_with(SEALED),
            Self::Local { prefix, .. } | Self::Service { prefix, .. } => stored.starts_with(prefix),
        }
    }

    /// What is written for a value.
    pub async fn seal(&self, key: &str, plain: &Bytes) -> Result<Bytes, Error> {
        let (prefix, sealed) = match self {
            Self::Identity => return Ok(plain.clone()),
            Self::Local { prefix, cipher } => (prefix, cipher.seal(key.as_bytes(), plain)?),
            Self::Service { prefix, kms } => (prefix, kms.seal(key.as_bytes(), plain)?),
        };
        Ok(Bytes::from([&prefix[..], &sealed].concat()))
    }

    /// What was written, and whether it would be written differently now.
    pub async fn open(&self, key: &str, stored: &Bytes) -> Result<(Bytes, bool), Error> {
        match self {
            Self::Identity => Ok((stored.clone(), false)),
            Self::Local { prefix, cipher } => {
                let plain = cipher.open(key.as_bytes(), &stored[prefix.len()..])?;
                Ok((Bytes::from(plain), false))
            }
            Self::Service { prefix, kms } => {
                let (plain, stale) = kms.open(key.as_bytes(), &stored[prefix.len()..]).await?;
                Ok((Bytes::from(plain), stale))
            }
        }
    }
}

impl Configuration {
    /// Reads the file's text.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let failed = |why: String| Error::Configuration(why);
        let decoded = codec::yaml::decode(text, codec::Limits::default());
        let tree = decoded.map_err(|error| failed(error.message))?.value;
        if value::text(&tree, "kind") != "EncryptionConfiguration"
            || value::text(&tree, "apiVersion") != "apiserver.config.k8s.io/v1"
        {
            return Err(failed("it is no EncryptionConfiguration of apiserver.config.k8s.io/v1".to_owned()));
        }
        Self::read(&tree).map_err(failed)
    }

    fn read(tree: &Value) -> Result<Self, String> {
        let mut rules: HashMap<(String, String), Rule> = HashMap::new();
        let mut services = HashMap::new();
        let entries = value::list(tree, "resources");
        if entries.is_empty() {
            return Err("resources: Required value: at least one resources is required".to_owned());
        }
        for (at, entry) in entries.iter().enumerate() {
            let path = format!("resources[{at}]");
            let named = value::list(entry, "resources");
            if named.is_empty() {
                return Err(format!("{path}.resources: Required value: at least one {path}.resources is required"));
            }
            let mut providers = Vec::new();
            for (number, provider) in value::list(entry, "providers").iter().enumerate() {
                providers.extend(read_provider(provider, &format!("{path}.providers[{number}]"), &mut services)?);
            }
            if providers.is_empty() {
                return Err(format!("{path}.providers: Required value: at least one {path}.providers is required"));
            }
            for (number, name) in named.iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                let (resource, group) = split(name)
                    .map_err(|why| format!("{path}.resources[{number}]: Invalid value: \"{name}\": {why}"))?;
                for (group, shown) in [(group.as_str(), format!("*.{group}")), ("*", "*.*".to_owned())] {
                    let mask = (group.to_owned(), "*".to_owned());
                    if rules.contains_key(&mask) {
                        return Err(format!("resource \"{name}\" is masked by earlier rule \"{shown}\""));
                    }
                }
                rules.entry((group, resource)).or_default().providers.extend(providers.iter().cloned());
            }
        }
        Ok(Self { rules })
    }

    /// The rule for a resource: its own, that of its group, or that of all.
    pub fn rule(&self, group: &str, resource: &str) -> Option<&Rule> {
        let find = |group: &str, resource: &str| self.rules.get(&(group.to_owned(), resource.to_owned()));
        find(group, resource).or_else(|| find(group, "*")).or_else(|| find("*", "*"))
    }

    /// Every key management service, once.
    pub fn services(&self) -> Vec<Arc<Kms>> {
        let mut services: Vec<Arc<Kms>> = Vec::new();
        for provider in self.rules.values().flat_map(|rule| &rule.providers) {
            if let Provider::Service { kms, .. } = provider
                && !services.iter().any(|known| Arc::ptr_eq(known, kms))
            {
                services.push(kms.clone());
            }
        }
        services.sort_by(|one, other| one.name().cmp(other.name()));
        services
    }
}

/// `deployments.apps`, `secrets`, `*.apps`, `*.` or `*.*` as resource and group.
fn split(name: &str) -> Result<(String, String), &'static str> {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    if name == "*" {
        return Err("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources");
    }
    if resource.is_empty() || name != name.to_lowercase() || (resource != "*" && resource.contains('*')) {
        return Err("resource name should be lowercase and without wildcards inside of it");
    }
    if (group.contains('*') && group != "*") || (group == "*" && resource != "*") {
        return Err("wildcards are *.<group> and *.*");
    }
    Ok((resource.to_owned(), group.to_owned()))
}

/// A provider's keys, in order.
fn read_provider(
    provider: &Value,
    path: &str,
    services: &mut HashMap<String, Arc<Kms>>,
) -> Result<Vec<Provider>, String> {
    let kinds = ["aesgcm", "aescbc", "secretbox", "identity", "kms"];
    let given: Vec<&str> =
        kinds.into_iter().filter(|kind| provider.get(*kind).is_some_and(|it| !it.is_null())).collect();
    let kind = match given.as_slice() {
        [] => {
            let why =
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
            return Err(format!("{path}: Invalid value: {why}"));
        }
        [one] => *one,
        _ => {
            let why = "more than one provider specified in a single element, should split into different list elements";
            return Err(format!("{path}: Invalid value: {why}"));
        }
    };
    let cipher: fn(Vec<u8>) -> Cipher = match kind {
        "identity" => return Ok(vec![Provider::Identity]),
        "kms" => return read_service(&provider[kind], &format!("{path}.kms"), services).map(|service| vec![service]),
        "aescbc" => Cipher::AesCbc,
        "aesgcm" => Cipher::AesGcm,
        _ => Cipher::Secretbox,
    };
    let keys = value::list(&provider[kind], "keys");
    if keys.is_empty() {
        return Err(format!("{path}.{kind}.keys: Required value: at least one keys is required"));
    }
    let read = |(at, key): (usize, &Value)| {
        let path = format!("{path}.{kind}.keys[{at}]");
        let (name, secret) = (value::text(key, "name"), value::text(key, "secret"));
        if name.is_empty() {
            return Err(format!("{path}.name: Required value: name is a mandatory field for a key"));
        }
        if secret.is_empty() {
            return Err(format!("{path}.secret: Required value: secret is a mandatory field for a key"));
        }
        let bytes = STANDARD
            .decode(secret)
            .map_err(|_| format!("{path}.secret: Invalid value: \"REDACTED\": secrets must be base64 encoded"))?;
        let cipher = cipher(bytes);
        let (length, expected) = (cipher.key().len(), cipher.key_lengths());
        if !expected.contains(&length) {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            return Err(format!(
                "{path}.secret: Invalid value: \"REDACTED\": secret is not of the expected length, got {length}, expected one of [{}]",
                expected.join(" ")
            ));
        }
        Ok(Provider::Local { prefix: Bytes::from(format!("k8s:enc:{kind}:v1:{name}:")), cipher })
    };
    keys.iter().enumerate().map(read).collect()
}

fn read_service(kms: &Value, path: &str, services: &mut HashMap<String, Arc<Kms>>) -> Result<Provider, String> {
    let name = value::text(kms, "name");
    if name.is_empty() {
        return Err(format!("{path}.name: Required value: name is a mandatory field for a provider"));
    }
    if name.contains(':') {
        return Err(format!(
            "{path}.name: Invalid value: \"{name}\": invalid KMS provider name {name}, must not contain ':'"
        ));
    }
    // Version 1 is the default of the field, and gone.
    if value::text(kms, "apiVersion") != "v2" {
        let given = value::text(kms, "apiVersion");
        return Err(format!(
            "{path}.apiVersion: Invalid value: \"{given}\": unsupported apiVersion for KMS provider, only v2 is supported"
        ));
    }
    if kms.get("cachesize").is_some() {
        return Err(format!("{path}.cachesize: Invalid value: cachesize is not supported in v2"));
    }
    let endpoint = value::text(kms, "endpoint");
    let socket = endpoint.strip_prefix("unix://").filter(|socket| !socket.is_empty()).ok_or_else(|| {
        let scheme = endpoint.split("://").next().unwrap_or_default();
        format!("{path}.endpoint: Invalid value: \"{endpoint}\": unsupported scheme \"{scheme}\" for KMS provider, only unix is supported")
    })?;
    let timeout = match value::text(kms, "timeout") {
        "" => KMS_TIMEOUT,
        text => machinery::duration::parse(text)
            .filter(|timeout| !timeout.is_zero())
            .ok_or_else(|| format!("{path}.timeout: Invalid value: \"{text}\": timeout should be a positive value"))?,
    };
    if services.contains_key(name) {
        let why = format!("duplicate KMS provider name {name}, names must be unique");
        return Err(format!("{path}.name: Invalid value: \"{name}\": {why}"));
    }
    let kms = Kms::new(name, socket, timeout).map_err(|error| format!("{path}.endpoint: {error}"))?;
    services.insert(name.to_owned(), kms.clone());
    Ok(Provider::Service { prefix: Bytes::from(format!("k8s:enc:kms:v2:{name}:")), kms })
}

/// Which resource a key of the store belongs to.
#[derive(Debug)]
pub struct Layout(HashMap<String, (&'static str, &'static str)>);

impl Layout {
    /// Of the built-in resources: where each begins, its group and its plural.
    pub fn new(prefixes: impl IntoIterator<Item = (String, (&'static str, &'static str))>) -> Self {
        Self(prefixes.into_iter().collect())
    }

    /// The group and the resource that a key of the store belongs to.
    pub fn resource_of<'a>(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        let rest = key.strip_prefix("/registry/")?;
        let mut slashes = rest.match_indices('/').map(|(at, _)| at + 1);
        let first = slashes.next()?;
        let head = key.len() - rest.len();
        if let Some(known) = self.0.get(&key[..head + first]) {
            return Some(*known);
        }
        let second = slashes.next()?;
        if let Some(known) = self.0.get(&key[..head + second]) {
            return Some(*known);
        }
        // Custom resources are kept under their group.
        let (group, resource) = (&rest[..first - 1], &rest[first..second - 1]);
        group.contains('.').then_some((group, resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(resources: Value) -> Result<Configuration, String> {
        Configuration::read(&json!({"resources": resources}))
    }

    fn key(name: &str, size: usize) -> Value {
        json!({"name": name, "secret": STANDARD.encode(vec![1; size])})
    }

    #[test]
    fn keys_of_the_store_name_their_resource() {
        let layout = Layout::new([
            ("/registry/secrets/".to_owned(), ("", "secrets")),
            ("/registry/services/specs/".to_owned(), ("", "services")),
            ("/registry/services/endpoints/".to_owned(), ("", "endpoints")),
        ]);
        for (key, expect) in [
            ("/registry/secrets/default/a", Some(("", "secrets"))),
            ("/registry/services/specs/default/a", Some(("", "services"))),
            ("/registry/services/endpoints/default/a", Some(("", "endpoints"))),
            ("/registry/services/other/default/a", None),
            ("/registry/example.com/pandas/default/a", Some(("example.com", "pandas"))),
            ("/registry/trireme.marker", None),
            ("/other/secrets/a", None),
        ] {
            assert_eq!(layout.resource_of(key), expect, "{key}");
        }
    }

    #[tokio::test]
    async fn the_first_key_seals_and_every_key_opens() {
        let old = parse(json!([{"resources": ["secrets"], "providers": [{"aescbc": {"keys": [key("key1", 32)]}}, {"identity": {}}]}]))
            .expect("a configuration");
        let new = parse(json!([{"resources": ["secrets"], "providers": [
            {"secretbox": {"keys": [key("box", 32)]}}, {"aescbc": {"keys": [key("key2", 16), key("key1", 32)]}}, {"identity": {}}]}]))
            .expect("a configuration");
        let (name, plain) = ("/registry/secrets/default/a", Bytes::from_static(b"plain"));
        let (old, new) = (old.rule("", "secrets").expect("a rule"), new.rule("", "secrets").expect("a rule"));
        let first = old.seal(name, &plain).await.expect("sealed");
        assert!(first.starts_with(b"k8s:enc:aescbc:v1:key1:"));
        assert_eq!(old.open(name, &first).await.expect("opened"), (plain.clone(), false));
        assert_eq!(new.open(name, &first).await.expect("opened"), (plain.clone(), true), "to be written again");
        let second = new.seal(name, &plain).await.expect("sealed");
        assert!(second.starts_with(b"k8s:enc:secretbox:v1:box:"));
        assert_eq!(old.open(name, &second).await.expect_err("no key").to_string(), "no matching prefix found");
        assert_eq!(new.open(name, &plain).await.expect("from before"), (plain, true));
    }

    #[test]
    fn wildcards_and_precedence_are_upstreams() {
        let identity = json!([{"identity": {}}]);
        let sealing = json!([{"aesgcm": {"keys": [key("k", 16)]}}]);
        let configuration = parse(json!([
            {"resources": ["events"], "providers": identity},
            {"resources": ["deployments.apps"], "providers": identity},
            {"resources": ["*.apps"], "providers": sealing},
            {"resources": ["*.*"], "providers": sealing},
        ]))
        .expect("a configuration");
        let seals = |group: &str, resource: &str| {
            matches!(configuration.rule(group, resource).expect("a rule").providers[0], Provider::Local { .. })
        };
        assert!(!seals("", "events") && !seals("apps", "deployments"));
        assert!(seals("apps", "replicasets") && seals("", "secrets") && seals("example.com", "pandas"));
        let core = parse(json!([{"resources": ["*."], "providers": sealing}])).expect("a configuration");
        assert!(core.rule("", "secrets").is_some() && core.rule("apps", "deployments").is_none());
        for (first, second, expect) in [
            ("*.apps", "deployments.apps", "resource \"deployments.apps\" is masked by earlier rule \"*.apps\""),
            ("*.*", "secrets", "resource \"secrets\" is masked by earlier rule \"*.*\""),
        ] {
            let masked = parse(
                json!([{"resources": [first], "providers": sealing}, {"resources": [second], "providers": sealing}]),
            );
            assert_eq!(masked.expect_err("masked"), expect);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_without_telling_keys() {
        let with = |provider: Value| parse(json!([{"resources": ["secrets"], "providers": [provider]}]));
        for (outcome, expect) in [
            (parse(json!([])), "resources: Required value"),
            (parse(json!([{"providers": [{"identity": {}}]}])), "resources[0].resources: Required value"),
            (parse(json!([{"resources": ["secrets"]}])), "resources[0].providers: Required value"),
            (parse(json!([{"resources": ["*"], "providers": [{"identity": {}}]}])), "use '*.' to encrypt all"),
            (parse(json!([{"resources": ["Secrets"], "providers": [{"identity": {}}]}])), "lowercase"),
            (with(json!({})), "does not contain any of the expected providers"),
            (with(json!({"identity": {}, "aescbc": {}})), "more than one provider"),
            (with(json!({"aescbc": {}})), "aescbc.keys: Required value"),
            (with(json!({"aescbc": {"keys": [{"secret": "QQ=="}]}})), "keys[0].name: Required value"),
            (with(json!({"aescbc": {"keys": [{"name": "k"}]}})), "keys[0].secret: Required value"),
            (
                with(json!({"aescbc": {"keys": [{"name": "k", "secret": "~~"}]}})),
                "\"REDACTED\": secrets must be base64 encoded",
            ),
            (with(json!({"secretbox": {"keys": [key("k", 16)]}})), "got 16, expected one of [32]"),
            (with(json!({"kms": {"endpoint": "unix:///x"}})), "kms.name: Required value"),
            (with(json!({"kms": {"name": "a:b"}})), "must not contain ':'"),
            (with(json!({"kms": {"name": "a", "endpoint": "unix:///x"}})), "only v2 is supported"),
            (
                with(json!({"kms": {"name": "a", "apiVersion": "v2", "endpoint": "https://x"}})),
                "unsupported scheme \"https\"",
            ),
        ] {
            let error = outcome.expect_err("refused");
            assert!(error.contains(expect), "{error}");
        }
    }
}
