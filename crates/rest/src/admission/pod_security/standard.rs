//! The words of the pod security standards: levels and versions.

use std::fmt;

/// A version of the standards: what a level forbids changes with time, and a namespace may pin it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(Option<u16>);

impl Version {
    pub const LATEST: Self = Self(None);

    /// Reads `latest` or `v1.30`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::LATEST);
        }
        let minor = text.strip_prefix("v1.")?;
        let plain = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit()));
        minor.parse().ok().filter(|_| plain).map(|minor| Self(Some(minor)))
    }

    /// Whether what came with a minor version counts.
    pub fn is_since(self, minor: u16) -> bool {
        self.0.is_none_or(|own| own >= minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("latest"),
            Some(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// A level of the standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Privileged,
    /// No known privilege escalation.
    Baseline,
    Restricted,
}

impl Level {
    /// Reads a label's value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }

    /// As labels write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}
