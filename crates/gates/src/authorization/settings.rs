//! Which authorizers there are and in which order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::Clock;
use storage::Lookup;
use storage::cache::Caches;

use super::conditions::Conditions;
use super::node::Node;
use super::rbac::{self, Rbac};
use super::structured::File;
use super::webhook::{self, Webhook};
use super::{AlwaysAllow, AlwaysDeny, Authorizer, Authorizers, Decision, Followed, Masters, Step, abac};
use crate::configuration;
use crate::outbound::{self, Remote};

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such mode.
    #[error("authorization-mode {0:?} is not a valid mode")]
    Mode(String),
    /// A mode is named twice.
    #[error("authorization-mode {0:?} has mode specified more than once")]
    Twice(String),
    /// The file cannot be read.
    #[error("cannot read {path}: {why}")]
    File { path: String, why: String },
    /// The match conditions make no sense.
    #[error("{0}")]
    Conditions(String),
    /// The ABAC policies cannot be used.
    #[error(transparent)]
    Abac(#[from] abac::Error),
    /// The webhook cannot be used.
    #[error(transparent)]
    Webhook(#[from] outbound::Error),
    /// An authorizer that keeps something cannot join later.
    #[error("authorizer type {0} is not allowed if it was not enabled at initial server startup")]
    Late(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Everybody may do everything.
    AlwaysAllow,
    /// Nobody may do anything.
    AlwaysDeny,
    /// By the file of `--authorization-policy-file`.
    Abac(PathBuf),
    /// By roles and bindings.
    Rbac,
    Node,
    Webhook(Remoteness),
}

impl Mode {
    /// Its name, as reasons tell it.
    fn name(&self) -> &str {
        match self {
            Self::AlwaysAllow => "alwaysallow",
            Self::AlwaysDeny => "alwaysdeny",
            Self::Abac(_) => "abac",
            Self::Rbac => "rbac",
            Self::Node => "node",
            Self::Webhook(how) => &how.name,
        }
    }
}

/// Where somebody else is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Where a kubeconfig says.
    Kubeconfig(PathBuf),
    /// The API server of the cluster that this process is a pod of.
    InCluster,
}

/// Who else decides, and how they are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remoteness {
    /// Its name, as reasons tell it.
    pub name: String,
    pub place: Place,
    /// `v1` or `v1beta1`.
    pub version: String,
    /// How long a yes is remembered.
    pub authorized_ttl: Duration,
    /// How long a no is remembered.
    pub unauthorized_ttl: Duration,
    /// How long one call may take.
    pub timeout: Duration,
    /// Whether a failure refuses the request, instead of leaving it to the others.
    pub fails_closed: bool,
    /// What must hold of a request for the webhook to be asked about it.
    pub conditions: Vec<String>,
}

impl Remoteness {
    /// As `--authorization-webhook-config-file` alone says it.
    pub fn at(kubeconfig: PathBuf) -> Self {
        Self {
            name: "webhook".to_owned(),
            place: Place::Kubeconfig(kubeconfig),
            version: "v1beta1".to_owned(),
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            fails_closed: false,
            conditions: Vec::new(),
        }
    }
}

/// The chain as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub modes: Vec<Mode>,
    /// The file that says so, to be followed.
    pub file: Option<File>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { modes: vec![Mode::Node, Mode::Rbac], file: None }
    }
}

impl Settings {
    /// Reads `--authorization-mode`, such as `Node,RBAC`, with the files that ABAC and Webhook need.
    pub fn parse(modes: &str, policy: Option<&Path>, webhook: Option<&Remoteness>) -> Result<Self, Error> {
        let mut read: Vec<Mode> = Vec::new();
        for word in modes.split(',').filter(|word| !word.is_empty()) {
            let missing =
                |flag: &str| Error::File { path: flag.to_owned(), why: format!("authorization-mode {word} needs it") };
            let mode = match word {
                "AlwaysAllow" => Mode::AlwaysAllow,
                "AlwaysDeny" => Mode::AlwaysDeny,
                "RBAC" => Mode::Rbac,
                "Node" => Mode::Node,
                "ABAC" => Mode::Abac(policy.ok_or_else(|| missing("--authorization-policy-file"))?.to_owned()),
                "Webhook" => {
                    Mode::Webhook(webhook.ok_or_else(|| missing("--authorization-webhook-config-file"))?.clone())
                }
                other => return Err(Error::Mode(other.to_owned())),
            };
            if read.contains(&mode) {
                return Err(Error::Twice(word.to_owned()));
            }
            read.push(mode);
        }
        Ok(Self { modes: read, file: None })
    }

    pub fn build(&self, lookup: &dyn Lookup, caches: &Arc<Caches>, clock: &Clock) -> Result<Authorizers, Error> {
        let rbac = Rbac::new(lookup).map(Arc::new);
        let mut parts = Parts { rbac: None, node: None, abac: None, clock: clock.clone() };
        for mode in &self.modes {
            match mode {
                Mode::Rbac => parts.rbac = rbac.clone().map(|rbac| Arc::new(rbac::Shared(rbac)) as Arc<dyn Authorizer>),
                Mode::Node => parts.node = Node::new(lookup).map(|node| Arc::new(node) as Arc<dyn Authorizer>),
                Mode::Abac(path) => parts.abac = Some(Arc::new(abac::Abac::load(path)?)),
                Mode::AlwaysAllow | Mode::AlwaysDeny | Mode::Webhook(_) => {}
            }
        }
        let steps = parts.steps(&self.modes)?;
        // The checks on writes to roles count only where roles do.
        let counts = self.modes.contains(&Mode::Rbac);
        let followed = self.file.clone().map(|file| Followed::new(file, parts));
        Ok(Authorizers::new(steps, rbac.filter(|_| counts), Some(caches.clone())).following(followed))
    }
}

/// What authorizers are made of: those that keep something are made once, whatever the file says later.
pub struct Parts {
    rbac: Option<Arc<dyn Authorizer>>,
    node: Option<Arc<dyn Authorizer>>,
    abac: Option<Arc<dyn Authorizer>>,
    pub clock: Clock,
}

impl Parts {
    /// The chain. Masters come first, so that a broken policy can be mended.
    pub fn steps(&self, modes: &[Mode]) -> Result<Vec<(String, Step)>, Error> {
        let masters = "kubernetes.io/system-privileged-group";
        let mut steps = vec![(masters.to_owned(), Step::Local(Arc::new(Masters)))];
        let kept = |of: &Option<Arc<dyn Authorizer>>, name| of.clone().map(Step::Local).ok_or(Error::Late(name));
        for mode in modes {
            let step = match mode {
                Mode::AlwaysAllow => Step::Local(Arc::new(AlwaysAllow)),
                Mode::AlwaysDeny => Step::Local(Arc::new(AlwaysDeny)),
                Mode::Abac(_) => kept(&self.abac, "ABAC")?,
                Mode::Rbac => kept(&self.rbac, "RBAC")?,
                Mode::Node => kept(&self.node, "Node")?,
                Mode::Webhook(how) => Step::Remote(Box::new(self.webhook(how)?)),
            };
            steps.push((mode.name().to_owned(), step));
        }
        Ok(steps)
    }

    fn webhook(&self, how: &Remoteness) -> Result<Webhook, Error> {
        let settings = webhook::Settings {
            remote: match &how.place {
                Place::Kubeconfig(path) => Remote::from_kubeconfig(path)?,
                Place::InCluster => Remote::in_cluster(Path::new(outbound::ACCOUNT), |name| std::env::var(name).ok())?,
            },
            version: how.version.clone(),
            authorized_ttl: how.authorized_ttl,
            unauthorized_ttl: how.unauthorized_ttl,
            timeout: how.timeout,
            on_error: if how.fails_closed { Decision::Deny } else { Decision::NoOpinion },
            conditions: Conditions::compile(&how.conditions, "")
                .map_err(|errors| Error::Conditions(configuration::together(&errors)))?,
        };
        Ok(Webhook::new(settings, self.clock.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_in_order_and_nonsense_is_refused() {
        assert_eq!(Settings::parse("Node,RBAC", None, None).expect("modes"), Settings::default());
        for (modes, expect) in [
            ("Nonsense", "authorization-mode \"Nonsense\" is not a valid mode"),
            ("RBAC,RBAC", "authorization-mode \"RBAC\" has mode specified more than once"),
            ("ABAC", "cannot read --authorization-policy-file: authorization-mode ABAC needs it"),
        ] {
            assert_eq!(Settings::parse(modes, None, None).expect_err(modes).to_string(), expect);
        }
    }
}
