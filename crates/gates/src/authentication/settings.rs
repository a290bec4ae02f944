//! Which authenticators there are: by flags, or by an `AuthenticationConfiguration` file.

use std::path::{Path, PathBuf};

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::{certificates, issuers, oidc, service_accounts, webhook};
use crate::configuration;

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {path}: {why}")]
    File { path: String, why: String },
    #[error(transparent)]
    TokenFile(#[from] super::token_file::Error),
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    #[error(transparent)]
    Webhook(#[from] crate::outbound::Error),
}

/// Who may come without showing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anonymous {
    Allowed,
    Refused,
    /// Whoever asks for one of these paths.
    At(Vec<String>),
}

impl Anonymous {
    /// Whether a request for this path may be anonymous.
    pub fn allows(&self, path: &str) -> bool {
        match self {
            Self::Allowed => true,
            Self::Refused => false,
            Self::At(paths) => paths.iter().any(|allowed| allowed == path),
        }
    }
}

/// The chain as it is configured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--token-auth-file`.
    pub token_file: Option<PathBuf>,
    /// `--enable-bootstrap-token-auth`.
    pub bootstrap_tokens: bool,
    pub service_accounts: service_accounts::Settings,
    pub issuers: Vec<oidc::Settings>,
    pub webhook: Option<webhook::Settings>,
    pub front_proxy: Option<certificates::FrontProxy>,
    /// `--anonymous-auth`, or its conditions.
    pub anonymous: Anonymous,
    /// The file of `--authentication-config`, to be followed, and what was in it.
    pub file: Option<(PathBuf, Vec<u8>)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            token_file: None,
            bootstrap_tokens: true,
            service_accounts: service_accounts::Settings::default(),
            issuers: Vec::new(),
            webhook: None,
            front_proxy: None,
            anonymous: Anonymous::Allowed,
            file: None,
        }
    }
}

impl Settings {
    /// Whether a file can be used for `--token-auth-file`.
    pub fn check_token_file(path: &Path) -> Result<(), Error> {
        super::token_file::TokenFile::load(path)?;
        Ok(())
    }

    /// Takes in the file of `--authentication-config`. Whether it says something about anonymous requests.
    pub fn load(&mut self, path: &Path) -> Result<bool, Error> {
        let failed = |why: String| Error::File { path: path.display().to_string(), why };
        let (tree, content) = configuration::load(path, KIND, &shape()).map_err(failed)?;
        self.file = Some((path.to_owned(), content));
        self.read(&tree).map_err(|errors| {
            failed(format!("invalid authentication configuration: {}", configuration::together(&errors)))
        })
    }

    /// The issuers of another content of the file. What it says of anonymous requests cannot change while the server runs.
    pub fn issuers_of(&self, content: &[u8]) -> Result<Vec<oidc::Settings>, Error> {
        let path = self.file.as_ref().map(|(path, _)| path.display().to_string()).unwrap_or_default();
        let failed = |why: String| Error::File { path: path.clone(), why };
        let first = self.file.as_ref().map_or(&[][..], |(_, content)| content);
        let parse = |content: &[u8]| {
            let tree = configuration::read(content, KIND, &shape())?;
            Ok((tree.get("anonymous").cloned().unwrap_or_default(), tree))
        };
        let ((before, _), (now, tree)) = (parse(first).map_err(failed)?, parse(content).map_err(failed)?);
        let (read, mut errors) = match issuers::read(&tree, &self.service_accounts.issuers) {
            Ok(read) => (read, Vec::new()),
            Err(errors) => (Vec::new(), errors),
        };
        if before != now {
            errors.push(FieldError::forbidden("anonymous", "changed from initial configuration file"));
        }
        if errors.is_empty() {
            return Ok(read);
        }
        Err(failed(format!("invalid authentication configuration: {}", configuration::together(&errors))))
    }

    fn read(&mut self, tree: &Value) -> Result<bool, Vec<FieldError>> {
        self.issuers = issuers::read(tree, &self.service_accounts.issuers)?;
        let Some(anonymous) = tree.get("anonymous").filter(|anonymous| anonymous.is_object()) else { return Ok(false) };
        self.anonymous = match (value::flag(anonymous, "enabled"), value::list(anonymous, "conditions")) {
            (false, []) => Anonymous::Refused,
            (false, conditions) => {
                let why = "enabled should be set to true when conditions are defined";
                return Err(vec![FieldError::invalid("anonymous.conditions", conditions.to_vec(), why)]);
            }
            (true, []) => Anonymous::Allowed,
            (true, paths) => Anonymous::At(paths.iter().map(|path| value::text(path, "path").to_owned()).collect()),
        };
        Ok(true)
    }
}

/// The kind of the file.
const KIND: &str = "AuthenticationConfiguration";

/// The fields of an `AuthenticationConfiguration`.
fn shape() -> Value {
    let prefixed = json!({"claim": null, "prefix": null, "expression": null});
    json!({
        "anonymous": {"enabled": null, "conditions": [{"path": null}]},
        "jwt": [{
            "issuer": {
                "url": null, "discoveryURL": null, "certificateAuthority": null, "audiences": null,
                "audienceMatchPolicy": null, "egressSelectorType": null,
            },
            "claimValidationRules": [{"claim": null, "requiredValue": null, "expression": null, "message": null}],
            "claimMappings": {
                "username": prefixed, "groups": prefixed, "uid": {"claim": null, "expression": null},
                "extra": [{"key": null, "valueExpression": null}],
            },
            "userValidationRules": [{"expression": null, "message": null}],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_anonymous_requests_stays() {
        let file =
            |rest: &str| format!("{{apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration{rest}}}");
        let first = file(", anonymous: {enabled: false}").into_bytes();
        let settings = Settings { file: Some((PathBuf::from("f"), first)), ..Settings::default() };
        let issuer =
            "{issuer: {url: 'https://i', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}";
        let new = file(&format!(", anonymous: {{enabled: false}}, jwt: [{issuer}]"));
        assert_eq!(settings.issuers_of(new.as_bytes()).expect("an issuer").len(), 1);
        for (text, why) in [
            (file(""), "anonymous: Forbidden: changed from initial configuration file"),
            (file(", jwt: [{}]"), "jwt[0].issuer.url: Required value"),
            (file(", nonsense: 1"), "strict decoding error: unknown field \"nonsense\""),
        ] {
            let error = settings.issuers_of(text.as_bytes()).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn anonymous_requests_have_conditions() {
        let read = |anonymous: Value| {
            let mut settings = Settings::default();
            settings.read(&json!({"anonymous": anonymous})).map(|_| settings.anonymous)
        };
        assert_eq!(read(json!(null)), Ok(Anonymous::Allowed));
        assert_eq!(read(json!({"enabled": false})), Ok(Anonymous::Refused));
        let some = read(json!({"enabled": true, "conditions": [{"path": "/livez"}]})).expect("conditions");
        assert!(some.allows("/livez") && !some.allows("/livez/ping"));
        assert!(read(json!({"enabled": false, "conditions": [{"path": "/livez"}]})).is_err());
    }
}
