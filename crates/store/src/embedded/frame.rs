//! The bytes of the log: frames of entries, each frame with a checksum. Pure: slices in, slices out.
//!
//! A frame is 40 bytes of header and a body:
//! ```text
//! magic u32 · body length u32 · checksum u32 · kind u8, 0 × 3 · base u64 · time u64 · count u32 · 0 u32 · body
//! ```
//! All numbers are little endian. `base` is the file offset up to which the file was already synced when the frame was
//! written. It settles what an unreadable frame is: if any later, readable frame has a `base` beyond it, it had been
//! durable and was damaged since; otherwise it belongs to a group that was never synced, hence never acknowledged.
//! The checksum starts from the segment's random salt, so a frame stored inside a value is not taken for a frame.
//!
//! An entry is a change of one key:
//! ```text
//! kind u8 · revision u64 · previous revision u64 · expiry u64 · key length u32 · value length u32 · key · value [· note length u16 · note]
//! ```
//! The highest bit of its kind says that there is a note: what the writer of the transaction wants to be known of it.

use std::ops::Range;

use crate::Revision;

/// Bytes before a frame's body.
pub(super) const HEADER: usize = 40;
/// Bytes before an entry's key.
pub(super) const ENTRY: usize = 33;
/// In an entry's kind: a note follows.
const NOTED: u8 = 0x80;
/// What is longer is cut.
const MAX_NOTE: usize = 4096;
/// Bodies are closed at about this size, so that looking up one entry reads little.
pub(super) const TARGET: usize = 64 << 10;
/// No body is longer: one entry of the largest value, with room to spare.
pub(super) const MAX_BODY: usize = 32 << 20;

const MAGIC: [u8; 4] = *b"\xf7TRB";

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Entries,
    /// The last frame of a finished segment: how much came before it.
    Seal,
}

/// A frame whose checksum holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    pub(super) base: u64,
    /// Milliseconds since 1970 at which it was written.
    pub(super) time: u64,
    pub(super) count: u32,
    pub(super) checksum: u32,
    pub(super) body: &'a [u8],
}

impl Frame<'_> {
    /// Header and body together.
    pub(super) fn len(&self) -> usize {
        HEADER + self.body.len()
    }
}

/// Why the bytes at a place are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    /// They may be one, but so many are needed to tell.
    Short(usize),
    /// They do not begin like one.
    NoFrame,
    /// The checksum or the content is wrong.
    Checksum,
}

/// Reads the frame at the beginning of `bytes`.
pub(super) fn parse(bytes: &[u8], salt: u32) -> Result<Frame<'_>, Bad> {
    if bytes.len() < HEADER {
        let n = bytes.len().min(MAGIC.len());
        return Err(if bytes[..n] == MAGIC[..n] { Bad::Short(HEADER) } else { Bad::NoFrame });
    }
    if bytes[..4] != MAGIC {
        return Err(Bad::NoFrame);
    }
    let length = u32_at(bytes, 4) as usize;
    if length > MAX_BODY {
        return Err(Bad::Checksum);
    }
    if bytes.len() < HEADER + length {
        return Err(Bad::Short(HEADER + length));
    }
    let checksum = u32_at(bytes, 8);
    if sum(&bytes[..HEADER + length], salt) != checksum {
        return Err(Bad::Checksum);
    }
    let kind = match bytes[12] {
        0 => Kind::Entries,
        1 => Kind::Seal,
        _ => return Err(Bad::Checksum),
    };
    Ok(Frame {
        kind,
        base: u64_at(bytes, 16),
        time: u64_at(bytes, 24),
        count: u32_at(bytes, 32),
        checksum,
        body: &bytes[HEADER..HEADER + length],
    })
}

/// Looks in `bytes[from..]` for a readable frame whose `base` is beyond `from`: proof that what stands at `from` had been
/// synced before.
pub(super) fn synced_past(bytes: &[u8], from: usize, salt: u32) -> bool {
    let mut at = from;
    while let Some(next) = bytes[at..].windows(MAGIC.len()).position(|w| w == MAGIC) {
        at += next;
        match parse(&bytes[at..], salt) {
            Ok(frame) if frame.base > from as u64 => return true,
            Ok(frame) => at += frame.len(),
            Err(_) => at += 1,
        }
    }
    false
}

fn sum(frame: &[u8], salt: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(&frame[..8]);
    hasher.update(&frame[12..]);
    hasher.finalize()
}

/// One change of one key, inside a frame's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) revision: Revision,
    /// The revision of the record this one replaces; 0 where there was none.
    pub(super) previous: Revision,
    pub(super) change: Change<'a>,
    /// What the writer wants to be known of it; nothing in most tests, and in what compaction rewrote.
    pub(super) note: &'a [u8],
}

/// What an entry does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// Sets a value; `expires` in milliseconds since 1970, 0 is never.
    Put {
        key: &'a str,
        value: &'a [u8],
        expires: u64,
    },
    Delete {
        key: &'a str,
    },
    /// History up to the entry's revision was given up. It takes no revision of its own.
    Compact,
}

impl<'a> Entry<'a> {
    /// The key, for all but [`Change::Compact`].
    pub(super) fn key(&self) -> Option<&'a str> {
        match self.change {
            Change::Put { key, .. } | Change::Delete { key } => Some(key),
            Change::Compact => None,
        }
    }

    /// The value that it sets.
    pub(super) fn value(&self) -> Option<&'a [u8]> {
        match self.change {
            Change::Put { value, .. } => Some(value),
            Change::Delete { .. } | Change::Compact => None,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let note = &self.note[..self.note.len().min(MAX_NOTE)];
        let (kind, key, value, expires): (u8, &str, &[u8], u64) = match self.change {
            Change::Put { key, value, expires } => (1, key, value, expires),
            Change::Delete { key } => (2, key, &[], 0),
            Change::Compact => (3, "", &[], 0),
        };
        out.push(if note.is_empty() { kind } else { kind | NOTED });
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        out.extend_from_slice(&expires.to_le_bytes());
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(value);
        if !note.is_empty() {
            out.extend_from_slice(&(note.len() as u16).to_le_bytes());
            out.extend_from_slice(note);
        }
    }
}

/// The entries of a body whose checksum holds; `None` as an item says that the body is malformed all the same.
pub(super) fn entries(body: &[u8]) -> impl Iterator<Item = Option<Entry<'_>>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let entry = decode(rest);
        rest = entry.map_or(&[], |(_, length)| &rest[length..]);
        Some(entry.map(|(entry, _)| entry))
    })
}

fn decode(bytes: &[u8]) -> Option<(Entry<'_>, usize)> {
    if bytes.len() < ENTRY {
        return None;
    }
    let (kind, revision, previous, expires) = (bytes[0], u64_at(bytes, 1), u64_at(bytes, 9), u64_at(bytes, 17));
    let key_end = ENTRY.checked_add(u32_at(bytes, 25) as usize)?;
    let end = key_end.checked_add(u32_at(bytes, 29) as usize)?;
    let key = std::str::from_utf8(bytes.get(ENTRY..key_end)?).ok()?;
    let value = bytes.get(key_end..end)?;
    let (note, end) = if kind & NOTED == 0 {
        (&[][..], end)
    } else {
        let length = bytes.get(end..end.checked_add(2)?)?;
        let start = end + 2;
        let stop = start + usize::from(u16::from_le_bytes([length[0], length[1]]));
        (bytes.get(start..stop)?, stop)
    };
    let change = match kind & !NOTED {
        1 => Change::Put { key, value, expires },
        2 => Change::Delete { key },
        3 => Change::Compact,
        _ => return None,
    };
    Some((Entry { revision, previous, change, note }, end))
}

/// What a finished segment says of itself in its last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    /// Puts and deletes in the segment.
    pub(super) records: u64,
    /// The last revision it covers.
    pub(super) last: Revision,
    /// A checksum over all frames' checksums, in order.
    pub(super) digest: u32,
}

impl Seal {
    /// Reads a [`Kind::Seal`] frame's body.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        (body.len() == 20).then(|| Self { records: u64_at(body, 0), last: u64_at(body, 8), digest: u32_at(body, 16) })
    }
}

/// Folds one more frame into a segment's digest.
pub(super) fn digest(so_far: u32, checksum: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(so_far);
    hasher.update(&checksum.to_le_bytes());
    hasher.finalize()
}

/// A frame just written, for the segment's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    /// Where it stands in the builder's bytes.
    pub(super) at: Range<usize>,
    /// The first revision in it; 0 where it has none.
    pub(super) first: Revision,
    pub(super) checksum: u32,
}

/// Puts entries into frames, one after the other in one buffer.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<Written>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    start: usize,
    first: Revision,
    count: u32,
}

impl Builder {
    /// Adds an entry; the frame it goes into is finished by [`Self::finish`] or when it is large enough.
    pub(super) fn push(&mut self, entry: &Entry<'_>, stamp: &Stamp) {
        let open = self.open.get_or_insert_with(|| {
            let start = self.bytes.len();
            self.bytes.resize(start + HEADER, 0);
            Open { start, first: 0, count: 0 }
        });
        open.count += 1;
        if open.first == 0 && entry.key().is_some() {
            open.first = entry.revision;
        }
        entry.encode(&mut self.bytes);
        if self.bytes.len() - open.start >= TARGET {
            self.finish(stamp);
        }
    }

    /// Closes the frame that is open, if one is.
    pub(super) fn finish(&mut self, stamp: &Stamp) {
        if let Some(open) = self.open.take() {
            self.close(open, 0, stamp);
        }
    }

    /// Adds the frame that ends a segment.
    pub(super) fn seal(&mut self, seal: &Seal, stamp: &Stamp) {
        self.finish(stamp);
        let start = self.bytes.len();
        self.bytes.resize(start + HEADER, 0);
        self.bytes.extend_from_slice(&seal.records.to_le_bytes());
        self.bytes.extend_from_slice(&seal.last.to_le_bytes());
        self.bytes.extend_from_slice(&seal.digest.to_le_bytes());
        self.close(Open { start, first: 0, count: 0 }, 1, stamp);
    }

    fn close(&mut self, open: Open, kind: u8, stamp: &Stamp) {
        let Open { start, first, count } = open;
        let frame = &mut self.bytes[start..];
        let length = (frame.len() - HEADER) as u32;
        frame[..4].copy_from_slice(&MAGIC);
        frame[4..8].copy_from_slice(&length.to_le_bytes());
        frame[12] = kind;
        frame[16..24].copy_from_slice(&stamp.base.to_le_bytes());
        frame[24..32].copy_from_slice(&stamp.time.to_le_bytes());
        frame[32..36].copy_from_slice(&count.to_le_bytes());
        let checksum = sum(frame, stamp.salt);
        frame[8..12].copy_from_slice(&checksum.to_le_bytes());
        self.frames.push(Written { at: start..self.bytes.len(), first, checksum });
    }

    /// Empties it, giving back memory that a large group took.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
        self.frames.clear();
        self.open = None;
    }
}

/// What all frames of one group have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) salt: u32,
    pub(super) base: u64,
    pub(super) time: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice is four bytes long"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice is eight bytes long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(base: u64) -> Stamp {
        Stamp { salt: 7, base, time: 1_700_000_000_000 }
    }

    fn put<'a>(revision: Revision, key: &'a str, value: &'a [u8]) -> Entry<'a> {
        Entry { revision, previous: revision - 1, change: Change::Put { key, value, expires: 9 }, note: b"" }
    }

    fn built(entries: &[Entry<'_>]) -> Vec<u8> {
        let mut builder = Builder::default();
        entries.iter().for_each(|e| builder.push(e, &stamp(48)));
        builder.finish(&stamp(48));
        builder.bytes
    }

    #[test]
    fn what_is_built_is_what_is_parsed() {
        let all = [
            put(2, "/a", b"one"),
            Entry { revision: 3, previous: 2, change: Change::Delete { key: "/a" }, note: b"somebody" },
            Entry { note: b"somebody else", ..put(4, "/b", b"two") },
            Entry { revision: 2, previous: 0, change: Change::Compact, note: b"" },
        ];
        let bytes = built(&all);
        let frame = parse(&bytes, 7).expect("a whole frame");
        assert_eq!((frame.kind, frame.base, frame.count, frame.len()), (Kind::Entries, 48, 4, bytes.len()));
        assert_eq!(entries(frame.body).collect::<Option<Vec<_>>>().expect("whole entries"), all);
    }

    #[test]
    fn large_groups_become_several_frames() {
        let value = vec![5; 40 << 10];
        let mut builder = Builder::default();
        (2..6).for_each(|r| builder.push(&put(r, "/a", &value), &stamp(48)));
        builder.finish(&stamp(48));
        assert_eq!(builder.frames.iter().map(|f| f.first).collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let good = built(&[put(2, "/a", b"one")]);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&bad, 7).is_err(), "bit {bit}");
        }
        assert_eq!(parse(&good, 8).err(), Some(Bad::Checksum), "another segment's frame");
    }

    #[test]
    fn any_cut_is_noticed() {
        let good = built(&[put(2, "/a", b"one")]);
        for length in 0..good.len() {
            assert!(matches!(parse(&good[..length], 7), Err(Bad::Short(_))), "{length}");
        }
    }

    #[test]
    fn a_malformed_body_is_no_panic() {
        let body = [1u8; 40];
        assert_eq!(entries(&body).collect::<Vec<_>>(), [None]);
        // Bodies that claim lengths of all sizes, from a simple generator.
        let mut state = 1u64;
        for length in 0..2000 {
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8 & if length % 2 == 0 { 3 } else { 255 }
            };
            let body: Vec<u8> = (0..length % 300).map(|_| random()).collect();
            let _ = (entries(&body).count(), parse(&body, 7).is_ok());
        }
    }

    #[test]
    fn only_a_later_group_proves_that_an_earlier_place_was_synced() {
        let group = |base: u64| {
            let mut builder = Builder::default();
            builder.push(&put(3, "/a", b"two"), &stamp(base));
            builder.finish(&stamp(base));
            builder.bytes
        };
        let first = group(0);
        let end = first.len() as u64;
        let same = [first.clone(), group(0)].concat();
        assert!(!synced_past(&same, 0, 7), "the same group may have reached the disk in any order");
        let later = [first, group(end)].concat();
        assert!(synced_past(&later, 0, 7));
        assert!(!synced_past(&later, end as usize, 7));
    }
}
