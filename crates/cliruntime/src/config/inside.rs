//! What a pod is told of its own cluster: where the server is, whom to trust, which token is the pod's, and its namespace. It
//! counts where no kubeconfig says anything else; the namespace counts also where only that is missing.

use std::path::Path;

use super::file::Entry;
use crate::command::Environment;

/// Where every pod finds its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A cluster and a user as a kubeconfig would have them, so that flags override these as they override those.
#[derive(Debug, Clone)]
pub struct Inside {
    pub cluster: Entry,
    pub user: Entry,
    pub namespace: String,
}

impl Inside {
    /// Nothing where this is no pod, or one without an account.
    pub fn of(environment: &Environment) -> Option<Self> {
        Self::with_account(environment, Path::new(ACCOUNT))
    }

    fn with_account(environment: &Environment, account: &Path) -> Option<Self> {
        let host = environment.variable("KUBERNETES_SERVICE_HOST")?;
        let port = environment.variable("KUBERNETES_SERVICE_PORT")?;
        let token = account.join("token");
        if !token.exists() || token.is_dir() {
            return None;
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut cluster = Entry::default();
        cluster.set("server", format!("https://{host}:{port}"));
        let authority = account.join("ca.crt");
        if authority.is_file() {
            cluster.set("certificate-authority", authority.display().to_string());
        }
        let mut user = Entry::default();
        user.set("tokenFile", token.display().to_string());
        let written = || std::fs::read_to_string(account.join("namespace")).ok();
        let namespace = environment.variable("POD_NAMESPACE").map(str::to_owned).or_else(written);
        let namespace = namespace.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
        Some(Self { cluster, user, namespace: namespace.unwrap_or_else(|| "default".to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(variables: &[(&str, &str)]) -> Environment {
        let inside = [("KUBERNETES_SERVICE_HOST", "fd00::1"), ("KUBERNETES_SERVICE_PORT", "443")];
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = inside.iter().chain(variables).map(owned).collect();
        Environment { variables, ..Environment::default() }
    }

    #[test]
    fn a_pod_knows_its_server_its_account_and_its_namespace() {
        let account = tempfile::tempdir().expect("a directory");
        assert!(Inside::with_account(&pod(&[]), account.path()).is_none(), "an account is a token");
        for (name, text) in [("token", "t"), ("namespace", "team\n"), ("ca.crt", "")] {
            std::fs::write(account.path().join(name), text).expect("a file");
        }
        let found = Inside::with_account(&pod(&[]), account.path()).expect("a pod");
        assert_eq!((found.cluster.text("server"), found.namespace.as_str()), ("https://[fd00::1]:443", "team"));
        assert_eq!(found.user.text("tokenFile"), account.path().join("token").display().to_string());
        let named = Inside::with_account(&pod(&[("POD_NAMESPACE", "other")]), account.path()).expect("a pod");
        assert_eq!(named.namespace, "other");
        assert!(Inside::with_account(&Environment::default(), account.path()).is_none(), "no pod has no server");
    }
}
