//! Whom a client believes: servers that an authority vouches for and, as Go's clients have it, servers whose certificate *is*
//! one of the authorities. Many webhooks sign their own certificate and hand it out as the authority to believe; often it
//! says that it may vouch for others, which rustls alone takes for a reason to refuse it as a server's.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use trust::{Judge, Proof, Shown};

use crate::certificate::Certificate;
use crate::error::Error;
use crate::usage::Usage;

/// Believes the authorities in PEM. A bundle without a certificate is refused: nobody could be believed.
pub fn trusting(authorities: &str) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    let mut themselves = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten() {
        roots.add(certificate.clone()).map_err(|error| Error::Tls(error.to_string()))?;
        themselves.push(certificate);
    }
    if roots.is_empty() {
        return Err(Error::NotPem("certificate"));
    }
    let provider = Arc::new(ring::default_provider());
    let proof = Proof::Checked(provider.signature_verification_algorithms);
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| Error::Tls(error.to_string()))?;
    Ok(trust::verifier(Trust { chains, themselves }, proof))
}

#[derive(Debug)]
struct Trust {
    chains: Arc<WebPkiServerVerifier>,
    themselves: Vec<CertificateDer<'static>>,
}

impl Judge for Trust {
    fn judge(&self, shown: Shown<'_>) -> Result<(), rustls::Error> {
        let Shown { certificate, intermediates, name, ocsp, now } = shown;
        // The common case first: a chain to an authority.
        let refused = match self.chains.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if !self.themselves.iter().any(|own| own == certificate) {
            return Err(refused);
        }
        // It is trusted by itself: what is left to ask is whether it is for this server, for servers at all, and for now.
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let malformed = |_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let certificate = Certificate::from_der(certificate).map_err(malformed)?;
        let usages = &certificate.extended_usages;
        if !usages.is_empty() && !usages.contains(&Usage::SERVER_AUTH) && !usages.contains(&Usage::ANY) {
            return Err(refused);
        }
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let now = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        if now < certificate.not_before {
            return Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYet));
        }
        if now > certificate.not_after {
            return Err(rustls::Error::InvalidCertificate(CertificateError::Expired));
        }
        Ok(())
    }
}

/// Believes everybody: for servers of whom nothing is known beforehand, as a pod behind a proxy.
pub fn trusting_everybody() -> Arc<dyn ServerCertVerifier> {
    trust::verifier(trust::Everybody, Proof::Waived)
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::{ServerName, UnixTime};

    use super::*;

    /// Signed by itself for 127.0.0.1, says that it is an authority, valid for a hundred years from November 2026.
    const ITSELF: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBiTCCATCgAwIBAgIUb4cit5vzU0DrbPa/uBpIvlzvs1owCgYIKoZIzj0EAwIw\n\
        ETEPMA0GA1UEAwwGaXRzZWxmMCAXDTI2MTExNjA1MjAxMloYDzIxMjYxMDIzMDUy\n\
        MDEyWjARMQ8wDQYDVQQDDAZpdHNlbGYwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
        AARG0FwEz6CB85mMVGWeGNI9fegbquP57LssBWErh6+WBo/fzF0BfL0sqUktkPAr\n\
        t/Ud8qJbLBzYqHHiqf6zaxiPo2QwYjAdBgNVHQ4EFgQU2l91bgpS/+PGjSaemtOb\n\
        PnEMiHEwHwYDVR0jBBgwFoAU2l91bgpS/+PGjSaemtObPnEMiHEwDwYDVR0TAQH/\n\
        BAUwAwEB/zAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49BAMCA0cAMEQCIFg5N15u\n\
        1lhysVoILFUJRhJqf2fp7Rckw924ozOnh7C9AiBjtvqVNXcJbs6Wb/4H9R37zfWa\n\
        q0rT4iYPerO9CJ0qBg==\n\
        -----END CERTIFICATE-----";

    fn check(authorities: &str, shown: &str, name: &str, at: &str) -> Result<(), rustls::Error> {
        let shown = CertificateDer::from_pem_slice(shown.as_bytes()).expect("a certificate");
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let at: Timestamp = at.parse().expect("a time");
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at.as_second().unsigned_abs()));
        let trust = trusting(authorities).expect("authorities");
        trust.verify_server_cert(&shown, &[], &name, &[], now).map(|_| ())
    }

    #[test]
    fn a_certificate_that_is_its_own_authority_is_believed_by_name_and_in_its_time() {
        let invalid = rustls::Error::InvalidCertificate;
        assert_eq!(check(ITSELF, ITSELF, "127.0.0.1", "2027-01-01T00:00:00Z"), Ok(()));
        assert!(check(ITSELF, ITSELF, "127.0.0.2", "2027-01-01T00:00:00Z").is_err());
        assert_eq!(
            check(ITSELF, ITSELF, "127.0.0.1", "2020-01-01T00:00:00Z"),
            Err(invalid(CertificateError::NotValidYet))
        );
        assert_eq!(check(ITSELF, ITSELF, "127.0.0.1", "2199-01-01T00:00:00Z"), Err(invalid(CertificateError::Expired)));
        // Another authority's word for nobody.
        let key = crate::PrivateKey::generate().expect("a key");
        let now = "2026-01-01T00:00:00Z".parse().expect("a time");
        let lifetime = std::time::Duration::from_secs(10 * 365 * 24 * 3600);
        let other = crate::Authority::new("other", key, now, lifetime).expect("an authority");
        assert!(check(&other.certificate().to_pem(), ITSELF, "127.0.0.1", "2027-01-01T00:00:00Z").is_err());
        assert!(matches!(trusting("nothing"), Err(Error::NotPem(_))));
    }
}
