//! What a server takes part in of TLS, where an administrator wants less than there is: `--tls-min-version`, `--tls-cipher-suites`,
//! `--tls-curve-preferences`, `--disable-http2-serving`, under Go's names for all of it.

use rustls::crypto::{CryptoProvider, ring};
use rustls::{NamedGroup, SupportedProtocolVersion, version};

/// The versions there are.
static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
static LATEST: [&SupportedProtocolVersion; 1] = [&version::TLS13];

/// What is left of TLS; everything by default.
#[derive(Debug, Clone, Default)]
pub struct Handshake {
    only_1_3: bool,
    /// Those of TLS 1.2; empty for all. Those of TLS 1.3 are not chosen, as Go does not let them be.
    suites: Vec<&'static str>,
    /// Empty for all.
    groups: Vec<NamedGroup>,
    /// Whether HTTP/2 is not offered.
    only_http1: bool,
}

impl Handshake {
    /// `--disable-http2-serving`.
    pub fn without_http2(mut self, without: bool) -> Self {
        self.only_http1 = without;
        self
    }

    /// `--tls-min-version`.
    pub fn at_least(mut self, name: &str) -> Result<Self, String> {
        self.only_1_3 = match name {
            "VersionTLS12" => false,
            "VersionTLS13" => true,
            "VersionTLS10" | "VersionTLS11" => {
                return Err(format!("{name} is not spoken here: clients need TLS 1.2 or 1.3"));
            }
            _ => return Err(format!("unknown tls version {name:?}")),
        };
        Ok(self)
    }

    /// `--tls-cipher-suites`.
    pub fn with_suites(mut self, names: &[String]) -> Result<Self, String> {
        let known: Vec<&'static str> =
            ring::ALL_CIPHER_SUITES.iter().filter_map(|suite| suite.suite().as_str()).collect();
        for name in names {
            // Go knows two of them by shorter names, too, and those of TLS 1.3 by other ones.
            let full = if name.ends_with("CHACHA20_POLY1305") { format!("{name}_SHA256") } else { name.clone() };
            let full = match full.strip_prefix("TLS_") {
                Some(rest) if !rest.contains("_WITH_") => format!("TLS13_{rest}"),
                _ => full,
            };
            let found = known.iter().find(|known| **known == full);
            self.suites.push(found.ok_or_else(|| {
                format!("Cipher suite {name} not supported or doesn't exist; there are {}", known.join(", "))
            })?);
        }
        Ok(self)
    }

    /// `--tls-curve-preferences`: the numbers of groups.
    pub fn with_groups(mut self, numbers: &[u16]) -> Result<Self, String> {
        for number in numbers {
            let known = ring::ALL_KX_GROUPS.iter().map(|group| group.name());
            let found = known.into_iter().find(|group| u16::from(*group) == *number);
            self.groups.push(found.ok_or_else(|| {
                format!("curve {number} is not supported: there are 23 (P-256), 24 (P-384) and 29 (X25519)")
            })?);
        }
        Ok(self)
    }

    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        if self.only_1_3 { &LATEST } else { &BOTH }
    }

    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            provider.cipher_suites.retain(|suite| {
                suite.tls13().is_some() || suite.suite().as_str().is_some_and(|name| self.suites.contains(&name))
            });
        }
        if !self.groups.is_empty() {
            provider.kx_groups.retain(|group| self.groups.contains(&group.name()));
        }
        provider
    }

    pub(crate) fn protocols(&self) -> Vec<Vec<u8>> {
        let all: &[&[u8]] = if self.only_http1 { &[b"http/1.1"] } else { &[b"h2", b"http/1.1"] };
        all.iter().map(|name| name.to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn go_s_names_choose_what_is_left() {
        let all = Handshake::default();
        assert_eq!((all.versions().len(), all.provider().cipher_suites.len(), all.protocols().len()), (2, 9, 2));
        let some = Handshake::default()
            .with_suites(&names(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]))
            .and_then(|some| some.with_groups(&[29, 23]))
            .and_then(|some| some.at_least("VersionTLS13"))
            .expect("Go's names")
            .without_http2(true);
        assert_eq!((some.versions().len(), some.provider().cipher_suites.len(), some.protocols().len()), (1, 5, 1));
        assert_eq!(some.provider().kx_groups.len(), 2);
        assert!(Handshake::default().with_suites(&names(&["TLS_AES_128_GCM_SHA256"])).is_ok());
    }

    #[test]
    fn what_there_is_not_is_refused_by_name() {
        let suites = |name: &str| Handshake::default().with_suites(&names(&[name])).expect_err(name);
        assert!(suites("TLS_RSA_WITH_AES_128_CBC_SHA").starts_with("Cipher suite TLS_RSA_WITH_AES_128_CBC_SHA not"));
        assert!(Handshake::default().with_groups(&[25]).expect_err("P-521").starts_with("curve 25 is not supported"));
        let version = |name: &str| Handshake::default().at_least(name).expect_err(name);
        assert!(version("VersionTLS10").contains("TLS 1.2 or 1.3"));
        assert_eq!(version("TLS12"), "unknown tls version \"TLS12\"");
    }
}
