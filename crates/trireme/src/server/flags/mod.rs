//! The options of `trireme server` that configure the gates of the API server, under upstream's names.
//!
//! [`Options`] is what the command line says, [`Options::read`] checks it and reads the files it names before anything is
//! started, and [`Gates::configure`] hands the result to the API server. So a mistake is reported at once, with the name of
//! the option that has it.

mod audit;
mod authentication;
mod authorization;
pub mod serving;
mod traces;

use std::path::{Path, PathBuf};
use std::time::Duration;

use apiserver::admission;
use apiserver::gates::authorization::Mode;
use clap::{ArgAction, Args};

use super::Error;
use crate::parts::addons::Believed;

/// The gates, as the command line says.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Options {
    /// Who is believed to be whom.
    #[command(flatten)]
    pub authentication: authentication::Options,
    /// Who may do what.
    #[command(flatten)]
    pub authorization: authorization::Options,
    /// What may change or refuse a write.
    #[command(flatten)]
    pub admission: Admission,
    /// What is written about requests.
    #[command(flatten)]
    pub audit: audit::Options,
    /// How many requests may be under way.
    #[command(flatten)]
    pub flow_control: FlowControl,
    /// How objects are sealed.
    #[command(flatten)]
    pub encryption: Encryption,
    /// Where spans go.
    #[command(flatten)]
    pub tracing: traces::Options,
    /// How the server goes.
    #[command(flatten)]
    pub shutdown: Shutdown,
    /// How connections and requests are served.
    #[command(flatten)]
    pub serving: serving::Options,
}

/// What may change or refuse a write.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Admission")]
pub struct Admission {
    /// Admission plug-ins to run besides the default ones.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', long_help = plugins("Admission plug-ins to run besides the default ones"))]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plug-ins not to run, though they do by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', long_help = plugins("Admission plug-ins not to run, though they do by default"))]
    pub disable_admission_plugins: Vec<String>,
    /// File with the settings of admission plug-ins (an AdmissionConfiguration).
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// How many seconds a pod stays on a node that is not ready, unless it says otherwise.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub default_not_ready_toleration_seconds: i64,
    /// How many seconds a pod stays on a node that cannot be reached, unless it says otherwise.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub default_unreachable_toleration_seconds: i64,
}

/// The help of a list of plug-ins: which there are, and which run anyway.
fn plugins(what: &str) -> String {
    let list = |names: Vec<&str>| names.join(", ");
    format!(
        "{what} ({}). All there are, in the order in which they run: {}",
        list(admission::Plugin::default_names().collect()),
        list(admission::Plugin::names().collect()),
    )
}

impl Admission {
    fn read(&self) -> Result<admission::Settings, Error> {
        let (enable, disable) = (self.enable_admission_plugins.join(","), self.disable_admission_plugins.join(","));
        let mut settings =
            admission::Settings::parse(&enable, &disable).map_err(|error| wrong("enable-admission-plugins", error))?;
        if let Some(path) = &self.admission_control_config_file {
            settings.configure(path).map_err(|error| wrong("admission-control-config-file", error))?;
        }
        settings.toleration_seconds = admission::TolerationSeconds {
            not_ready: self.default_not_ready_toleration_seconds,
            unreachable: self.default_unreachable_toleration_seconds,
        };
        Ok(settings)
    }
}

/// How many requests may be under way.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Flow control")]
pub struct FlowControl {
    /// Requests under way at once that change nothing. With the next, this makes the seats that priority levels share.
    #[arg(long, value_name = "NUMBER", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_requests_inflight: u32,
    /// Requests under way at once that change something.
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_mutating_requests_inflight: u32,
}

/// How the server goes.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Shutdown")]
pub struct Shutdown {
    /// How long the server goes on answering after it was told to stop. It is not ready meanwhile, so that whoever balances load finds another.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub shutdown_delay_duration: Duration,
}

/// How objects are sealed.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Encryption at rest")]
pub struct Encryption {
    /// An EncryptionConfiguration: which resources are sealed in the store, and with which keys.
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Take the file in again whenever it changes.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", requires = "encryption_provider_config")]
    pub encryption_provider_config_automatic_reload: bool,
}

impl Encryption {
    fn read(&self) -> Result<Option<apiserver::encryption::Settings>, Error> {
        let Some(path) = self.encryption_provider_config.clone() else { return Ok(None) };
        let reload = self.encryption_provider_config_automatic_reload;
        let settings = apiserver::encryption::Settings { path, reload };
        settings.check().map_err(|error| wrong("encryption-provider-config", error))?;
        Ok(Some(settings))
    }
}

/// The gates, checked and read.
pub struct Gates {
    authentication: authentication::Read,
    authorization: apiserver::gates::authorization::Settings,
    admission: admission::Settings,
    audit: Option<apiserver::audit::Settings>,
    encryption: Option<apiserver::encryption::Settings>,
    tracing: Option<otlp::Configuration>,
    flow_control: apiserver::gates::flow_control::Settings,
    pub serving: serving::Read,
}

impl Options {
    /// Checks the options and reads the files that they name.
    pub fn read(&self) -> Result<Gates, Error> {
        let authorization = self.authorization.read()?;
        let always_allow = authorization.modes.iter().any(|mode| matches!(mode, Mode::AlwaysAllow));
        Ok(Gates {
            authentication: self.authentication.read(always_allow)?,
            authorization,
            admission: self.admission.read()?,
            audit: self.audit.read()?,
            encryption: self.encryption.read()?,
            tracing: self.tracing.read()?,
            flow_control: apiserver::gates::flow_control::Settings {
                reads: self.flow_control.max_requests_inflight,
                writes: self.flow_control.max_mutating_requests_inflight,
            },
            serving: self.serving.read()?,
        })
    }
}

impl Gates {
    /// Whose word about clients other servers should believe.
    pub fn believed(&self, keys: &pki::Cluster) -> Believed {
        self.authentication.believed(keys)
    }

    /// Sends spans of requests from now on, if somebody wants them. `instance` tells this server from others.
    pub fn start_tracing(&self, instance: &str) -> Result<Option<otlp::Sender>, Error> {
        self.tracing.as_ref().map_or(Ok(None), |tracing| traces::start(tracing, instance))
    }

    /// The settings of an API server with these gates. `keys` are the cluster's own, which stay good beside all others.
    pub fn configure(&self, config: &mut apiserver::Config, keys: &pki::Cluster) -> Result<(), Error> {
        self.authentication.configure(config, keys, &self.serving.handshake)?;
        self.serving.configure(config, keys)?;
        config.authorization = self.authorization.clone();
        config.admission = self.admission.clone();
        config.audit = self.audit.clone();
        config.encryption = self.encryption.clone();
        config.flow_control = self.flow_control;
        Ok(())
    }
}

/// A mistake in an option.
fn wrong(option: &'static str, why: impl std::fmt::Display) -> Error {
    Error::Option { option, message: why.to_string() }
}

/// The text of a file that an option names.
fn text(option: &'static str, path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| wrong(option, format!("cannot read {}: {error}", path.display())))
}

/// The certificates of a file that an option names, in PEM.
fn certificates(option: &'static str, path: &Path) -> Result<String, Error> {
    let text = text(option, path)?;
    if pki::Certificate::from_pem(&text).is_err() {
        return Err(wrong(option, format!("{} has no certificate in PEM", path.display())));
    }
    Ok(text)
}

/// A duration as Go writes it, such as `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    machinery::duration::parse(text).ok_or_else(|| "give a duration such as 30s or 2m0s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// Reads a command line; `{}` in it is a directory with a few good and bad files.
    fn read(line: &str) -> Result<Gates, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file");
        file("junk", "junk");
        file("empty.yaml", "{}");
        file(
            "authn.yaml",
            "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration, anonymous: {enabled: false}}",
        );
        let authentication = "apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration";
        file("anonymous.yaml", &format!("{{{authentication}, anonymous: {{enabled: true}}}}"));
        file("silent.yaml", &format!("{{{authentication}}}"));
        file(
            "authz.yaml",
            "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthorizationConfiguration, authorizers: [{type: RBAC, name: rbac}]}",
        );
        file("policy.yaml", "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}");
        file(
            "tracing.yaml",
            "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, samplingRatePerMillion: -1}",
        );
        let line = line.replace("{}", directory.path().to_str().expect("a path in UTF-8"));
        let line = Line::try_parse_from(std::iter::once("trireme").chain(line.split_whitespace()));
        line.map_err(|error| error.to_string())?.options.read().map_err(|error| error.to_string())
    }

    #[test]
    fn mistakes_are_told_with_the_option_that_has_them() {
        for (line, expect) in [
            ("--token-auth-file {}/none", "--token-auth-file: cannot read"),
            ("--client-ca-file {}/junk", "--client-ca-file:"),
            ("--requestheader-client-ca-file {}/junk", "has no certificate in PEM"),
            ("--requestheader-allowed-names a", "--requestheader-client-ca-file"),
            ("--proxy-client-cert-file {}/junk", "--proxy-client-key-file"),
            ("--proxy-client-cert-file {}/junk --proxy-client-key-file {}/junk", "--requestheader-client-ca-file"),
            ("--service-account-key-file {}/junk", "--service-account-key-file:"),
            ("--service-account-signing-key-file {}/junk", "--service-account-signing-key-file:"),
            ("--service-account-issuer https://", "--service-account-issuer:"),
            ("--oidc-issuer-url https://issuer", "oidc-issuer-url and oidc-client-id must be specified together"),
            ("--oidc-issuer-url http://issuer --oidc-client-id a", "URL scheme must be https"),
            ("--oidc-issuer-url https://issuer --oidc-client-id a --oidc-signing-algs HS256", "HS256"),
            ("--oidc-issuer-url https://issuer --oidc-client-id a --oidc-required-claim a", "KEY=VALUE"),
            ("--authentication-config {}/empty.yaml", "--authentication-config:"),
            ("--authentication-config {}/authn.yaml --anonymous-auth=true", "--anonymous-auth"),
            ("--authentication-config {}/authn.yaml --oidc-issuer-url https://issuer", "--oidc-issuer-url"),
            ("--authentication-token-webhook-config-file {}/none", "--authentication-token-webhook-config-file:"),
            ("--authentication-token-webhook-cache-ttl soon", "give a duration"),
            ("--authentication-token-webhook-version v2", "v2"),
            ("--authorization-mode Nonsense", "authorization-mode \"Nonsense\" is not a valid mode"),
            ("--authorization-mode ABAC", "--authorization-policy-file"),
            ("--authorization-policy-file {}/junk", "without mode ABAC"),
            ("--authorization-mode RBAC --authorization-policy-file {}/junk", "without mode ABAC"),
            ("--oidc-username-claim email", "--oidc-issuer-url"),
            ("--authorization-mode Webhook", "--authorization-webhook-config-file"),
            ("--authorization-config {}/empty.yaml", "--authorization-config:"),
            ("--authorization-config {}/authz.yaml --authorization-mode RBAC", "--authorization-mode"),
            ("--audit-policy-file {}/none --audit-log-path -", "--audit-policy-file: failed to read file path"),
            ("--audit-policy-file {}/empty.yaml --audit-log-path -", "unknown group version field"),
            ("--audit-policy-file {}/policy.yaml", "give --audit-log-path or --audit-webhook-config-file"),
            ("--audit-log-path {}/log", "--audit-policy-file"),
            ("--audit-policy-file {}/policy.yaml --audit-log-path - --audit-log-format legacy", "legacy"),
            ("--audit-policy-file {}/policy.yaml --audit-webhook-config-file {}/none", "--audit-webhook-config-file:"),
            ("--encryption-provider-config {}/none", "--encryption-provider-config: error reading"),
            ("--encryption-provider-config {}/empty.yaml", "it is no EncryptionConfiguration"),
            ("--encryption-provider-config-automatic-reload", "--encryption-provider-config"),
            ("--goaway-chance 0.5", "--goaway-chance: can not be less than 0 or greater than 0.02"),
            ("--request-timeout 0s", "--request-timeout: can not be zero"),
            ("--cors-allowed-origins example.com", "--cors-allowed-origins: regular expression does not pin"),
            ("--strict-transport-security-directives x", "--strict-transport-security-directives: invalid"),
            ("--tls-cert-file {}/junk", "--tls-private-key-file"),
            ("--tls-cert-file {}/junk --tls-private-key-file {}/junk", "--tls-cert-file:"),
            ("--tls-sni-cert-key {}/junk,{}/none:a.example", "--tls-sni-cert-key: cannot read"),
            ("--tls-min-version VersionTLS11", "--tls-min-version: VersionTLS11 is not spoken here"),
            ("--tls-cipher-suites TLS_RSA_WITH_RC4_128_SHA", "--tls-cipher-suites: Cipher suite TLS_RSA_WITH_RC4"),
            ("--kubelet-client-certificate {}/junk --kubelet-client-key {}/junk", "--kubelet-client-certificate:"),
            ("--kubelet-certificate-authority {}/junk", "--kubelet-certificate-authority:"),
            ("--kubelet-preferred-address-types Nearest", "Nearest"),
            ("--peer-ca-file {}/junk", "--peer-ca-file:"),
            ("--peer-advertise-ip here", "--peer-advertise-ip"),
            ("--service-account-max-token-expiration 1s", "--service-account-max-token-expiration: must be between"),
            ("--service-account-jwks-uri http://a", "--service-account-jwks-uri: requires https scheme"),
            (
                "--audit-policy-file {}/policy.yaml --audit-log-path - --audit-log-truncate-max-event-size 5",
                "--audit-log-truncate-enabled",
            ),
            ("--enable-admission-plugins Nonsense", "enable-admission-plugins plugin \"Nonsense\" is unknown"),
            ("--enable-admission-plugins Priority --disable-admission-plugins Priority", "overlapped"),
            ("--tracing-config-file {}/none", "tracing-config-file"),
            ("--tracing-config-file {}/empty.yaml", "failed to read tracing config"),
            (
                "--tracing-config-file {}/tracing.yaml",
                "failed to validate tracing configuration: samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
            ),
            ("--admission-control-config-file {}/none", "unable to read admission control configuration from"),
            ("--admission-control-config-file {}/empty.yaml", "--admission-control-config-file:"),
        ] {
            let error = read(line).err().unwrap_or_else(|| panic!("{line} is accepted"));
            assert!(error.contains(expect), "{line}: {error}");
        }
    }

    #[test]
    fn where_everybody_may_do_everything_nobody_is_anonymous() {
        use apiserver::gates::authentication::Anonymous;
        for (line, expect) in [
            ("", Anonymous::Allowed),
            ("--authorization-mode AlwaysAllow", Anonymous::Refused),
            ("--authorization-mode RBAC,AlwaysAllow --anonymous-auth=true", Anonymous::Refused),
            ("--authorization-mode AlwaysDeny", Anonymous::Allowed),
            // A file that says it is believed.
            ("--authorization-mode AlwaysAllow --authentication-config {}/anonymous.yaml", Anonymous::Allowed),
            ("--authorization-mode AlwaysAllow --authentication-config {}/silent.yaml", Anonymous::Refused),
        ] {
            assert_eq!(read(line).expect(line).authentication.settings.anonymous, expect, "{line}");
        }
    }

    #[test]
    fn options_become_settings() {
        use apiserver::gates::authentication::{Anonymous, claims::Mapped};
        let gates = read("--anonymous-auth=false --authorization-mode RBAC --api-audiences a,b").expect("options");
        assert_eq!(gates.authentication.settings.anonymous, Anonymous::Refused);
        assert_eq!(gates.authentication.settings.service_accounts.audiences, ["a", "b"]);
        assert_eq!(gates.authorization.modes, [Mode::Rbac]);
        let gates = read("--service-account-issuer https://a --service-account-issuer https://b").expect("options");
        let accounts = &gates.authentication.settings.service_accounts;
        assert_eq!(
            (&accounts.issuers, &accounts.audiences),
            (&vec!["https://a".into(), "https://b".into()], &vec!["https://a".into()])
        );
        let gates = read("--authentication-config {}/authn.yaml --authorization-config {}/authz.yaml").expect("files");
        assert_eq!(gates.authentication.settings.anonymous, Anonymous::Refused);
        assert_eq!(gates.authorization.modes, [Mode::Rbac]);
        let gates = read("--audit-policy-file {}/policy.yaml --audit-log-path - --audit-log-mode=blocking-strict");
        let log = gates.expect("options").audit.and_then(|audit| audit.log).expect("a log");
        assert_eq!(log.mode, apiserver::audit::Mode::BlockingStrict);
        // Names of another issuer's users must not be those of ours, unless that is asked for.
        let issuer = "--oidc-issuer-url https://issuer --oidc-client-id us";
        for (more, prefix) in [
            ("", "https://issuer#"),
            ("--oidc-username-claim email", ""),
            ("--oidc-username-prefix -", ""),
            ("--oidc-username-prefix x:", "x:"),
        ] {
            let gates = read(&format!("{issuer} {more}")).expect("options");
            let Mapped::Claim { prefix: found, .. } = &gates.authentication.settings.issuers[0].claims.username else {
                panic!("{more}: a claim names the user");
            };
            assert_eq!(found, prefix, "{more}");
        }
    }
}
