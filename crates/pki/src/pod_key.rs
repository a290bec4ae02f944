//! Keys of pods: of every type that a pod may ask for, with a request that proves possession and says nothing else.
//!
//! They are made by AWS-LC because ring makes no RSA keys and knows no P-521. Nothing else of the cluster uses it but the
//! verification of such requests.

use std::str::FromStr;

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
};
use der::Decode as _;
use der::asn1::{Any, BitString, Null, ObjectIdentifier};
use x509_cert::{AlgorithmIdentifier, SubjectPublicKeyInfo};

use crate::error::Error;
use crate::key::{self, pem};
use crate::request;

/// What kind of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// RSA of 3072 bits.
    Rsa3072,
    /// RSA of 4096 bits.
    Rsa4096,
    /// ECDSA on the curve P-256.
    EcdsaP256,
    /// ECDSA on the curve P-384.
    EcdsaP384,
    /// ECDSA on the curve P-521.
    EcdsaP521,
    Ed25519,
}

impl FromStr for KeyType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(match text {
            "RSA3072" => Self::Rsa3072,
            "RSA4096" => Self::Rsa4096,
            "ECDSAP256" => Self::EcdsaP256,
            "ECDSAP384" => Self::EcdsaP384,
            "ECDSAP521" => Self::EcdsaP521,
            "ED25519" => Self::Ed25519,
            other => return Err(Error::Key(format!("unknown key type {other:?}"))),
        })
    }
}

/// A key made for a pod.
pub struct PodKey {
    /// PKCS#8 in PEM. Secret.
    pub key: String,
    /// A PKCS#10 request in DER: an empty subject, the public half, and a signature.
    pub request: Vec<u8>,
}

impl PodKey {
    /// A new key. RSA takes a processor for a while.
    pub fn generate(kind: KeyType) -> Result<Self, Error> {
        match kind {
            KeyType::Rsa3072 => Self::rsa(KeySize::Rsa3072),
            KeyType::Rsa4096 => Self::rsa(KeySize::Rsa4096),
            KeyType::EcdsaP256 => Self::ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, key::ECDSA_SHA256),
            KeyType::EcdsaP384 => Self::ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, key::ECDSA_SHA384),
            KeyType::EcdsaP521 => Self::ecdsa(&ECDSA_P521_SHA512_ASN1_SIGNING, key::ECDSA_SHA512),
            KeyType::Ed25519 => Self::ed25519(),
        }
    }

    fn rsa(size: KeySize) -> Result<Self, Error> {
        let made = RsaKeyPair::generate(size).map_err(failed)?;
        let private: Pkcs8V1Der<'_> = made.as_der().map_err(failed)?;
        let public: PublicKeyX509Der<'_> = made.public_key().as_der().map_err(failed)?;
        let algorithm = AlgorithmIdentifier { oid: key::RSA_SHA256, parameters: Some(Any::from(Null)) };
        Self::new(private.as_ref(), public.as_ref(), algorithm, |message| {
            let mut signature = vec![0; made.public_modulus_len()];
            made.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)?;
            Ok(signature)
        })
    }

    fn ecdsa(curve: &'static EcdsaSigningAlgorithm, oid: ObjectIdentifier) -> Result<Self, Error> {
        let made = EcdsaKeyPair::generate(curve).map_err(failed)?;
        let private = made.to_pkcs8v1().map_err(failed)?;
        let public: PublicKeyX509Der<'_> = made.public_key().as_der().map_err(failed)?;
        let algorithm = AlgorithmIdentifier { oid, parameters: None };
        Self::new(private.as_ref(), public.as_ref(), algorithm, |message| {
            Ok(made.sign(&SystemRandom::new(), message)?.as_ref().to_vec())
        })
    }

    fn ed25519() -> Result<Self, Error> {
        let made = Ed25519KeyPair::generate().map_err(failed)?;
        let private = made.to_pkcs8v1().map_err(failed)?;
        let public: PublicKeyX509Der<'_> = made.public_key().as_der().map_err(failed)?;
        let algorithm = AlgorithmIdentifier { oid: key::ED25519, parameters: None };
        Self::new(private.as_ref(), public.as_ref(), algorithm, |message| Ok(made.try_sign(message)?.as_ref().to_vec()))
    }

    fn new(
        private: &[u8],
        public: &[u8],
        algorithm: AlgorithmIdentifier,
        sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, Unspecified>,
    ) -> Result<Self, Error> {
        let public = SubjectPublicKeyInfo::from_der(public).map_err(Error::der("public key"))?;
        let sign =
            |message: &[u8]| BitString::from_bytes(&sign(message).map_err(failed)?).map_err(Error::der("signature"));
        let request = request::signed(Default::default(), Default::default(), public, algorithm, sign)?;
        Ok(Self { key: pem("PRIVATE KEY", private), request })
    }
}

fn failed(_: Unspecified) -> Error {
    Error::Randomness
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PublicKey, Request};

    #[test]
    fn keys_of_every_type_prove_possession() {
        for (name, bits) in [
            ("RSA3072", 398),
            ("RSA4096", 526),
            ("ECDSAP256", 65),
            ("ECDSAP384", 97),
            ("ECDSAP521", 133),
            ("ED25519", 32),
        ] {
            let made = PodKey::generate(name.parse().unwrap()).unwrap();
            let request = Request::from_der(&made.request).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((request.subject.common_name.as_str(), request.sans.len()), ("", 0), "{name}");
            assert_eq!(request.public_key.bits().len(), bits, "{name}");
            assert!(made.key.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{name}");
            let mut forged = made.request.clone();
            *forged.last_mut().unwrap() ^= 1;
            assert!(Request::from_der(&forged).is_err(), "{name}");
            let other = PodKey::generate(KeyType::Ed25519).unwrap();
            let other: PublicKey = Request::from_der(&other.request).unwrap().public_key;
            assert_ne!(other, request.public_key);
        }
        assert!("RSA2048".parse::<KeyType>().is_err());
    }
}
