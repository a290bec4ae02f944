//! How a server that refuses in words meets its clients.
//!
//! Whose certificate has expired, or was signed by another authority, is to be told so by an answer (401, as upstream's server gives) and may still come
//! with a token: plug-ins of clients make a new certificate when they are answered so. TLS itself could only end the connection.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error as TlsError, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::cluster::Pair;
use crate::error::Error;
use crate::handshake::Handshake;
use crate::tls::{believing, serving};

/// Which clients are believed: those for whom an authority vouches.
#[derive(Clone)]
pub struct Clients(Arc<dyn ClientCertVerifier>);

impl Clients {
    /// The authorities, in PEM.
    pub fn new(authorities: &str, handshake: &Handshake) -> Result<Self, Error> {
        believing(authorities, handshake).map(Self)
    }

    /// Whether an authority vouches for a client, now: for the first of these certificates, by way of the others.
    pub fn believes(&self, shown: &[CertificateDer<'_>], now: Timestamp) -> Result<(), Error> {
        let Some((own, others)) = shown.split_first() else { return Err(Error::NotPem("certificate")) };
        let now = UnixTime::since_unix_epoch(now.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs());
        let verified = self.0.verify_client_cert(own, others, now);
        verified.map(|_| ()).map_err(|error| Error::Tls(error.to_string()))
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

/// The server's side of TLS, which takes whatever certificate a client shows and proves to hold, and who says which of them to believe.
#[derive(Clone)]
pub struct Reception {
    pub config: Arc<ServerConfig>,
    clients: Option<Clients>,
}

impl Reception {
    /// Shows a certificate, and believes clients for whom one of the authorities (PEM) vouches. Without an authority no client is asked for a certificate.
    pub fn new(pair: &Pair, authorities: &str, handshake: &Handshake) -> Result<Self, Error> {
        let clients = if authorities.is_empty() { None } else { Some(Clients::new(authorities, handshake)?) };
        let asking = clients.clone().map(|Clients(verifier)| Arc::new(Whoever(verifier)) as _);
        let config = serving(pair, asking, handshake)?;
        Ok(Self { config, clients })
    }

    /// As [`Clients::believes`], of a client that shows something: who shows nothing says nothing wrong.
    pub fn believes(&self, shown: &[CertificateDer<'_>], now: Timestamp) -> Result<(), Error> {
        match &self.clients {
            _ if shown.is_empty() => Ok(()),
            Some(clients) => clients.believes(shown, now),
            None => Err(Error::Tls("no authority vouches for clients here".to_owned())),
        }
    }
}

impl fmt::Debug for Reception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reception")
    }
}

/// Takes every certificate, and insists that the client holds its key.
#[derive(Debug)]
struct Whoever(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Whoever {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Authority, Leaf, PrivateKey, San, Subject};

    const DAY: Duration = Duration::from_secs(86_400);

    fn authority(name: &str, at: Timestamp) -> Authority {
        Authority::new(name, PrivateKey::generate().expect("a key"), at, 365 * DAY).expect("an authority")
    }

    fn issued(by: &Authority, leaf: &Leaf, at: Timestamp) -> Pair {
        let key = PrivateKey::generate().expect("a key");
        let certificate = by.issue(leaf, &key.public(), at).expect("a certificate");
        Pair { chain_pem: certificate.to_pem(), key_pem: key.to_pem().to_owned() }
    }

    fn der(pair: &Pair) -> Vec<CertificateDer<'static>> {
        let certificate = crate::Certificate::from_pem(&pair.chain_pem).expect("a certificate");
        vec![CertificateDer::from(certificate.to_der().to_vec())]
    }

    #[test]
    fn only_whom_an_authority_vouches_for_now_is_believed() {
        let then: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let (ours, others) = (authority("ours", then), authority("others", then));
        let server = Leaf::server(Subject::new("server", []), vec![San::host("server")], 365 * DAY);
        let client = Leaf::client(Subject::new("bob", []), DAY);
        let reception =
            Reception::new(&issued(&ours, &server, then), &ours.certificate().to_pem(), &Handshake::default())
                .expect("a reception");
        let (later, long_after) = (then + DAY / 2, then + 2 * DAY);
        let bob = der(&issued(&ours, &client, then));
        assert!(reception.believes(&bob, later).is_ok());
        assert!(reception.believes(&bob, long_after).is_err(), "it has expired");
        assert!(reception.believes(&bob, then - DAY).is_err(), "it is not valid yet");
        assert!(reception.believes(&der(&issued(&others, &client, then)), later).is_err(), "others signed it");
        assert!(reception.believes(&der(&issued(&ours, &server, then)), later).is_err(), "it is for servers");
        assert!(reception.believes(&[], later).is_ok(), "who shows nothing says nothing wrong");
        let clients = Clients::new(&ours.certificate().to_pem(), &Handshake::default()).expect("clients");
        assert!(clients.believes(&bob, later).is_ok() && clients.believes(&[], later).is_err());
        let nobodys = Reception::new(&issued(&ours, &server, then), "", &Handshake::default()).expect("a reception");
        assert!(nobodys.believes(&[], later).is_ok(), "nobody is asked");
        assert!(nobodys.believes(&bob, later).is_err(), "and nobody is believed");
        assert!(Clients::new("", &Handshake::default()).is_err(), "nobody could be believed");
    }
}
