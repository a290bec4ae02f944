//! How a client of TLS judges a server: whether to believe the certificate, which differs, and whether its holder proves to hold it,
//! which does not.
//!
//! rustls asks five questions of whoever verifies. Four of them are about the proof and are answered here, once; what is left to
//! decide is a [`Judge`].

use std::fmt::Debug;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// What a server shows, to whom it should belong, and when.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    pub certificate: &'a CertificateDer<'a>,
    pub intermediates: &'a [CertificateDer<'a>],
    pub name: &'a ServerName<'a>,
    pub ocsp: &'a [u8],
    pub now: UnixTime,
}

/// Decides whether a certificate is believed.
pub trait Judge: Debug + Send + Sync + 'static {
    fn judge(&self, shown: Shown<'_>) -> Result<(), Error>;
}

/// Believes every certificate.
#[derive(Debug, Clone, Copy)]
pub struct Everybody;

impl Judge for Everybody {
    fn judge(&self, _: Shown<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// Whether a server has to prove that it holds the key of what it shows.
#[derive(Debug, Clone, Copy)]
pub enum Proof {
    Checked(WebPkiSupportedAlgorithms),
    /// Whoever is believed whatever they show need not prove to hold it either, so certificates that cannot be read, and keys that
    /// this build cannot check, are as good as any.
    Waived,
}

/// A verifier as rustls takes it.
pub fn verifier(judge: impl Judge, proof: Proof) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Verifier { judge, proof })
}

#[derive(Debug)]
struct Verifier<J> {
    judge: J,
    proof: Proof,
}

impl<J: Judge> ServerCertVerifier for Verifier<J> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Shown { certificate, intermediates, name, ocsp, now };
        self.judge.judge(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proof.check(|algorithms| verify_tls12_signature(message, certificate, signed, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proof.check(|algorithms| verify_tls13_signature(message, certificate, signed, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        match &self.proof {
            Proof::Checked(algorithms) => algorithms.supported_schemes(),
            Proof::Waived => EVERY_SCHEME.to_vec(),
        }
    }
}

impl Proof {
    fn check(
        &self,
        check: impl FnOnce(&WebPkiSupportedAlgorithms) -> Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self {
            Self::Checked(algorithms) => check(algorithms),
            Self::Waived => Ok(HandshakeSignatureValid::assertion()),
        }
    }
}

/// What a server may sign with where nobody looks at the signature.
const EVERY_SCHEME: [SignatureScheme; 11] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA1,
];

#[cfg(test)]
mod tests {
    use rustls::crypto::ring;

    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl Judge for Nobody {
        fn judge(&self, _: Shown<'_>) -> Result<(), Error> {
            Err(Error::General("nobody".to_owned()))
        }
    }

    fn is_believed(verifier: &dyn ServerCertVerifier) -> bool {
        let shown = CertificateDer::from(vec![1, 2, 3]);
        let name = ServerName::try_from("a").expect("a name");
        verifier.verify_server_cert(&shown, &[], &name, &[], UnixTime::since_unix_epoch(Default::default())).is_ok()
    }

    #[test]
    fn the_judge_decides_and_the_proof_says_what_may_be_signed_with() {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let checked = verifier(Everybody, Proof::Checked(algorithms));
        let waived = verifier(Everybody, Proof::Waived);
        assert!(is_believed(&*checked) && is_believed(&*waived));
        assert!(!is_believed(&*verifier(Nobody, Proof::Waived)));
        let old = SignatureScheme::RSA_PKCS1_SHA1;
        assert!(waived.supported_verify_schemes().contains(&old) && !checked.supported_verify_schemes().contains(&old));
    }
}
