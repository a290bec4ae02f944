//! Private keys (ECDSA P-256, made here; RSA, brought along), the signatures they make, and their public halves.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use der::asn1::{Any, BitString, Null, ObjectIdentifier};
use der::{Decode as _, Encode as _};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::rsa::KeyPair as RsaKeyPair;
use ring::signature::{
    self, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey, VerificationAlgorithm,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use x509_cert::{AlgorithmIdentifier, SubjectPublicKeyInfo};

use crate::error::Error;

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");
pub(crate) const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
pub(crate) const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
pub(crate) const ECDSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
pub(crate) const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const RSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12");
const RSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13");
pub(crate) const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// A private key that can sign certificates and tokens.
pub struct PrivateKey {
    pem: String,
    signer: Signer,
    random: SystemRandom,
}

enum Signer {
    /// For certificates (DER) and for tokens (fixed size); ring ties a key to one of the two forms.
    P256 {
        certificates: Box<EcdsaKeyPair>,
        tokens: Box<EcdsaKeyPair>,
    },
    Rsa(Box<RsaKeyPair>),
}

impl PrivateKey {
    /// A new ECDSA P-256 key.
    pub fn generate() -> Result<Self, Error> {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
        let pkcs8 = pkcs8.map_err(|_| Error::Randomness)?;
        Self::from_pem(&pem("PRIVATE KEY", pkcs8.as_ref()))
    }

    /// Reads a key: PKCS#8 (P-256 or RSA) or PKCS#1 (RSA).
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        let random = SystemRandom::new();
        let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| Error::NotPem("private key"))?;
        let rejected = |error: ring::error::KeyRejected| Error::Key(error.to_string());
        let signer = match &der {
            PrivateKeyDer::Pkcs1(key) => {
                Signer::Rsa(Box::new(RsaKeyPair::from_der(key.secret_pkcs1_der()).map_err(rejected)?))
            }
            PrivateKeyDer::Pkcs8(key) => {
                let pkcs8 = key.secret_pkcs8_der();
                match EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &random) {
                    Ok(certificates) => {
                        let tokens = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random);
                        Signer::P256 {
                            certificates: Box::new(certificates),
                            tokens: Box::new(tokens.map_err(rejected)?),
                        }
                    }
                    Err(_) => Signer::Rsa(Box::new(RsaKeyPair::from_pkcs8(pkcs8).map_err(rejected)?)),
                }
            }
            _ => return Err(Error::Key("only PKCS#8 and PKCS#1 are supported".to_owned())),
        };
        Ok(Self { pem: text.to_owned(), signer, random })
    }

    /// The key as PEM. Secret.
    pub fn to_pem(&self) -> &str {
        &self.pem
    }

    pub fn public(&self) -> PublicKey {
        let (algorithm, bits) = match &self.signer {
            Signer::P256 { certificates, .. } => {
                let curve = Any::encode_from(&P256).expect("an object identifier always encodes");
                (
                    AlgorithmIdentifier { oid: EC_PUBLIC_KEY, parameters: Some(curve) },
                    certificates.public_key().as_ref(),
                )
            }
            Signer::Rsa(key) => {
                (AlgorithmIdentifier { oid: RSA, parameters: Some(Any::from(Null)) }, key.public_key().as_ref())
            }
        };
        let subject_public_key = BitString::from_bytes(bits).expect("a public key is far below DER's size limit");
        PublicKey(SubjectPublicKeyInfo { algorithm, subject_public_key })
    }

    /// What a certificate signed by this key says about its signature.
    pub(crate) fn algorithm(&self) -> AlgorithmIdentifier {
        match &self.signer {
            Signer::P256 { .. } => AlgorithmIdentifier { oid: ECDSA_SHA256, parameters: None },
            Signer::Rsa(_) => AlgorithmIdentifier { oid: RSA_SHA256, parameters: Some(Any::from(Null)) },
        }
    }

    /// A signature in the form that certificates carry.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<BitString, Error> {
        let signature = match &self.signer {
            Signer::P256 { certificates, .. } => {
                certificates.sign(&self.random, message).map_err(|_| Error::Randomness)?.as_ref().to_vec()
            }
            Signer::Rsa(key) => self.sign_rsa(key, message)?,
        };
        BitString::from_bytes(&signature).map_err(Error::der("signature"))
    }

    /// The JWS algorithm of this key's tokens: `ES256` or `RS256`.
    pub fn jws_algorithm(&self) -> &'static str {
        match &self.signer {
            Signer::P256 { .. } => "ES256",
            Signer::Rsa(_) => "RS256",
        }
    }

    /// A signature in the form that tokens carry.
    pub fn sign_jws(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match &self.signer {
            Signer::P256 { tokens, .. } => {
                tokens.sign(&self.random, message).map(|made| made.as_ref().to_vec()).map_err(|_| Error::Randomness)
            }
            Signer::Rsa(key) => self.sign_rsa(key, message),
        }
    }

    fn sign_rsa(&self, key: &RsaKeyPair, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut made = vec![0; key.public().modulus_len()];
        key.sign(&signature::RSA_PKCS1_SHA256, &self.random, message, &mut made).map_err(|_| Error::Randomness)?;
        Ok(made)
    }
}

impl fmt::Debug for PrivateKey {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.jws_algorithm())
    }
}

/// A public key with its algorithm (`SubjectPublicKeyInfo`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(pub(crate) SubjectPublicKeyInfo);

/// `sha256:` and the hash of some bytes, in hexadecimal digits.
pub fn fingerprint(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    hash.as_ref().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

impl PublicKey {
    /// Reads a `PUBLIC KEY` in PEM.
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        let der = rustls_pki_types::SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes())
            .map_err(|_| Error::NotPem("public key"))?;
        SubjectPublicKeyInfo::from_der(&der).map(Self).map_err(Error::der("public key"))
    }

    /// Every key of a PEM file: public ones, and the public halves of private ones and of certificates.
    pub fn all_from_pem(text: &str) -> Vec<Self> {
        let mut keys = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("-----BEGIN ") {
            let block = &rest[start..];
            let Some(end) = block.find("-----END ") else { break };
            let end = block[end..].find('\n').map_or(block.len(), |line| end + line);
            let (block, after) = block.split_at(end);
            rest = after;
            let key = Self::from_pem(block)
                .or_else(|_| PrivateKey::from_pem(block).map(|key| key.public()))
                .or_else(|_| crate::Certificate::from_pem(block).map(|certificate| certificate.public_key));
            keys.extend(key);
        }
        keys
    }

    pub fn to_der(&self) -> Vec<u8> {
        self.0.to_der().expect("what was decoded or built by us encodes")
    }

    pub fn to_pem(&self) -> String {
        pem("PUBLIC KEY", &self.to_der())
    }

    /// How tokens name the key that signed them: a hash of the key, base64url.
    pub fn key_id(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, &self.to_der()))
    }

    /// What subject and authority key identifiers hold: 160 bits of a hash of the key.
    pub(crate) fn identifier(&self) -> Vec<u8> {
        digest(&SHA256, self.bits()).as_ref()[..20].to_vec()
    }

    /// The key in one line, by which others recognize it: `sha256:` and the hash of the whole structure, as kubeadm and
    /// HTTP public key pins have it.
    pub fn pin(&self) -> String {
        let structure = self.0.to_der().expect("a key that was read or made encodes");
        fingerprint(&structure)
    }

    /// The bare key: an uncompressed point for ECDSA, an `RSAPublicKey` for RSA.
    pub fn bits(&self) -> &[u8] {
        self.0.subject_public_key.raw_bytes()
    }

    /// Verifies a token's signature made with `ES256` or `RS256`.
    pub fn verify_jws(&self, algorithm: &str, message: &[u8], made: &[u8]) -> bool {
        let verifier: &dyn VerificationAlgorithm = match algorithm {
            "ES256" if self.is_curve(P256) => &signature::ECDSA_P256_SHA256_FIXED,
            "RS256" if self.0.algorithm.oid == RSA => &signature::RSA_PKCS1_2048_8192_SHA256,
            _ => return false,
        };
        UnparsedPublicKey::new(verifier, self.bits()).verify(message, made).is_ok()
    }

    /// Verifies a certificate's or a request's signature.
    pub(crate) fn verify(
        &self,
        what: &'static str,
        algorithm: &AlgorithmIdentifier,
        message: &[u8],
        made: &[u8],
    ) -> Result<(), Error> {
        let wrong = Error::Signature(what);
        if algorithm.oid == ECDSA_SHA512 && self.is_curve(P521) {
            let key = aws_lc_rs::signature::UnparsedPublicKey::new(
                &aws_lc_rs::signature::ECDSA_P521_SHA512_ASN1,
                self.bits(),
            );
            return key.verify(message, made).map_err(|_| wrong);
        }
        let verifier: &dyn VerificationAlgorithm = match algorithm.oid {
            ECDSA_SHA256 if self.is_curve(P256) => &signature::ECDSA_P256_SHA256_ASN1,
            ECDSA_SHA384 if self.is_curve(P256) => &signature::ECDSA_P256_SHA384_ASN1,
            ECDSA_SHA256 if self.is_curve(P384) => &signature::ECDSA_P384_SHA256_ASN1,
            ECDSA_SHA384 if self.is_curve(P384) => &signature::ECDSA_P384_SHA384_ASN1,
            RSA_SHA256 if self.0.algorithm.oid == RSA => &signature::RSA_PKCS1_2048_8192_SHA256,
            RSA_SHA384 if self.0.algorithm.oid == RSA => &signature::RSA_PKCS1_2048_8192_SHA384,
            RSA_SHA512 if self.0.algorithm.oid == RSA => &signature::RSA_PKCS1_2048_8192_SHA512,
            ED25519 if self.0.algorithm.oid == ED25519 => &signature::ED25519,
            other => return Err(Error::Algorithm(other.to_string())),
        };
        UnparsedPublicKey::new(verifier, self.bits()).verify(message, made).map_err(|_| wrong)
    }

    fn is_curve(&self, curve: ObjectIdentifier) -> bool {
        let AlgorithmIdentifier { oid, parameters } = &self.0.algorithm;
        *oid == EC_PUBLIC_KEY && parameters.as_ref().is_some_and(|parameters| parameters.decode_as() == Ok(curve))
    }
}

/// PEM as everybody writes it: 64 characters a line.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.push_str(str::from_utf8(line).expect("base64 is ASCII"));
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_pem_and_its_signatures_verify() {
        let key = PrivateKey::generate().expect("a key");
        let again = PrivateKey::from_pem(key.to_pem()).expect("the same key");
        assert_eq!(key.public(), again.public());
        assert_eq!(PublicKey::from_pem(&key.public().to_pem()).expect("a public key"), key.public());
        let token = again.sign_jws(b"header.payload").expect("a signature");
        assert_eq!(token.len(), 64);
        assert!(key.public().verify_jws("ES256", b"header.payload", &token));
        assert!(!key.public().verify_jws("ES256", b"header.other", &token));
        assert!(!key.public().verify_jws("RS256", b"header.payload", &token));
        assert!(!key.public().verify_jws("none", b"header.payload", b""));
        assert_eq!(format!("{key:?}"), "PrivateKey(ES256)");
    }

    #[test]
    fn a_file_may_hold_several_keys() {
        let (one, other) = (PrivateKey::generate().expect("a key"), PrivateKey::generate().expect("a key"));
        let text = format!("# old\n{}\n{}junk", one.public().to_pem(), other.to_pem());
        assert_eq!(PublicKey::all_from_pem(&text), [one.public(), other.public()]);
        assert!(PublicKey::all_from_pem("-----BEGIN PUBLIC KEY-----\nAAAA").is_empty());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let cases = ["", "nonsense", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"];
        for text in cases {
            assert!(PrivateKey::from_pem(text).is_err(), "{text}");
            assert!(PublicKey::from_pem(text).is_err(), "{text}");
        }
    }
}
