//! Which plug-ins run (`--enable-admission-plugins`, `--disable-admission-plugins`), and their configuration by the file of
//! `--admission-control-config-file`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use machinery::{Value, codec, value};

use super::event_rate_limit::Limit;
use super::{image_policy, pod_security, pod_tolerations, tolerations};

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// There is no such plug-in.
    #[error("{flag} plugin {name:?} is unknown")]
    Unknown {
        /// Where it is named.
        flag: &'static str,
        name: String,
    },
    /// Plug-ins are both on and off.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", .0.join(" "))]
    Both(Vec<String>),
    /// A file cannot be read.
    #[error("unable to read admission control configuration from {path:?} [{why}]")]
    File { path: PathBuf, why: String },
    /// A plug-in does not understand its configuration.
    #[error("couldn't init admission plugin {plugin:?}: {why}")]
    Plugin { plugin: String, why: String },
}

macro_rules! plugins {
    ($($(#[doc = $doc:literal])* $name:ident $default:literal,)+) => {
        /// A plug-in that can be switched.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Plugin { $($(#[doc = $doc])* $name,)+ }

        impl Plugin {
            const ALL: &[(Self, &'static str, bool)] = &[$((Self::$name, stringify!($name), $default),)+];

            /// The names of those that run unless something else is said.
            pub fn default_names() -> impl Iterator<Item = &'static str> {
                Self::ALL.iter().filter(|(_, _, default)| *default).map(|(_, name, _)| *name)
            }

            /// The names of all of them, in the order in which they run.
            pub fn names() -> impl Iterator<Item = &'static str> {
                Self::ALL.iter().map(|(_, name, _)| *name)
            }
        }
    };
}

// In the order in which they run, which is upstream's.
plugins! {
    /// Lets everything pass; deprecated, as it has no meaning.
    AlwaysAdmit false,
    /// Namespaces come into being when something is made in them.
    NamespaceAutoProvision false,
    /// Nothing new in a namespace that goes.
    NamespaceLifecycle true,
    /// Nothing at all in a namespace that is not there.
    NamespaceExists false,
    /// Pods keep others away from nodes only, not from whole zones.
    LimitPodHardAntiAffinityTopology false,
    /// Limits and defaults of containers, pods and claims.
    LimitRanger true,
    /// Every pod runs as an account.
    ServiceAccount true,
    /// Nodes change only what is theirs.
    NodeRestriction true,
    /// New nodes are not ready.
    TaintNodesByCondition true,
    /// Images are pulled, so that credentials are checked.
    AlwaysPullImages false,
    /// Somebody else says which images may run.
    ImagePolicyWebhook false,
    /// The pod security standards.
    PodSecurity true,
    /// A namespace's pods stay on its nodes.
    PodNodeSelector false,
    /// Priority classes as numbers.
    Priority true,
    /// Five minutes on a node that is away.
    DefaultTolerationSeconds true,
    /// A namespace's pods tolerate what it says, and nothing beyond.
    PodTolerationRestriction false,
    /// Events come only so fast.
    EventRateLimit false,
    /// Pods that ask for devices tolerate the taints of nodes with them.
    ExtendedResourceToleration false,
    /// Claims without a class get the default one.
    DefaultStorageClass true,
    /// Volumes in use stay.
    StorageObjectInUseProtection true,
    /// Groups of pods stay while they have pods. Upstream's does nothing without `GenericWorkload`, which is off by default.
    PodGroupProtection true,
    /// Owners are set by those who may delete.
    OwnerReferencesPermissionEnforcement false,
    /// Claims grow only where their class allows it.
    PersistentVolumeClaimResize true,
    /// Overhead and scheduling of runtime classes.
    RuntimeClass true,
    /// Who may approve certificate requests.
    CertificateApproval true,
    /// Who may sign certificate requests.
    CertificateSigning true,
    /// Who may say whom to trust for a signer.
    ClusterTrustBundleAttest true,
    /// Nobody gets a certificate of `system:masters`.
    CertificateSubjectRestriction true,
    /// Ingresses without a class get the default one.
    DefaultIngressClass true,
    /// Services claim no addresses of others.
    DenyServiceExternalIPs false,
    /// Pods carry the topology labels of their node.
    PodTopologyLabels true,
    /// A pod changes only as its node can follow.
    NodeDeclaredFeatureValidator true,
    /// A pod grows only as far as its node is large.
    PodResizeValidator true,
    /// Changes of writes, as rules in the API.
    MutatingAdmissionPolicy true,
    /// Others who change writes.
    MutatingAdmissionWebhook true,
    /// Rules in the API.
    ValidatingAdmissionPolicy true,
    /// Others who refuse writes.
    ValidatingAdmissionWebhook true,
    ResourceQuota true,
    /// Refuses everything; deprecated, as it has no meaning.
    AlwaysDeny false,
}

/// Which plug-ins run, and their configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    on: u64,
    /// What is asked of pods where a namespace says nothing, and who is asked nothing.
    pub pod_security: pod_security::Settings,
    /// How fast events may come.
    pub event_limits: Vec<Limit>,
    /// Whom to ask about images.
    pub image_policy: Option<image_policy::Settings>,
    /// Node selectors: the cluster's default, and what each namespace may use.
    pub node_selectors: BTreeMap<String, String>,
    /// What pods tolerate where their namespace says nothing.
    pub tolerations: pod_tolerations::Settings,
    /// How long pods stay on nodes that are lost where they do not say it.
    pub toleration_seconds: tolerations::Seconds,
}

impl Default for Settings {
    fn default() -> Self {
        let defaults = Plugin::ALL.iter().filter(|(_, _, default)| *default);
        Self {
            on: defaults.fold(0, |on, (plugin, _, _)| on | 1 << *plugin as u8),
            pod_security: pod_security::Settings::default(),
            event_limits: Vec::new(),
            image_policy: None,
            node_selectors: BTreeMap::new(),
            tolerations: pod_tolerations::Settings::default(),
            toleration_seconds: tolerations::Seconds::default(),
        }
    }
}

impl Settings {
    /// The default ones, with these (comma separated) on and those off.
    pub fn parse(enable: &str, disable: &str) -> Result<Self, Error> {
        let mut settings = Self::default();
        let names = |list: &'_ str| -> Vec<String> {
            list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let (enable, disable) = (names(enable), names(disable));
        let words = [("enable-admission-plugins", &enable, true), ("disable-admission-plugins", &disable, false)];
        for (flag, names, on) in words {
            for name in names {
                let found = Plugin::ALL.iter().find(|(_, known, _)| known == name);
                let (plugin, _, _) = found.ok_or_else(|| Error::Unknown { flag, name: name.clone() })?;
                let bit = 1 << *plugin as u8;
                settings.on = if on { settings.on | bit } else { settings.on & !bit };
            }
        }
        let mut both: Vec<String> = enable.into_iter().filter(|name| disable.contains(name)).collect();
        both.sort();
        both.dedup();
        if both.is_empty() { Ok(settings) } else { Err(Error::Both(both)) }
    }

    /// Takes in an `AdmissionConfiguration`: for each plug-in its settings, or the file with them.
    pub fn configure(&mut self, path: &Path) -> Result<(), Error> {
        let tree = read(path)?;
        let (version, kind) = (value::text(&tree, "apiVersion"), value::text(&tree, "kind"));
        if !version.starts_with("apiserver.config.k8s.io/") || kind != "AdmissionConfiguration" {
            let why = format!("no kind {kind:?} is registered for version {version:?}");
            return Err(Error::File { path: path.to_owned(), why });
        }
        let beside = path.parent().unwrap_or(Path::new(""));
        for plugin in value::list(&tree, "plugins") {
            let name = value::text(plugin, "name");
            let own = match value::text(plugin, "path") {
                "" => plugin["configuration"].clone(),
                file => read(&beside.join(file))?,
            };
            self.configure_plugin(name, &own, beside).map_err(|why| Error::Plugin { plugin: name.to_owned(), why })?;
        }
        Ok(())
    }

    fn configure_plugin(&mut self, plugin: &str, tree: &Value, beside: &Path) -> Result<(), String> {
        match plugin {
            "PodSecurity" => self.pod_security = pod_security::Settings::read(tree)?,
            "EventRateLimit" => self.event_limits = Limit::read_all(tree)?,
            "ImagePolicyWebhook" => self.image_policy = Some(image_policy::Settings::read(tree, beside)?),
            "PodTolerationRestriction" => self.tolerations = pod_tolerations::Settings::read(tree),
            "PodNodeSelector" => {
                let all = tree["podNodeSelectorPluginConfig"].as_object().into_iter().flatten();
                let text = |text: &Value| text.as_str().unwrap_or_default().to_owned();
                self.node_selectors = all.map(|(key, selector)| (key.clone(), text(selector))).collect();
            }
            known if Plugin::ALL.iter().any(|(_, name, _)| *name == known) => {
                return Err("the plug-in has no settings here".to_owned());
            }
            _ => return Err("unknown admission plugin".to_owned()),
        }
        Ok(())
    }

    /// Whether a plug-in runs.
    pub fn runs(&self, plugin: Plugin) -> bool {
        self.on & 1 << plugin as u8 != 0
    }
}

fn read(path: &Path) -> Result<Value, Error> {
    let failed = |why: String| Error::File { path: path.to_owned(), why };
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let decoded = codec::yaml::decode(&bytes, codec::Limits::default()).map_err(|error| failed(error.message))?;
    Ok(decoded.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_switched_by_name() {
        let settings = Settings::parse("AlwaysPullImages", "LimitRanger,ResourceQuota").expect("names");
        assert!(settings.runs(Plugin::AlwaysPullImages) && settings.runs(Plugin::PodSecurity));
        assert!(!settings.runs(Plugin::LimitRanger) && !settings.runs(Plugin::ResourceQuota));
        let refused = |enable: &str, disable: &str| Settings::parse(enable, disable).expect_err("refused").to_string();
        assert_eq!(refused("Nonsense", ""), "enable-admission-plugins plugin \"Nonsense\" is unknown");
        assert_eq!(refused("", "Nonsense"), "disable-admission-plugins plugin \"Nonsense\" is unknown");
        assert_eq!(
            refused("ServiceAccount,Priority", "Priority,ServiceAccount"),
            "[Priority ServiceAccount] in enable-admission-plugins and disable-admission-plugins overlapped"
        );
    }

    #[test]
    fn there_are_all_of_upstreams_plugins_in_its_order() {
        let names: Vec<&str> = Plugin::names().collect();
        let upstream = "AlwaysAdmit NamespaceAutoProvision NamespaceLifecycle NamespaceExists LimitPodHardAntiAffinityTopology \
            LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition AlwaysPullImages ImagePolicyWebhook PodSecurity \
            PodNodeSelector Priority DefaultTolerationSeconds PodTolerationRestriction EventRateLimit \
            ExtendedResourceToleration DefaultStorageClass StorageObjectInUseProtection PodGroupProtection \
            OwnerReferencesPermissionEnforcement PersistentVolumeClaimResize RuntimeClass CertificateApproval \
            CertificateSigning ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass \
            DenyServiceExternalIPs PodTopologyLabels NodeDeclaredFeatureValidator PodResizeValidator \
            MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy ValidatingAdmissionWebhook \
            ResourceQuota AlwaysDeny";
        assert_eq!(names, upstream.split(' ').filter(|name| !name.is_empty()).collect::<Vec<_>>());
        // Upstream's own default leaves this one out; whoever starts kubelets with it switches it on.
        let on = Plugin::ALL.iter().filter(|(_, name, default)| *default && *name != "NodeRestriction").count();
        assert_eq!(on, 25, "as many as upstream has on by default");
    }

    #[test]
    fn a_file_tells_plugins_what_to_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path
        };
        write("events.yaml", "limits: [{type: Server, qps: 5, burst: 10}]");
        let path = write(
            "admission.yaml",
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
             - {name: EventRateLimit, path: events.yaml}\n\
             - name: PodSecurity\n  configuration: {defaults: {enforce: baseline, enforce-version: v1.30}, exemptions: {usernames: [a]}}\n\
             - name: PodNodeSelector\n  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}}\n",
        );
        let mut settings = Settings::default();
        settings.configure(&path).expect("a configuration");
        assert_eq!(settings.event_limits.len(), 1);
        assert_eq!(settings.pod_security.enforce.to_string(), "baseline:v1.30");
        assert_eq!(settings.pod_security.exempt_users, ["a"]);
        assert_eq!(settings.node_selectors["clusterDefaultNodeSelector"], "a=b");
        let odd = write(
            "odd.yaml",
            "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{name: Nonsense}]}",
        );
        let error = Settings::default().configure(&odd).expect_err("refused").to_string();
        assert_eq!(error, "couldn't init admission plugin \"Nonsense\": unknown admission plugin");
    }
}
