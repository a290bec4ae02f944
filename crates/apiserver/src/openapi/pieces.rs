//! Long documents as short pieces.
//!
//! A document is hundreds of kilobytes for every hundred kinds, most of it words that repeat themselves, and most of it stays when one definition
//! changes. So its parts are kept packed, each on its own, and a document is no more than a list of them. One after the other they are the body of a
//! gzip stream, which is what nearly every client asks for. Others get them unpacked, a few at a time.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use packed::Packed;
use serde_json::Value;

use super::form::Form;

/// How many unpacked bytes are sent at once, give or take a piece.
const CHUNK: usize = 256 * 1024;

/// A part of a document.
pub(crate) type Piece = Arc<Packed>;

/// A part of a document of these bytes.
pub(crate) fn piece(bytes: &[u8]) -> Piece {
    Arc::new(Packed::new(bytes))
}

/// A document of pieces, with the tag by which clients recognize a copy that they have.
#[derive(Clone, Debug)]
pub(crate) struct Assembled {
    pub etag: String,
    pieces: Arc<[Piece]>,
}

impl Assembled {
    pub fn new(etag: String, pieces: Vec<Piece>) -> Self {
        Self { etag, pieces: pieces.into() }
    }

    /// A document that is made from a tree.
    pub fn of(form: Form, tree: &Value, etag: String) -> Self {
        Self::new(etag, vec![form.whole(tree)])
    }

    /// How long it is when it is unpacked.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// The whole document as a gzip stream.
    pub fn gzip(&self) -> Bytes {
        packed::gzip(self.pieces.iter().map(|piece| &**piece)).into()
    }

    /// The document unpacked, all at once.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.pieces.iter().for_each(|piece| piece.unpack(&mut out));
        out
    }

    /// The document unpacked, as it is sent.
    pub fn stream(&self) -> BoxStream<'static, Result<Bytes, std::io::Error>> {
        let pieces = self.pieces.clone();
        stream::unfold(0, move |mut at| {
            let pieces = pieces.clone();
            async move {
                let mut out = Vec::new();
                while out.len() < CHUNK && at < pieces.len() {
                    pieces[at].unpack(&mut out);
                    at += 1;
                }
                // Others have their turn between two chunks.
                tokio::task::yield_now().await;
                (!out.is_empty()).then(|| (Ok(Bytes::from(out)), at))
            }
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_document_is_sent_in_chunks() {
        let texts: [&[u8]; 5] = [b"{", &[b'a'; 300_000], b"", &[b'b'; 300_000], b"}"];
        let document = Assembled::new("1".to_owned(), texts.iter().map(|text| piece(text)).collect());
        let whole = texts.concat();
        assert!(document.len() == whole.len() && document.bytes() == whole);
        let chunks: Vec<Bytes> = document.stream().map(|chunk| chunk.expect("a chunk")).collect().await;
        assert!(chunks.len() > 1 && chunks.concat() == whole);
    }
}
