//! The bytes of a table: deflated blocks with a checksum each, the changes in them, and the filter. Pure: slices in, slices out.
//!
//! ```text
//! block: deflated length u32 · length u32 · checksum u32 of the deflated bytes · deflated bytes
//! change: revision u64 · previous u64 · time u64 · removed u8 · key length u32 · note length u32 · value: block u32, offset u32, length u32 · key · note
//! ```
//! All numbers are little endian. What is sealed does not become shorter; it is stored as it is, by deflate's own means.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder};

use crate::Revision;

/// Bytes before a block's deflated ones.
pub(super) const HEADER: usize = 12;
/// Bytes of a change before its key.
const CHANGE: usize = 45;
/// Versions of an object repeat each other so much that more effort gains little.
const EFFORT: Compression = Compression::new(1);
/// No block is longer than the largest value, with room to spare.
const MAX_BLOCK: usize = 32 << 20;

/// Adds a block.
pub(super) fn seal(raw: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + HEADER, 0);
    let mut encoder = DeflateEncoder::new(&mut *out, EFFORT);
    let written = encoder.write_all(raw).and_then(|()| encoder.try_finish());
    drop(encoder);
    written.expect("writing into memory does not fail");
    let checksum = crc32fast::hash(&out[start + HEADER..]);
    let length = (out.len() - start - HEADER) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    out[start + 8..start + 12].copy_from_slice(&checksum.to_le_bytes());
}

/// How many deflated bytes follow this header.
pub(super) fn length(header: &[u8; HEADER]) -> Option<usize> {
    let (packed, raw) = (u32_at(header, 0) as usize, u32_at(header, 4) as usize);
    (packed <= MAX_BLOCK && raw <= MAX_BLOCK).then_some(packed)
}

/// What a block holds, if it is what was written.
pub(super) fn open(header: &[u8; HEADER], deflated: &[u8]) -> Option<Vec<u8>> {
    if crc32fast::hash(deflated) != u32_at(header, 8) {
        return None;
    }
    let mut raw = Vec::with_capacity(u32_at(header, 4) as usize);
    let mut decoder = DeflateDecoder::new(&mut raw);
    let read = decoder.write_all(deflated).and_then(|()| decoder.try_finish());
    drop(decoder);
    (read.is_ok() && raw.len() == u32_at(header, 4) as usize).then_some(raw)
}

/// Where a value is: in which of the table's blocks of values, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) block: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// One change, with what is needed to undo it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change<'a> {
    pub(super) key: &'a str,
    pub(super) revision: Revision,
    /// The revision of the value that it replaced; 0 where there was none.
    pub(super) previous: Revision,
    /// Milliseconds since 1970.
    pub(super) time: u64,
    /// The key was removed.
    pub(super) removed: bool,
    pub(super) note: &'a [u8],
    /// Where the value is that it replaced.
    pub(super) value: Place,
}

impl Change<'_> {
    /// How many bytes it takes in a block.
    pub(super) fn encoded_len(&self) -> usize {
        CHANGE + self.key.len() + self.note.len()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        out.extend_from_slice(&self.time.to_le_bytes());
        out.push(u8::from(self.removed));
        let Place { block, offset, length } = self.value;
        for number in [self.key.len() as u32, self.note.len() as u32, block, offset, length] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.note);
    }
}

/// The changes of a block; `None` as an item says that the block is malformed.
pub(super) fn changes(block: &[u8]) -> impl Iterator<Item = Option<Change<'_>>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let change = decode(rest);
        rest = change.map_or(&[], |(_, length)| &rest[length..]);
        Some(change.map(|(change, _)| change))
    })
}

fn decode(bytes: &[u8]) -> Option<(Change<'_>, usize)> {
    if bytes.len() < CHANGE {
        return None;
    }
    let key_end = CHANGE.checked_add(u32_at(bytes, 25) as usize)?;
    let end = key_end.checked_add(u32_at(bytes, 29) as usize)?;
    let change = Change {
        key: std::str::from_utf8(bytes.get(CHANGE..key_end)?).ok()?,
        revision: u64_at(bytes, 0),
        previous: u64_at(bytes, 8),
        time: u64_at(bytes, 16),
        removed: bytes[24] == 1,
        note: bytes.get(key_end..end)?,
        value: Place { block: u32_at(bytes, 33), offset: u32_at(bytes, 37), length: u32_at(bytes, 41) },
    };
    Some((change, end))
}

/// A filter of keys: groups of 60 bytes of bits and a checksum, so that asking reads one group and believes only what was written.
pub(super) mod filter {
    /// Bytes of a group.
    pub(in super::super) const GROUP: usize = 64;
    const BITS: u64 = 60 * 8;
    /// Bits that a key sets in its group.
    const PROBES: u32 = 6;
    /// Bits that a filter has for each key.
    const PER_KEY: usize = 12;

    /// A key's hash, the same for ever: it is on disk.
    pub(in super::super) fn hash(key: &str) -> u64 {
        // FNV-1a, then mixed so that all bits depend on all others.
        let mut hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^ (hash >> 32)
    }

    /// In which of so many groups a key is.
    pub(in super::super) fn group(hash: u64, groups: u64) -> u64 {
        hash % groups.max(1)
    }

    fn bits(hash: u64) -> impl Iterator<Item = (usize, u8)> {
        let step = (hash >> 33) | 1;
        (0..PROBES).map(move |probe| {
            let bit = (hash >> 7).wrapping_add(step.wrapping_mul(u64::from(probe))) % BITS;
            ((bit / 8) as usize, 1 << (bit % 8))
        })
    }

    /// The filter of these keys.
    pub(in super::super) fn make(hashes: &[u64]) -> Vec<u8> {
        let groups = (hashes.len() * PER_KEY).div_ceil(BITS as usize).max(1);
        let mut out = vec![0; groups * GROUP];
        for hash in hashes {
            let start = group(*hash, groups as u64) as usize * GROUP;
            bits(*hash).for_each(|(byte, bit)| out[start + byte] |= bit);
        }
        for group in out.chunks_exact_mut(GROUP) {
            let checksum = crc32fast::hash(&group[..60]);
            group[60..].copy_from_slice(&checksum.to_le_bytes());
        }
        out
    }

    /// Whether a key may be in its group; none if the group is not what was written.
    pub(in super::super) fn holds(group: &[u8; GROUP], hash: u64) -> Option<bool> {
        (crc32fast::hash(&group[..60]) == super::u32_at(group, 60))
            .then(|| bits(hash).all(|(byte, bit)| group[byte] & bit != 0))
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice is four bytes long"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice is eight bytes long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str) -> Change<'_> {
        let value = Place { block: 1, offset: 2, length: 3 };
        Change { key, revision: 9, previous: 7, time: 5, removed: true, note: b"who", value }
    }

    fn opened(bytes: &[u8]) -> Option<Vec<u8>> {
        let header = bytes[..HEADER].try_into().expect("a header");
        open(header, bytes.get(HEADER..HEADER + length(header)?)?)
    }

    #[test]
    fn blocks_and_changes_are_what_they_were() {
        let mut raw = Vec::new();
        ["/a", "/b", ""].iter().for_each(|key| change(key).encode(&mut raw));
        let mut bytes = Vec::new();
        seal(&raw, &mut bytes);
        assert_eq!(opened(&bytes).as_ref(), Some(&raw));
        let read: Option<Vec<_>> = changes(&raw).collect();
        assert_eq!(read, Some(vec![change("/a"), change("/b"), change("")]));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(opened(&bad).as_ref(), Some(&raw), "bit {bit}");
        }
        for cut in 1..raw.len() {
            let _ = changes(&raw[..cut]).count();
        }
    }

    #[test]
    fn a_filter_holds_its_keys_and_few_others() {
        let hashes: Vec<u64> = (0..5000).map(|n| filter::hash(&format!("/registry/pods/default/web-{n}"))).collect();
        let made = filter::make(&hashes);
        let groups = (made.len() / filter::GROUP) as u64;
        let holds = |hash: u64| {
            let start = filter::group(hash, groups) as usize * filter::GROUP;
            filter::holds(made[start..start + filter::GROUP].try_into().expect("a group"), hash)
        };
        assert!(hashes.iter().all(|hash| holds(*hash) == Some(true)));
        let others = (0..5000).filter(|n| holds(filter::hash(&format!("/registry/leases/{n}"))) == Some(true)).count();
        assert!(others < 100, "{others} of 5000 others");
        let mut bad: [u8; filter::GROUP] = made[..filter::GROUP].try_into().expect("a group");
        bad[3] ^= 1;
        assert_eq!(filter::holds(&bad, hashes[0]), None);
    }
}
