//! What upstream's components are told of TLS, once for all of ours.

use std::path::{Path, PathBuf};

use clap::Args;

/// Which option is wrong, and why.
pub type Wrong = (&'static str, String);

/// How connections are made safe.
#[derive(Debug, Clone, Default, Args)]
#[group(skip)]
#[command(next_help_heading = "TLS")]
pub struct Options {
    /// Certificate to serve with, and those between it and its authority, instead of one that is made here.
    ///
    /// Whoever connects has to believe its authority: kubeconfigs that a server writes name what the file has, nodes that join by a token
    /// believe the cluster's own authority alone. For further names beside the cluster's own there is --tls-sni-cert-key.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Cipher suites of TLS 1.2 that may be used, by Go's names [default: all that there are]. Those of TLS 1.3 always may.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// The oldest version that is spoken: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION")]
    pub tls_min_version: Option<String>,
    /// Groups for the exchange of keys, by their numbers: 23 (P-256), 24 (P-384), 29 (X25519) [default: all].
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub tls_curve_preferences: Vec<u16>,
    /// Speak HTTP/1.1 only.
    #[arg(long)]
    pub disable_http2_serving: bool,
}

impl Options {
    /// What is left of TLS.
    pub fn handshake(&self) -> Result<pki::Handshake, Wrong> {
        let mut handshake = pki::Handshake::default().without_http2(self.disable_http2_serving);
        if let Some(version) = self.tls_min_version.as_deref().filter(|version| !version.is_empty()) {
            handshake = handshake.at_least(version).map_err(|why| ("tls-min-version", why))?;
        }
        let handshake = handshake.with_suites(&self.tls_cipher_suites).map_err(|why| ("tls-cipher-suites", why))?;
        handshake.with_groups(&self.tls_curve_preferences).map_err(|why| ("tls-curve-preferences", why))
    }

    /// The files of the certificate to serve with, if there are some.
    pub fn files(&self) -> Option<Files> {
        let (certificate, key) = (self.tls_cert_file.clone()?, self.tls_private_key_file.clone()?);
        Some(Files { certificate, key })
    }
}

/// A certificate and its key on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Files {
    /// The directories that they are in.
    pub fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let folder = |file: &Path| match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        [folder(&self.certificate), folder(&self.key)].into_iter()
    }

    /// What they hold now.
    pub fn read(&self) -> Result<pki::Pair, String> {
        let read = |file: &Path| {
            std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
        };
        Ok(pki::Pair { chain_pem: read(&self.certificate)?, key_pem: read(&self.key)? })
    }
}

/// A certificate for some names: `--tls-sni-cert-key FILE,KEYFILE[:NAME,…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFiles {
    pub files: Files,
    /// In small letters; empty for those that the certificate has.
    pub names: Vec<String>,
}

/// Reads `--tls-sni-cert-key`.
pub fn named_files(text: &str) -> Result<NamedFiles, String> {
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let (certificate, key) = files.split_once(',').ok_or("expected comma separated certificate and key file paths")?;
    if certificate.is_empty() || key.is_empty() || key.contains(',') {
        return Err("expected comma separated certificate and key file paths".to_owned());
    }
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect();
    Ok(NamedFiles { files: Files { certificate: certificate.into(), key: key.into() }, names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_certificates_are_read_as_upstream_reads_them() {
        let read = |text: &str| named_files(text).map(|named| (named.files.certificate, named.files.key, named.names));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(read("a.crt,a.key"), Ok(("a.crt".into(), "a.key".into(), names(&[]))));
        let both = names(&["*.example.com", "b.example"]);
        assert_eq!(read("a.crt,a.key:*.Example.com,b.example"), Ok(("a.crt".into(), "a.key".into(), both)));
        for bad in ["", "a.crt", "a.crt,", "a,b,c", ",k:name"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mistakes_name_the_option() {
        let with = |options: Options| options.handshake().expect_err("a mistake").0;
        let version = Some("VersionTLS10".to_owned());
        assert_eq!(with(Options { tls_min_version: version, ..Options::default() }), "tls-min-version");
        let suites = vec!["TLS_RSA_WITH_RC4_128_SHA".to_owned()];
        assert_eq!(with(Options { tls_cipher_suites: suites, ..Options::default() }), "tls-cipher-suites");
        assert_eq!(with(Options { tls_curve_preferences: vec![25], ..Options::default() }), "tls-curve-preferences");
    }
}
