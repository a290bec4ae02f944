//! The ciphers whose keys are in the file: `aescbc`, `aesgcm`, `secretbox`. The bytes are upstream's.

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut as _, BlockEncryptMut as _, KeyIvInit as _};
use crypto_secretbox::XSalsa20Poly1305;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::Error;

const CBC_IV: usize = 16;
const GCM_NONCE: usize = 12;
const BOX_NONCE: usize = 24;

const SHORT: &str = "the stored data was shorter than the required size";

/// A cipher and its key.
#[derive(Clone)]
pub enum Cipher {
    /// AES in CBC mode with PKCS#7 padding; authenticates nothing.
    AesCbc(Vec<u8>),
    /// AES in Galois/Counter mode with random nonces.
    AesGcm(Vec<u8>),
    /// XSalsa20 and Poly1305.
    Secretbox(Vec<u8>),
}

/// Does something with the AES of a key's size, which was checked when the key was read.
macro_rules! by_size {
    ($key:expr, $aes:ident => $act:expr) => {
        match $key.len() {
            16 => {
                type $aes = Aes128;
                $act
            }
            24 => {
                type $aes = Aes192;
                $act
            }
            _ => {
                type $aes = Aes256;
                $act
            }
        }
    };
}

impl Cipher {
    /// The lengths a key may have.
    pub fn key_lengths(&self) -> &'static [usize] {
        match self {
            Self::AesCbc(_) | Self::AesGcm(_) => &[16, 24, 32],
            Self::Secretbox(_) => &[32],
        }
    }

    pub fn key(&self) -> &[u8] {
        match self {
            Self::AesCbc(key) | Self::AesGcm(key) | Self::Secretbox(key) => key,
        }
    }

    /// Seals something that belongs to `place`.
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = || Error::Open("the value cannot be encrypted".to_owned());
        match self {
            Self::AesCbc(key) => {
                let iv = random::<CBC_IV>()?;
                let sealed = by_size!(key, Aes => cbc::Encryptor::<Aes>::new_from_slices(key, &iv)
                    .map_err(|_| failed())?
                    .encrypt_padded_vec_mut::<Pkcs7>(plain));
                Ok([&iv[..], &sealed].concat())
            }
            Self::AesGcm(key) => {
                let nonce = random::<GCM_NONCE>()?;
                let payload = Payload { msg: plain, aad: place };
                let sealed = by_size!(key, Aes => AesGcm::<Aes, U12>::new_from_slice(key)
                    .map_err(|_| failed())?
                    .encrypt(&nonce.into(), payload));
                Ok([&nonce[..], &sealed.map_err(|_| failed())?].concat())
            }
            Self::Secretbox(key) => {
                let nonce = random::<BOX_NONCE>()?;
                let sealed = XSalsa20Poly1305::new_from_slice(key).map_err(|_| failed())?.encrypt(&nonce.into(), plain);
                Ok([&nonce[..], &sealed.map_err(|_| failed())?].concat())
            }
        }
    }

    /// Opens what belongs to `place`.
    pub fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = |why: &str| Error::Open(why.to_owned());
        match self {
            Self::AesCbc(key) => {
                let (iv, sealed) = sealed.split_at_checked(CBC_IV).ok_or_else(|| failed(SHORT))?;
                if sealed.is_empty() || !sealed.len().is_multiple_of(CBC_IV) {
                    return Err(failed("the stored data is not a multiple of the block size"));
                }
                by_size!(key, Aes => cbc::Decryptor::<Aes>::new_from_slices(key, iv)
                    .map_err(|_| failed("the key cannot be used"))?
                    .decrypt_padded_vec_mut::<Pkcs7>(sealed))
                .map_err(|_| failed("invalid padding on input"))
            }
            Self::AesGcm(key) => {
                let (nonce, sealed) = sealed.split_at_checked(GCM_NONCE).ok_or_else(|| failed(SHORT))?;
                let payload = Payload { msg: sealed, aad: place };
                by_size!(key, Aes => AesGcm::<Aes, U12>::new_from_slice(key)
                    .map_err(|_| failed("the key cannot be used"))?
                    .decrypt(nonce.into(), payload))
                .map_err(|_| failed("cipher: message authentication failed"))
            }
            Self::Secretbox(key) => {
                let (nonce, sealed) = sealed.split_at_checked(BOX_NONCE).ok_or_else(|| failed(SHORT))?;
                XSalsa20Poly1305::new_from_slice(key)
                    .map_err(|_| failed("the key cannot be used"))?
                    .decrypt(nonce.into(), sealed)
                    .map_err(|_| failed("output array was not large enough for encryption"))
            }
        }
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AesCbc(_) => "aescbc",
            Self::AesGcm(_) => "aesgcm",
            Self::Secretbox(_) => "secretbox",
        })
    }
}

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::Open("unable to read sufficient random bytes".to_owned()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &[u8] = b"/registry/secrets/default/a";

    fn all() -> Vec<Cipher> {
        let mut all: Vec<Cipher> = [16, 24, 32]
            .into_iter()
            .flat_map(|size| [Cipher::AesCbc(vec![7; size]), Cipher::AesGcm(vec![7; size])])
            .collect();
        all.push(Cipher::Secretbox(vec![7; 32]));
        all
    }

    #[test]
    fn what_is_sealed_opens_and_never_looks_the_same() {
        for cipher in all() {
            for plain in [&b""[..], b"x", b"sixteen bytes...", &[9; 1000]] {
                let sealed = cipher.seal(PLACE, plain).expect("sealed");
                assert_eq!(cipher.open(PLACE, &sealed).expect("opened"), plain, "{cipher:?}");
                assert_ne!(cipher.seal(PLACE, plain).expect("sealed"), sealed, "{cipher:?}");
            }
        }
    }

    #[test]
    fn what_was_changed_does_not_open() {
        for cipher in all() {
            let sealed = cipher.seal(PLACE, b"a secret of some length").expect("sealed");
            for short in [0, 5, 20] {
                assert!(cipher.open(PLACE, &sealed[..short]).is_err(), "{cipher:?} {short}");
            }
            if matches!(cipher, Cipher::AesCbc(_)) {
                continue;
            }
            let mut changed = sealed.clone();
            *changed.last_mut().expect("bytes") ^= 1;
            assert!(cipher.open(PLACE, &changed).is_err(), "{cipher:?}");
        }
        let gcm = Cipher::AesGcm(vec![7; 32]);
        let sealed = gcm.seal(PLACE, b"mine").expect("sealed");
        assert!(gcm.open(b"/registry/secrets/default/b", &sealed).is_err(), "another's object");
    }

    #[test]
    fn the_bytes_are_those_of_others() {
        // NIST SP 800-38A, F.2.1, with the padding block that follows it left out.
        let key = hex("2b7e151628aed2a6abf7158809cf4f3c");
        let iv: Vec<u8> = (0..16).collect();
        let plain = hex("6bc1bee22e409f96e93d7e117393172a");
        let sealed = by_size!(key, Aes => cbc::Encryptor::<Aes>::new_from_slices(&key, &iv).expect("sizes")
            .encrypt_padded_vec_mut::<Pkcs7>(&plain));
        assert_eq!(sealed[..16], hex("7649abac8119b246cee98e9b12e9197d"));
        // The vector of Go's secretbox: key of ones, nonce of twos, message of threes.
        let sealed = hex(concat!(
            "8442bc313f4626f1359e3b50122b6ce6fe66ddfe7d39d14e637eb4fd5b45beadab55198df6ab5368439792a23c87db70",
            "acb6156dc5ef957ac04f6276cf6093b84be77ff0849cc33e34b7254d5a8f65ad"
        ));
        let stored = [&[2; 24][..], &sealed].concat();
        assert_eq!(Cipher::Secretbox(vec![1; 32]).open(PLACE, &stored).expect("opened"), [3; 64]);
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
    }
}
