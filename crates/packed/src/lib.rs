//! Long texts that are seldom read, kept compressed in memory: definitions of custom resources, and what documents say of them.
//!
//! A text is packed on its own and ends at a whole byte: packed texts one after the other are the body of one gzip stream ([`gzip`]). It refers to nothing
//! outside of it, unless it was packed to stand behind another ([`Packed::behind`]).

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};
use parking_lot::Mutex;

/// Such texts repeat themselves so much that more effort gains little.
const EFFORT: Compression = Compression::new(2);
/// What a gzip stream begins with: no name, no time, an unknown system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// An empty last block.
const END: [u8; 2] = [3, 0];
/// Shorter texts are not worth it.
const SHORT: usize = 4096;
/// What packs has hundreds of kilobytes of its own, which cost more to get than most texts to pack: these few are kept for the next text.
static IDLE: Mutex<Vec<Compress>> = Mutex::new(Vec::new());
const MOST_IDLE: usize = 2;

pub struct Packed {
    deflated: Box<[u8]>,
    length: usize,
    checksum: Crc,
    /// The text that it stands behind, if it refers to one.
    before: Option<Arc<[u8]>>,
}

impl fmt::Debug for Packed {
    /// Never shows its content, which may be a Secret's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} of {} bytes)", self.deflated.len(), self.length)
    }
}

impl Packed {
    pub fn new(text: &[u8]) -> Self {
        Self::pack(text, None)
    }

    /// Packs a text that always stands just behind another, of which it repeats much.
    pub fn behind(before: &Arc<[u8]>, text: &[u8]) -> Self {
        Self::pack(text, Some(before.clone()))
    }

    fn pack(text: &[u8], before: Option<Arc<[u8]>>) -> Self {
        let idle = IDLE.lock().pop();
        let mut packer = idle.unwrap_or_else(|| Compress::new(EFFORT, false));
        // What cannot be referred to is packed as if it stood alone.
        let before = before.filter(|before| packer.set_dictionary(before).is_ok());
        let mut deflated = Vec::with_capacity(text.len() / 8 + 64);
        loop {
            let rest = &text[packer.total_in() as usize..];
            let packed = packer.compress_vec(rest, &mut deflated, FlushCompress::Sync);
            // All of it is out when there was more room than was needed.
            let done = packer.total_in() as usize == text.len() && deflated.len() < deflated.capacity();
            if done || !matches!(packed, Ok(Status::Ok | Status::BufError)) {
                break;
            }
            deflated.reserve(deflated.capacity());
        }
        packer.reset();
        let mut idle = IDLE.lock();
        if idle.len() < MOST_IDLE {
            idle.push(packer);
        }
        drop(idle);
        let mut checksum = Crc::new();
        checksum.update(text);
        Self { deflated: deflated.into(), length: text.len(), checksum, before }
    }

    /// Nothing if the text is short, or does not become much shorter: what is encrypted does not.
    pub fn if_worth_it(text: &[u8]) -> Option<Self> {
        if text.len() < SHORT {
            return None;
        }
        Some(Self::new(text)).filter(|packed| packed.deflated.len() < text.len() / 2)
    }

    /// How long the text is.
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds the text to what is there.
    pub fn unpack(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.length;
        out.reserve_exact(self.length);
        if let Some(before) = &self.before {
            let mut unpacker = Decompress::new(false);
            let unpacked = unpacker
                .set_dictionary(before)
                .and_then(|_| unpacker.decompress_vec(&self.deflated, out, FlushDecompress::Sync));
            assert!(unpacked.is_ok() && out.len() == end, "what was packed here unpacks");
            return;
        }
        let mut unpacker = flate2::write::DeflateDecoder::new(&mut *out);
        let unpacked = unpacker.write_all(&self.deflated).and_then(|()| unpacker.flush());
        drop(unpacker);
        assert!(unpacked.is_ok() && out.len() == end, "what was packed here unpacks");
    }

    pub fn text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.unpack(&mut out);
        out
    }
}

/// Texts one after the other as one gzip stream.
pub fn gzip<'a>(texts: impl Iterator<Item = &'a Packed> + Clone) -> Vec<u8> {
    let packed: usize = texts.clone().map(|text| text.deflated.len()).sum();
    let mut out = Vec::with_capacity(HEAD.len() + packed + END.len() + 8);
    let mut checksum = Crc::new();
    out.extend_from_slice(&HEAD);
    for text in texts {
        out.extend_from_slice(&text.deflated);
        checksum.combine(&text.checksum);
    }
    out.extend_from_slice(&END);
    out.extend_from_slice(&checksum.sum().to_le_bytes());
    out.extend_from_slice(&checksum.amount().to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn noise(length: u32) -> Vec<u8> {
        (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (n >> 7) as u8).collect()
    }

    #[test]
    fn texts_come_back_as_they_were_and_are_one_stream() {
        let noise = noise(400_000);
        let texts: [&[u8]; 5] = [b"{", &[b'a'; 300_000], b"", &noise, b"}"];
        let packed: Vec<Packed> = texts.iter().map(|text| Packed::new(text)).collect();
        for (packed, text) in packed.iter().zip(texts) {
            assert!(packed.len() == text.len() && packed.text() == text);
        }
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*gzip(packed.iter())).read_to_end(&mut unpacked).expect("one gzip stream");
        assert!(unpacked == texts.concat());
    }

    #[test]
    fn a_text_behind_another_does_not_repeat_it() {
        let list: Arc<[u8]> = noise(8_000).into();
        let text = [b"head", &list[..], b"between", &list[..], b"end"].concat();
        let packed = [Packed::new(b"{"), Packed::new(&list), Packed::behind(&list, &text)];
        assert!(packed[2].deflated.len() * 10 < packed[1].deflated.len(), "{packed:?}");
        assert!(packed[2].text() == text);
        let mut out = b"before".to_vec();
        packed[2].unpack(&mut out);
        assert!(out == [b"before", &text[..]].concat());
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*gzip(packed.iter())).read_to_end(&mut unpacked).expect("one gzip stream");
        assert!(unpacked == [b"{", &list[..], &text[..]].concat());
    }

    #[test]
    fn what_gains_nothing_is_left_as_it_is() {
        assert!(Packed::if_worth_it(&[b'a'; SHORT]).is_some());
        assert!(Packed::if_worth_it(&[b'a'; SHORT - 1]).is_none());
        let sealed: Vec<u8> =
            (0..2_000u64).flat_map(|n| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
        assert!(Packed::if_worth_it(&sealed).is_none());
    }
}
