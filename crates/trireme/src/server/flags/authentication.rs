//! Options of authentication.

use std::path::PathBuf;
use std::time::Duration;

use apiserver::gates::authentication::{
    Anonymous, Settings, certificates::FrontProxy, issuers, oidc, service_accounts, webhook,
};
use apiserver::gates::configuration::together;
use clap::{ArgAction, Args};
use machinery::status::FieldError;
use serde_json::json;

use super::super::Error;
use super::{certificates, duration, text, wrong};
use crate::parts::addons::Believed;

/// The signatures of other issuers that can be asked for: none with a shared secret.
const ALGORITHMS: [&str; 9] = ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"];

/// What the other options of a group are nothing without.
const ISSUER: &str = "oidc_issuer_url";
const WEBHOOK: &str = "authentication_token_webhook_config_file";
const PROXY: &str = "requestheader_client_ca_file";
/// The common name of the cluster's own certificate for aggregated servers.
const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// Who is believed to be whom.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Authentication")]
pub struct Options {
    /// Let requests that show nothing in, as system:anonymous [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub anonymous_auth: Option<bool>,
    /// Authorities of client certificates, besides the cluster's own.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Static tokens, a line each: token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Let Secrets of type bootstrap.kubernetes.io/token in kube-system authenticate.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub enable_bootstrap_token_auth: bool,
    /// An AuthenticationConfiguration: issuers of tokens and conditions for anonymous requests.
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// Whom tokens for this server name [default: the first issuer of service account tokens].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Issuer of service account tokens. May be given several times: the first issues, all are believed.
    #[arg(long, value_name = "URL", default_value = service_accounts::ISSUER)]
    pub service_account_issuer: Vec<String>,
    /// Keys, private or public, whose signatures of service account tokens are believed besides the signing key's. May be
    /// given several times.
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// The private key that signs service account tokens [default: one of the cluster's own].
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// The longest that a service account token may be good for; a request for more is shortened [default: no limit].
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub service_account_max_token_expiration: Duration,
    /// Let tokens that are mounted into pods live a year, and warn when one is used that was not renewed.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub service_account_extend_token_expiration: bool,
    /// Where others read the keys of service account tokens, as an https address [default: at this server].
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// What other issuers there are.
    #[command(flatten)]
    pub oidc: Oidc,
    /// Who else is asked.
    #[command(flatten)]
    pub webhook: Webhook,
    /// Who may speak for others.
    #[command(flatten)]
    pub front_proxy: RequestHeader,
}

/// Another issuer of tokens.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Authentication by OpenID Connect")]
pub struct Oidc {
    /// The issuer, an https address.
    #[arg(long, value_name = "URL", conflicts_with = "authentication_config")]
    pub oidc_issuer_url: Option<String>,
    /// Whom its tokens must be for.
    #[arg(long, value_name = "NAME")]
    pub oidc_client_id: Option<String>,
    /// Authorities of the issuer's certificate [default: the system's].
    #[arg(long, value_name = "FILE", requires = ISSUER)]
    pub oidc_ca_file: Option<PathBuf>,
    /// The claim that names the user.
    #[arg(long, value_name = "CLAIM", default_value = "sub", requires = ISSUER)]
    pub oidc_username_claim: String,
    /// What user names begin with; - for nothing [default: the issuer and #, except for emails].
    #[arg(long, value_name = "TEXT", default_value = "", requires = ISSUER)]
    pub oidc_username_prefix: String,
    /// The claim that names the groups.
    #[arg(long, value_name = "CLAIM", default_value = "", requires = ISSUER)]
    pub oidc_groups_claim: String,
    /// What group names begin with.
    #[arg(long, value_name = "TEXT", default_value = "", requires = ISSUER)]
    pub oidc_groups_prefix: String,
    /// A claim that must have a value. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', requires = ISSUER)]
    pub oidc_required_claim: Vec<String>,
    /// Signatures that are believed.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "RS256", requires = ISSUER)]
    pub oidc_signing_algs: Vec<String>,
}

/// An authenticator elsewhere.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Authentication by webhook")]
pub struct Webhook {
    /// A kubeconfig that says where tokens are reviewed.
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long its answers are remembered.
    #[arg(long, value_name = "DURATION", default_value = "2m0s", value_parser = duration,
        requires = WEBHOOK)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// The version of authentication.k8s.io that it speaks.
    #[arg(long, value_name = "VERSION", default_value = "v1beta1", value_parser = ["v1", "v1beta1"],
        requires = WEBHOOK)]
    pub authentication_token_webhook_version: String,
}

/// A proxy in front that has authenticated already.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Authentication by a front proxy")]
pub struct RequestHeader {
    /// Authorities of the proxy's certificates. Without them nobody's headers mean anything.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that the proxy's certificate may have [default: any].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = PROXY)]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "X-Remote-User", requires = PROXY)]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's uid.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "X-Remote-Uid", requires = PROXY)]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "X-Remote-Group", requires = PROXY)]
    pub requestheader_group_headers: Vec<String>,
    /// What headers with more about the user begin with.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "X-Remote-Extra-", requires = PROXY)]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// Certificate by which aggregated servers know this one, when it says who asks [default: one of the cluster's own].
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file", requires = PROXY)]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Key of --proxy-client-cert-file.
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
}

/// Authentication, checked and read.
pub struct Read {
    /// The chain; its front proxy does not know yet who the other clients are.
    pub settings: Settings,
    /// Authorities of clients besides the cluster's own, in PEM.
    clients: String,
    signing_key: Option<String>,
    /// What aggregated servers are shown, if it is not the cluster's own.
    proxy_client: Option<pki::Pair>,
}

impl Options {
    /// Checks the options and reads the files that they name. Where everybody may do everything, whoever shows nothing stays
    /// out, as upstream's server keeps them out, unless a file says otherwise.
    pub fn read(&self, always_allow: bool) -> Result<Read, Error> {
        let anonymous = self.anonymous_auth.unwrap_or(true);
        if anonymous && always_allow {
            tracing::warn!(
                "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You should use a different authorizer"
            );
        }
        let service_accounts = self.service_accounts()?;
        let mut settings = Settings {
            token_file: self.token_auth_file.clone(),
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            issuers: self.oidc.read(&service_accounts.issuers)?.into_iter().collect(),
            service_accounts,
            webhook: self.webhook.read()?,
            front_proxy: self.front_proxy.read()?,
            anonymous: if anonymous && !always_allow { Anonymous::Allowed } else { Anonymous::Refused },
            file: None,
        };
        if let Some(path) = &self.token_auth_file {
            Settings::check_token_file(path).map_err(|error| wrong("token-auth-file", error))?;
        }
        if let Some(path) = &self.authentication_config {
            let about_anonymous = settings.load(path).map_err(|error| wrong("authentication-config", error))?;
            if about_anonymous && self.anonymous_auth.is_some() {
                return Err(wrong("anonymous-auth", "the file of --authentication-config says it already"));
            }
        }
        let signing_key = match &self.service_account_signing_key_file {
            None => None,
            Some(path) => {
                let option = "service-account-signing-key-file";
                let pem = text(option, path)?;
                let bad = |error| wrong(option, format!("{}: {error}", path.display()));
                pki::PrivateKey::from_pem(&pem).map_err(bad)?;
                Some(pem)
            }
        };
        let clients = self.client_ca_file.as_deref().map(|path| certificates("client-ca-file", path)).transpose()?;
        let proxy_client = self.front_proxy.client()?;
        Ok(Read { settings, clients: clients.unwrap_or_default(), signing_key, proxy_client })
    }

    fn service_accounts(&self) -> Result<service_accounts::Settings, Error> {
        let issuers = self.service_account_issuer.clone();
        for issuer in &issuers {
            // Upstream takes any text without a colon, and addresses with a host.
            let host = issuer.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
            if issuer.is_empty() || host.is_some_and(str::is_empty) {
                return Err(wrong("service-account-issuer", format!("\"{issuer}\" is no issuer")));
            }
        }
        let audiences = match self.api_audiences.as_slice() {
            [] => issuers.first().cloned().into_iter().collect(),
            given => given.to_vec(),
        };
        let mut keys = Vec::new();
        for path in &self.service_account_key_file {
            let option = "service-account-key-file";
            let pem = text(option, path)?;
            let found = pki::PublicKey::all_from_pem(&pem);
            if found.is_empty() {
                return Err(wrong(option, format!("{} has no key in PEM", path.display())));
            }
            keys.extend(found);
        }
        let (longest, keys_at) = (self.longest()?, self.service_account_jwks_uri.clone());
        if keys_at.as_ref().is_some_and(|uri| !uri.starts_with("https://")) {
            return Err(wrong("service-account-jwks-uri", "requires https scheme"));
        }
        let extends = self.service_account_extend_token_expiration;
        Ok(service_accounts::Settings { issuers, audiences, keys, longest, extends, keys_at })
    }

    /// How many seconds a token may be good for.
    fn longest(&self) -> Result<Option<i64>, Error> {
        let seconds = self.service_account_max_token_expiration.as_secs();
        match seconds {
            0 => Ok(None),
            3600..=0x1_0000_0000 => Ok(i64::try_from(seconds).ok()),
            _ => Err(wrong("service-account-max-token-expiration", "must be between 1 hour and 2^32 seconds")),
        }
    }
}

impl Oidc {
    fn read(&self, own: &[String]) -> Result<Option<oidc::Settings>, Error> {
        let (issuer, client) = match (&self.oidc_issuer_url, &self.oidc_client_id) {
            (None, None) => return Ok(None),
            (Some(issuer), Some(client)) => (issuer, client),
            _ => {
                let why = "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";
                return Err(wrong("oidc-issuer-url", why));
            }
        };
        let prefix = match (self.oidc_username_prefix.as_str(), self.oidc_username_claim.as_str()) {
            ("-", _) | ("", "email") => String::new(),
            ("", _) => format!("{issuer}#"),
            (prefix, _) => prefix.to_owned(),
        };
        let mut rules = Vec::new();
        for claim in &self.oidc_required_claim {
            let (key, value) = claim.split_once('=').ok_or_else(|| wrong("oidc-required-claim", "give KEY=VALUE"))?;
            rules.push(json!({"claim": key, "requiredValue": value}));
        }
        if let Some(unknown) = self.oidc_signing_algs.iter().find(|name| !ALGORITHMS.contains(&name.as_str())) {
            return Err(wrong("oidc-signing-algs", format!("unsupported signing alg: {unknown:?}")));
        }
        let authority = self.oidc_ca_file.as_deref().map(|path| certificates("oidc-ca-file", path)).transpose()?;
        // The options say in other words what the file of --authentication-config says.
        let tree = json!({"jwt": [{
            "issuer": {"url": issuer, "audiences": [client], "certificateAuthority": authority},
            "claimValidationRules": rules,
            "claimMappings": {
                "username": {"claim": self.oidc_username_claim, "prefix": prefix},
                "groups": {"claim": self.oidc_groups_claim, "prefix": self.oidc_groups_prefix},
            },
        }]});
        let bad = |errors: Vec<FieldError>| wrong("oidc-issuer-url", together(&errors));
        let settings = issuers::read(&tree, own).map_err(bad)?.into_iter().next();
        Ok(settings.map(|settings| oidc::Settings { algorithms: self.oidc_signing_algs.clone(), ..settings }))
    }
}

impl Webhook {
    fn read(&self) -> Result<Option<webhook::Settings>, Error> {
        let Some(kubeconfig) = &self.authentication_token_webhook_config_file else { return Ok(None) };
        let option = "authentication-token-webhook-config-file";
        apiserver::gates::outbound::Remote::from_kubeconfig(kubeconfig).map_err(|error| wrong(option, error))?;
        Ok(Some(webhook::Settings {
            kubeconfig: kubeconfig.clone(),
            version: self.authentication_token_webhook_version.clone(),
            ttl: self.authentication_token_webhook_cache_ttl,
        }))
    }
}

impl RequestHeader {
    fn read(&self) -> Result<Option<FrontProxy>, Error> {
        let Some(path) = &self.requestheader_client_ca_file else { return Ok(None) };
        Ok(Some(FrontProxy {
            authority: certificates("requestheader-client-ca-file", path)?,
            clients: String::new(),
            allowed_names: self.requestheader_allowed_names.clone(),
            user_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
        }))
    }

    /// What aggregated servers are shown.
    fn client(&self) -> Result<Option<pki::Pair>, Error> {
        let (Some(certificate), Some(key)) = (&self.proxy_client_cert_file, &self.proxy_client_key_file) else {
            return Ok(None);
        };
        let pair = pki::Pair {
            chain_pem: certificates("proxy-client-cert-file", certificate)?,
            key_pem: text("proxy-client-key-file", key)?,
        };
        let fits = pki::outgoing_config(pki::Believed::System, Some(&pair));
        fits.map(|_| Some(pair)).map_err(|error| wrong("proxy-client-key-file", format!("{}: {error}", key.display())))
    }
}

impl Read {
    /// Whose word about clients other servers should believe: whom this one believes, and this one itself.
    pub fn believed(&self, keys: &pki::Cluster) -> Believed {
        let own = keys.front_proxy_authority.certificate().to_pem();
        let names = |name: &str| vec![name.to_owned()];
        let mut front_proxy = self.settings.front_proxy.clone().unwrap_or_else(|| FrontProxy {
            authority: String::new(),
            clients: String::new(),
            allowed_names: names(FRONT_PROXY_CLIENT),
            user_headers: names("X-Remote-User"),
            uid_headers: names("X-Remote-Uid"),
            group_headers: names("X-Remote-Group"),
            extra_prefixes: names("X-Remote-Extra-"),
        });
        if self.proxy_client.is_none() {
            front_proxy.authority = joined(&front_proxy.authority, &own);
            // No names are all names.
            let listed = front_proxy.allowed_names.iter().any(|name| name == FRONT_PROXY_CLIENT);
            if !front_proxy.allowed_names.is_empty() && !listed {
                front_proxy.allowed_names.push(FRONT_PROXY_CLIENT.to_owned());
            }
        }
        Believed { clients: joined(&keys.authority_pem(), &self.clients), front_proxy }
    }

    /// The settings of an API server that authenticates so.
    pub fn configure(
        &self,
        config: &mut apiserver::Config,
        keys: &pki::Cluster,
        tls: &pki::Handshake,
    ) -> Result<(), Error> {
        let mut settings = self.settings.clone();
        if config.peer_authority.is_some() {
            // Who asks its peers on behalf of others is asked by them.
            settings.front_proxy = Some(self.believed(keys).front_proxy).filter(|proxy| !proxy.authority.is_empty());
        }
        let clients = joined(&keys.authority_pem(), &self.clients);
        let mut handshake = clients.clone();
        if let Some(proxy) = &mut settings.front_proxy {
            // TLS lets both kinds in; which of the two signed decides what the certificate may do.
            handshake.push('\n');
            handshake.push_str(&proxy.authority);
            proxy.clients = clients;
        }
        config.tls = pki::Reception::new(&keys.server, &handshake, tls)?;
        if let Some(pem) = &self.signing_key {
            config.service_account_key = pki::PrivateKey::from_pem(pem)?;
        }
        config.authentication = settings;
        config.front_proxy_client = Some(self.proxy_client.clone().unwrap_or_else(|| keys.front_proxy_client.clone()));
        Ok(())
    }
}

/// Both, in PEM.
fn joined(first: &str, second: &str) -> String {
    let parts = [first, second].map(str::trim_end);
    parts.into_iter().filter(|part| !part.is_empty()).map(|part| format!("{part}\n")).collect()
}
