//! Which plug-ins run: `--enable-admission-plugins`, `--disable-admission-plugins`.

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// There is no such plug-in.
    #[error("admission plugin {0:?} is unknown")]
    Unknown(String),
    /// A plug-in is both on and off.
    #[error("{0:?} in enable-admission-plugins and disable-admission-plugins overlapped")]
    Both(String),
}

macro_rules! plugins {
    ($($(#[doc = $doc:literal])+ $name:ident $default:literal,)+) => {
        /// A plug-in that can be switched.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Plugin { $($(#[doc = $doc])+ $name,)+ }

        impl Plugin {
            const ALL: &[(Self, &'static str, bool)] = &[$((Self::$name, stringify!($name), $default),)+];
        }
    };
}

plugins! {
    /// Nothing new in a namespace that goes.
    NamespaceLifecycle true,
    /// Limits and defaults of containers, pods and claims.
    LimitRanger true,
    /// Every pod runs as an account.
    ServiceAccount true,
    /// New nodes are not ready.
    TaintNodesByCondition true,
    /// The pod security standards.
    PodSecurity true,
    /// Priority classes as numbers.
    Priority true,
    /// Five minutes on a node that is away.
    DefaultTolerationSeconds true,
    /// Claims without a class get the default one.
    DefaultStorageClass true,
    /// Volumes in use stay.
    StorageObjectInUseProtection true,
    /// Claims grow only where their class allows it.
    PersistentVolumeClaimResize true,
    /// Overhead and scheduling of runtime classes.
    RuntimeClass true,
    /// Who may approve certificate requests.
    CertificateApproval true,
    /// Who may sign certificate requests.
    CertificateSigning true,
    /// Nobody gets a certificate of `system:masters`.
    CertificateSubjectRestriction true,
    /// Ingresses without a class get the default one.
    DefaultIngressClass true,
    /// Pods carry the topology labels of their node.
    PodTopologyLabels true,
    /// Nodes change only what is theirs.
    NodeRestriction true,
    /// Resource quotas.
    ResourceQuota true,
    /// Pods that ask for devices tolerate the taints of nodes with them.
    ExtendedResourceToleration false,
    /// Images are pulled, so that credentials are checked.
    AlwaysPullImages false,
    /// Services claim no addresses of others.
    DenyServiceExternalIPs false,
    /// A namespace's pods stay on its nodes.
    PodNodeSelector false,
    /// Owners are set by those who may delete.
    OwnerReferencesPermissionEnforcement false,
}

/// Which plug-ins run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    on: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let defaults = Plugin::ALL.iter().filter(|(_, _, default)| *default);
        Self { on: defaults.fold(0, |on, (plugin, _, _)| on | 1 << *plugin as u8) }
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
        if let Some(both) = enable.iter().find(|name| disable.contains(name)) {
            return Err(Error::Both(both.clone()));
        }
        for (name, on) in enable.iter().map(|name| (name, true)).chain(disable.iter().map(|name| (name, false))) {
            let found = Plugin::ALL.iter().find(|(_, known, _)| known == name);
            let (plugin, _, _) = found.ok_or_else(|| Error::Unknown(name.clone()))?;
            let bit = 1 << *plugin as u8;
            settings.on = if on { settings.on | bit } else { settings.on & !bit };
        }
        Ok(settings)
    }

    /// Whether a plug-in runs.
    pub fn runs(&self, plugin: Plugin) -> bool {
        self.on & 1 << plugin as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_switched_by_name() {
        let settings = Settings::parse("AlwaysPullImages", "LimitRanger,ResourceQuota").expect("names");
        assert!(settings.runs(Plugin::AlwaysPullImages) && settings.runs(Plugin::PodSecurity));
        assert!(!settings.runs(Plugin::LimitRanger) && !settings.runs(Plugin::ResourceQuota));
        assert_eq!(Settings::parse("Nonsense", ""), Err(Error::Unknown("Nonsense".to_owned())));
        assert_eq!(Settings::parse("Priority", "Priority"), Err(Error::Both("Priority".to_owned())));
    }
}
