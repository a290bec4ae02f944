//! The blocks of a PEM text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub const OMITTED: &str = "<value omitted>";

/// A block of PEM.
pub struct Block {
    pub label: String,
    /// Whether it has lines besides its content.
    pub headers: bool,
    pub bytes: Vec<u8>,
}

/// The blocks of a text, as far as they are whole.
pub fn blocks(text: &str) -> impl Iterator<Item = Block> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (_, begun) = rest.split_once("-----BEGIN ")?;
            let (label, body) = begun.split_once("-----")?;
            let end = format!("-----END {label}-----");
            let Some((body, after)) = body.split_once(&end) else {
                rest = begun;
                continue;
            };
            rest = after;
            let headers = body.contains(':');
            let content = if headers { body.split_once("\n\n").map_or("", |(_, content)| content) } else { body };
            let packed: String = content.split_whitespace().collect();
            if let Ok(bytes) = STANDARD.decode(packed) {
                return Some(Block { label: label.to_owned(), headers, bytes });
            }
        }
    })
}
