//! Join tokens: what a new node shows the cluster, and how it knows the cluster.
//!
//! `abcdef.0123456789abcdef@sha256:<hex>`: before the sign is a bootstrap token as upstream's, after it the SHA-256 of the
//! public key of the cluster's authority, as kubeadm pins it. One string to copy proves both sides to each other: the token is
//! sent only to a server that this authority vouches for. The public key and not the certificate is pinned, so tokens outlive
//! the authority's renewal. Without the pin the authority has to come with the node, as a file.

use std::fmt;
use std::str::FromStr;

use rand::Rng as _;

const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const ID: usize = 6;
const SECRET: usize = 16;
const PIN: &str = "sha256:";

/// Why a text is no join token. It says nothing of the text, which is secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token is not of the form abcdef.0123456789abcdef or abcdef.0123456789abcdef@sha256:<64 hexadecimal digits>"
)]
pub struct Malformed;

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    /// Proves that its holder may join. Secret.
    pub secret: String,
    /// The authority's public key, as [`pki::PublicKey::pin`] says it.
    pub pin: Option<String>,
}

impl Token {
    /// A new one for the cluster with this authority.
    pub fn generate(pin: String) -> Self {
        let mut random = rand::rng();
        let mut text = |length| {
            (0..length).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())])).collect::<String>()
        };
        Self { id: text(ID), secret: text(SECRET), pin: Some(pin) }
    }

    /// The part that goes to the server. Secret.
    pub fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// The whole token, to be handed to a new node. Secret, and therefore not a `Display`.
    pub fn reveal(&self) -> String {
        match &self.pin {
            None => self.bearer(),
            Some(pin) => format!("{}@{pin}", self.bearer()),
        }
    }
}

impl FromStr for Token {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (bearer, pin) = match text.trim().split_once('@') {
            None => (text.trim(), None),
            Some((bearer, pin)) => (bearer, Some(pin)),
        };
        let (id, secret) = bearer.split_once('.').ok_or(Malformed)?;
        let sound = |part: &str, length| part.len() == length && part.bytes().all(|byte| ALPHABET.contains(&byte));
        if !sound(id, ID) || !sound(secret, SECRET) {
            return Err(Malformed);
        }
        let pinned = |pin: &str| {
            let digits = pin.strip_prefix(PIN)?;
            let sound = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            sound.then(|| pin.to_ascii_lowercase())
        };
        let pin = pin.map(|pin| pinned(pin).ok_or(Malformed)).transpose()?;
        Ok(Self { id: id.to_owned(), secret: secret.to_owned(), pin })
    }
}

impl fmt::Debug for Token {
    /// Never shows the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("id", &self.id).field("pin", &self.pin).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text() {
        let pin = format!("sha256:{}", "0a".repeat(32));
        let token = Token::generate(pin.clone());
        assert_eq!(token.reveal().parse(), Ok(token.clone()));
        assert_eq!(format!("{}\n", token.reveal()).parse(), Ok(token.clone()), "as a file holds it");
        assert!(!format!("{token:?}").contains(&token.secret));
        assert_ne!(Token::generate(pin.clone()).secret, token.secret);
        let bare: Token = token.bearer().parse().expect("a bare token");
        assert_eq!((bare.reveal(), bare.pin), (token.bearer(), None));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let good = "abcdef.0123456789abcdef";
        let pinned = |pin: &str| format!("{good}@{pin}");
        for text in ["", "abcdef", "abcdef.0123", "ABCDEF.0123456789abcdef", "abcde\u{e9}.0123456789abcdef"] {
            assert_eq!(text.parse::<Token>(), Err(Malformed), "{text}");
        }
        for pin in ["", "sha256:", "sha256:zz", "md5:00", &format!("sha256:{}", "g".repeat(64))] {
            assert_eq!(pinned(pin).parse::<Token>(), Err(Malformed), "{pin}");
        }
    }
}
