//! What the program knows of a built-in kind besides its facts, as a row of its group's table.

use facts::Resource as Facts;
use machinery::Value;

use crate::strategy::{Plain, Strategy};
use crate::table::{PLAIN, Printer};

/// A row. It says only what differs from a kind that needs nothing special.
pub struct Kind {
    plural: &'static str,
    kind: &'static str,
    strategy: &'static dyn Strategy,
    columns: &'static Printer,
    conversions: &'static [Conversion],
    deprecations: &'static [Deprecation],
    stored: Stored,
}

/// Where objects of a kind are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    ByPlural,
    /// Where upstream began to keep them, under a name of that time.
    At(&'static str),
    /// As the objects of the same plural in another group and version.
    As(&'static str, &'static str),
    /// Nowhere: they are made up when somebody asks.
    Never,
}

/// From one version of a kind to another that differs in more than `apiVersion`.
pub struct Conversion {
    /// The `apiVersion` of the object.
    pub from: &'static str,
    /// The `apiVersion` that it shall have.
    pub to: &'static str,
    /// Everything but the `apiVersion`.
    pub convert: fn(&mut Value),
}

/// A version of a kind that is on its way out. Releases are minors of 1.
pub struct Deprecation {
    version: &'static str,
    since: u8,
    until: Option<u8>,
    instead: &'static str,
}

impl Kind {
    /// A resource that needs nothing special.
    pub const fn new(plural: &'static str, kind: &'static str) -> Self {
        Self {
            plural,
            kind,
            strategy: &Plain,
            columns: &PLAIN,
            conversions: &[],
            deprecations: &[],
            stored: Stored::ByPlural,
        }
    }

    /// A kind that is no resource of its own.
    pub const fn subresource(kind: &'static str) -> Self {
        Self { stored: Stored::Never, ..Self::new("", kind) }
    }

    pub const fn strategy(self, strategy: &'static dyn Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// What tables show of it, in the version that is stored.
    pub const fn columns(self, columns: &'static Printer) -> Self {
        Self { columns, ..self }
    }

    /// How its versions become each other.
    pub const fn converted(self, conversions: &'static [Conversion]) -> Self {
        Self { conversions, ..self }
    }

    /// Which of its versions go.
    pub const fn deprecated(self, deprecations: &'static [Deprecation]) -> Self {
        Self { deprecations, ..self }
    }

    /// Its objects have another path in the store than their plural.
    pub const fn stored_at(self, path: &'static str) -> Self {
        Self { stored: Stored::At(path), ..self }
    }

    /// Its objects are those of another group.
    pub const fn stored_as(self, group: &'static str, version: &'static str) -> Self {
        Self { stored: Stored::As(group, version), ..self }
    }

    /// It has no objects but those that are made up.
    pub const fn never_stored(self) -> Self {
        Self { stored: Stored::Never, ..self }
    }

    pub(crate) fn plural(&self) -> &'static str {
        self.plural
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn rules(&self) -> &'static dyn Strategy {
        self.strategy
    }

    pub(crate) fn printer(&self) -> &'static Printer {
        self.columns
    }

    pub(crate) fn place(&self) -> Stored {
        self.stored
    }

    /// What brings an object of one version into another, if more than its `apiVersion` differs.
    pub(crate) fn conversion(&self, from: &str, to: &str) -> Option<&'static Conversion> {
        self.conversions.iter().find(|conversion| conversion.from == from && conversion.to == to)
    }

    /// The warning for clients of a version that is deprecated.
    pub(crate) fn deprecation(&self, facts: &Facts) -> Option<String> {
        let found = self.deprecations.iter().find(|deprecation| deprecation.version == facts.version)?;
        let mut text = format!("{} {} is deprecated in v1.{}+", facts.api_version(), self.kind, found.since);
        if let Some(until) = found.until {
            text.push_str(&format!(", unavailable in v1.{until}+"));
        }
        if !found.instead.is_empty() {
            text.push_str(&format!("; use {}", found.instead));
        }
        Some(text)
    }
}

impl Deprecation {
    pub const fn new(version: &'static str, since: u8) -> Self {
        Self { version, since, until: None, instead: "" }
    }

    /// Gone in a release.
    pub const fn until(self, release: u8) -> Self {
        Self { until: Some(release), ..self }
    }

    /// What to use from now on.
    pub const fn instead(self, heir: &'static str) -> Self {
        Self { instead: heir, ..self }
    }
}

#[cfg(test)]
mod tests {
    fn of(group: &str, version: &str, plural: &str) -> Option<String> {
        crate::deprecation(facts::resource(group, version, plural).expect("a resource"))
    }

    #[test]
    fn old_versions_are_named_with_their_end_and_their_heir() {
        let text = |group, version, plural| of(group, version, plural).unwrap_or_default();
        assert_eq!(
            text("", "v1", "endpoints"),
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
        );
        assert_eq!(
            text("resource.k8s.io", "v1beta2", "deviceclasses"),
            "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+"
        );
        assert_eq!(of("", "v1", "pods"), None);
    }

    /// Nobody serves it any more, and upstream's API server stores definitions in it.
    const STORED_BY_UPSTREAM: &str = "apiextensions.k8s.io/v1beta1";

    #[test]
    fn every_row_is_about_a_kind_that_there_is() {
        for (group, kinds) in crate::GROUPS {
            let known = facts::table().group(group).expect("a group");
            for row in *kinds {
                let named = |version: &facts::Version| match row.plural {
                    "" => facts::type_of(group, &version.name, row.kind).is_some(),
                    plural => facts::resource(group, &version.name, plural).is_some_and(|facts| facts.kind == row.kind),
                };
                assert!(known.versions.iter().any(named), "{group} {} {}", row.plural, row.kind);
                let versions: Vec<&str> = known.versions.iter().map(|version| &*version.name).collect();
                for deprecation in row.deprecations {
                    assert!(versions.contains(&deprecation.version), "{group} {} {}", row.kind, deprecation.version);
                }
                for super::Conversion { from, to, .. } in row.conversions {
                    for version in [from, to] {
                        let parsed = machinery::gvk::GroupVersion::parse(version).expect("an apiVersion");
                        let is_served = facts::kind(&parsed.group, &parsed.version, row.kind).is_some();
                        assert!(is_served || *version == STORED_BY_UPSTREAM, "{version} {}", row.kind);
                    }
                }
            }
        }
    }
}
