//! Which authenticators there are: by flags, or by an `AuthenticationConfiguration` file.

use std::path::{Path, PathBuf};

use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::{certificates, issuers, oidc, service_accounts, webhook};
use crate::gates::configuration;

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// Static tokens.
    #[error(transparent)]
    TokenFile(#[from] super::token_file::Error),
    /// Certificates.
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    /// The webhook.
    #[error(transparent)]
    Webhook(#[from] crate::gates::outbound::Error),
}

/// Who may come without showing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anonymous {
    /// Everybody.
    Allowed,
    /// Nobody.
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
    /// Service accounts.
    pub service_accounts: service_accounts::Settings,
    /// Other issuers.
    pub issuers: Vec<oidc::Settings>,
    /// An authenticator elsewhere.
    pub webhook: Option<webhook::Settings>,
    /// The front proxy.
    pub front_proxy: Option<certificates::FrontProxy>,
    /// `--anonymous-auth`, or its conditions.
    pub anonymous: Anonymous,
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
        let tree = configuration::load(path, "AuthenticationConfiguration", &shape()).map_err(failed)?;
        self.read(&tree).map_err(|errors| {
            failed(format!("invalid authentication configuration: {}", configuration::together(&errors)))
        })
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
