//! JSON web tokens and keys: taking a token apart, and checking its signature. What the claims mean is others' business.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use machinery::Value;
use pki::PublicKey;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::json;

/// The longest token that is looked at.
const MAX_TOKEN: usize = 64 * 1024;

/// A token taken apart, its signature not yet checked.
pub struct Token<'a> {
    signed: &'a [u8],
    signature: Vec<u8>,
    /// How it says it was signed.
    pub algorithm: String,
    pub key_id: String,
    pub claims: Value,
}

impl<'a> Token<'a> {
    /// Takes it apart, if it is one.
    pub fn parse(text: &'a str) -> Option<Self> {
        if text.len() > MAX_TOKEN {
            return None;
        }
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header: Value = serde_json::from_slice(&BASE64.decode(header).ok()?).ok()?;
        let claims: Value = serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()?;
        // A header that must be understood and is not makes the whole token void.
        if header.get("crit").is_some() || !claims.is_object() {
            return None;
        }
        Some(Self {
            signed: signed.as_bytes(),
            signature: BASE64.decode(signature).ok()?,
            algorithm: header["alg"].as_str()?.to_owned(),
            key_id: header["kid"].as_str().unwrap_or_default().to_owned(),
            claims,
        })
    }

    /// Whether one of our own keys signed it.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        key.verify_jws(&self.algorithm, self.signed, &self.signature)
    }

    /// Whether a key out of a key set signed it.
    pub fn is_signed_with(&self, key: &Key) -> bool {
        key.verify(&self.algorithm, self.signed, &self.signature)
    }

    /// The audiences: one or several.
    pub fn audiences(&self) -> Vec<String> {
        strings(&self.claims["aud"])
    }
}

/// A claim that is one string or a list of strings.
pub fn strings(claim: &Value) -> Vec<String> {
    match claim {
        Value::String(one) => vec![one.clone()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// A public key out of a key set.
#[derive(Debug, Clone)]
pub struct Key {
    pub id: String,
    material: Material,
}

#[derive(Debug, Clone)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Key {
    /// Reads one; keys that are not for signatures, or of kinds we cannot check, are none.
    pub fn of(tree: &Value) -> Option<Self> {
        if tree["use"].as_str().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let part = |name: &str| BASE64.decode(tree[name].as_str()?).ok();
        let point = |length: usize| {
            let (x, y) = (part("x")?, part("y")?);
            (x.len() == length && y.len() == length).then(|| [&[4][..], &x[..], &y[..]].concat())
        };
        let material = match (tree["kty"].as_str()?, tree["crv"].as_str().unwrap_or_default()) {
            ("RSA", _) => Material::Rsa { n: part("n")?, e: part("e")? },
            ("EC", "P-256") => Material::P256(point(32)?),
            ("EC", "P-384") => Material::P384(point(48)?),
            ("OKP", "Ed25519") => Material::Ed25519(part("x")?),
            _ => return None,
        };
        Some(Self { id: tree["kid"].as_str().unwrap_or_default().to_owned(), material })
    }

    fn verify(&self, algorithm: &str, message: &[u8], made: &[u8]) -> bool {
        let plain = |algorithm: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, made).is_ok()
        };
        match (algorithm, &self.material) {
            ("ES256", Material::P256(point)) => plain(&signature::ECDSA_P256_SHA256_FIXED, point),
            ("ES384", Material::P384(point)) => plain(&signature::ECDSA_P384_SHA384_FIXED, point),
            ("EdDSA", Material::Ed25519(key)) => plain(&signature::ED25519, key),
            (algorithm, Material::Rsa { n, e }) => {
                let parameters = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, made).is_ok()
            }
            _ => false,
        }
    }
}

/// One of our own keys as a key set shows it, and the algorithm of its signatures.
pub fn publish(key: &PublicKey) -> Option<(Value, &'static str)> {
    let bits = key.bits();
    let (mut tree, algorithm) = match bits {
        [4, point @ ..] if point.len() == 64 => {
            let (x, y) = point.split_at(32);
            (json!({"kty": "EC", "crv": "P-256", "x": BASE64.encode(x), "y": BASE64.encode(y)}), "ES256")
        }
        _ => {
            let (n, e) = rsa(bits)?;
            (json!({"kty": "RSA", "n": BASE64.encode(n), "e": BASE64.encode(e)}), "RS256")
        }
    };
    tree["use"] = json!("sig");
    tree["alg"] = json!(algorithm);
    tree["kid"] = json!(key.key_id());
    Some((tree, algorithm))
}

/// Modulus and exponent of an `RSAPublicKey`: a sequence of two integers.
fn rsa(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (content, _) = element(der, 0x30)?;
    let (n, rest) = element(content, 0x02)?;
    let (e, _) = element(rest, 0x02)?;
    // DER puts a zero before a number whose first bit is set.
    Some((n.strip_prefix(&[0]).unwrap_or(n), e.strip_prefix(&[0]).unwrap_or(e)))
}

/// The content of a DER element of this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [first, length, rest @ ..] = der else { return None };
    if *first != tag {
        return None;
    }
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let digits = usize::from(long & 0x7f);
            if digits > 4 || rest.len() < digits {
                return None;
            }
            let (digits, rest) = rest.split_at(digits);
            (digits.iter().fold(0usize, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
    };
    (rest.len() >= length).then(|| rest.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(key: &pki::PrivateKey, header: Value, claims: Value) -> String {
        let signed = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = key.sign_jws(signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", BASE64.encode(signature))
    }

    #[test]
    fn a_published_key_verifies_what_its_owner_signed() {
        let key = pki::PrivateKey::generate().expect("a key");
        let (published, algorithm) = publish(&key.public()).expect("a key set's key");
        let read = Key::of(&published).expect("a key");
        assert_eq!(read.id, key.public().key_id());
        let text = sign(&key, json!({"alg": algorithm, "kid": read.id}), json!({"aud": ["a", "b"]}));
        let token = Token::parse(&text).expect("a token");
        assert!(token.is_signed_with(&read) && token.is_signed_by(&key.public()));
        assert_eq!(token.audiences(), ["a", "b"]);
        let other = Key::of(&publish(&pki::PrivateKey::generate().expect("a key").public()).expect("published").0);
        assert!(!token.is_signed_with(&other.expect("a key")));
    }

    #[test]
    fn unsigned_and_odd_tokens_are_nothing() {
        let key = pki::PrivateKey::generate().expect("a key");
        let none = format!("{}.{}.", BASE64.encode("{\"alg\":\"none\"}"), BASE64.encode("{}"));
        assert!(!Token::parse(&none).expect("it parses").is_signed_by(&key.public()));
        let critical = sign(&key, json!({"alg": "ES256", "crit": ["x"]}), json!({}));
        assert!(Token::parse(&critical).is_none());
        for text in ["", "a", "a.b", "a.b.c", "..", &format!("{}.x.y", "a".repeat(MAX_TOKEN))] {
            assert!(Token::parse(text).is_none(), "{text:.20}");
        }
        assert!(Key::of(&json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"})).is_none());
    }

    #[test]
    fn rsa_keys_are_read_out_of_their_der() {
        let der = [&[0x30, 0x82, 0x01, 0x0a, 0x02, 0x82, 0x01, 0x01, 0x00][..], &[0xab; 256], &[0x02, 0x03, 1, 0, 1]]
            .concat();
        let (n, e) = rsa(&der).expect("a key");
        assert_eq!((n.len(), e), (256, &[1, 0, 1][..]));
        assert!(rsa(&der[..20]).is_none() && rsa(&[]).is_none());
    }
}
