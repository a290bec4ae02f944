//! One file of the log: a head of 48 bytes, frames, and, once it is finished, a seal.
//!
//! A segment is named for the first revision it covers and for the salt of its checksums. It is either *fresh*, written by
//! the writer, with every revision from `first` on, or *rewritten* by compaction, with those of `first..=last` that are
//! still needed. Only the newest segment may lack its seal; a store that was closed in good order has none without.

use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::frame::{self, Bad, Change, Entry, Frame, Kind, Seal};
use crate::{Error, Revision};

/// Bytes before the first frame.
pub(super) const HEAD: usize = 48;
/// How much one read of history asks for.
const READ: usize = 128 << 10;
/// The last byte is the format. Entries have notes since 2; what 1 wrote is read as it was.
const MAGIC: [u8; 8] = *b"TRIREME2";
const FORMATS: std::ops::RangeInclusive<u8> = b'1'..=b'2';

/// What a segment says of itself in its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) salt: u32,
    /// The first revision it covers.
    pub(super) first: Revision,
    /// The last revision it covers, for a rewritten one.
    pub(super) last: Option<Revision>,
    /// Up to where history had been given up when it was written.
    pub(super) compacted: Revision,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&self.salt.to_le_bytes());
        out[12] = u8::from(self.last.is_some());
        out[16..24].copy_from_slice(&self.first.to_le_bytes());
        out[24..32].copy_from_slice(&self.last.unwrap_or(0).to_le_bytes());
        out[32..40].copy_from_slice(&self.compacted.to_le_bytes());
        let checksum = crc32fast::hash(&out[..40]);
        out[40..44].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEAD)?;
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let known = bytes[..7] == MAGIC[..7] && FORMATS.contains(&bytes[7]);
        let whole = known && bytes[44..] == [0; 4] && u32_at(40) == crc32fast::hash(&bytes[..40]);
        whole.then(|| Self {
            salt: u32_at(8),
            first: u64_at(16),
            last: (bytes[12] == 1).then(|| u64_at(24)),
            compacted: u64_at(32),
        })
    }
}

/// The format of a head that a later version wrote.
fn newer(bytes: &[u8]) -> Option<char> {
    let format = *bytes.get(7)?;
    let is_head = bytes[..7] == MAGIC[..7] && bytes.get(40..44)? == crc32fast::hash(&bytes[..40]).to_le_bytes();
    (is_head && format > *FORMATS.end()).then_some(char::from(format))
}

/// The file name of a segment.
pub(super) fn name(first: Revision, salt: u32) -> String {
    format!("{first:020}-{salt:08x}.log")
}

/// First revision and salt, out of a file name.
pub(super) fn parse_name(name: &str) -> Option<(Revision, u32)> {
    let (first, salt) = name.strip_suffix(".log")?.split_once('-')?;
    (first.len() == 20 && salt.len() == 8).then_some(())?;
    Some((first.parse().ok()?, u32::from_str_radix(salt, 16).ok()?))
}

/// The error for a file that is not what was written, with what to do about it.
pub(super) fn damaged(path: &Path, offset: u64, what: &str) -> Error {
    Error::Damaged(format!(
        "{} at byte {offset}: {what}; nothing was changed, restore the store from a backup into a new directory",
        path.display()
    ))
}

/// The error for an operation on a file that the system refused.
pub(super) fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("{}: {error}", path.display()))
}

/// How far a segment goes, and where things are in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Extent {
    pub(super) end: u64,
    /// The last revision it covers; one before the first while it is empty.
    pub(super) last: Revision,
    /// Puts and deletes in it.
    pub(super) records: u64,
    /// When its last frame was written, in milliseconds since 1970.
    pub(super) time: u64,
    /// The checksum over all frames' checksums.
    pub(super) digest: u32,
    pub(super) sealed: bool,
    /// First revision and offset of a frame about every [`frame::TARGET`] bytes, ascending.
    index: Vec<(Revision, u64)>,
}

impl Extent {
    /// One without frames, whose last covered revision is `last`.
    pub(super) fn upto(last: Revision) -> Self {
        Self { last, ..Self::default() }
    }

    /// Takes note of a frame of entries that stands at `at`.
    pub(super) fn add(&mut self, at: Range<u64>, first: Revision, checksum: u32) {
        self.digest = frame::digest(self.digest, checksum);
        self.end = at.end;
        let far = self.index.last().is_none_or(|(_, offset)| at.start - offset >= frame::TARGET as u64);
        if first != 0 && far {
            self.index.push((first, at.start));
        }
    }

    pub(super) fn seal(&self) -> Seal {
        Seal { records: self.records, last: self.last, digest: self.digest }
    }
}

/// An open segment. Readers share it; a rewritten successor replaces it whole, so nobody reads half of each.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) head: Head,
    pub(super) extent: Mutex<Extent>,
}

impl Segment {
    /// Calls `each` with every entry from revision `from` on and when it was written, in order, until it breaks or the synced end is reached.
    pub(super) fn visit(
        &self,
        from: Revision,
        mut each: impl FnMut(Entry<'_>, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let (mut at, end) = {
            let extent = self.extent.lock();
            let place = extent.index.partition_point(|(first, _)| *first <= from);
            (place.checked_sub(1).map_or(HEAD as u64, |i| extent.index[i].1), extent.end)
        };
        let (mut buffer, mut start) = (Vec::new(), 0);
        while at < end {
            let frame = match frame::parse(&buffer[start..], self.head.salt) {
                Ok(frame) => frame,
                Err(Bad::Short(_)) | Err(Bad::NoFrame) if buffer.len() - start < frame::HEADER => {
                    self.fill(&mut buffer, &mut start, at, READ.min((end - at) as usize))?;
                    continue;
                }
                Err(Bad::Short(needed)) if at + needed as u64 <= end => {
                    self.fill(&mut buffer, &mut start, at, needed.max(READ).min((end - at) as usize))?;
                    continue;
                }
                Err(_) => return Err(damaged(&self.path, at, "checksum mismatch")),
            };
            if frame.kind == Kind::Entries {
                for entry in frame::entries(frame.body) {
                    let entry = entry.ok_or_else(|| damaged(&self.path, at, "malformed entry"))?;
                    if entry.revision >= from && each(entry, frame.time).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            at += frame.len() as u64;
            start += frame.len();
        }
        Ok(ControlFlow::Continue(()))
    }

    fn fill(&self, buffer: &mut Vec<u8>, start: &mut usize, at: u64, length: usize) -> Result<(), Error> {
        if length < frame::HEADER {
            return Err(damaged(&self.path, at, "the segment ends within a frame"));
        }
        buffer.resize(length, 0);
        *start = 0;
        self.file.read_exact_at(buffer, at).map_err(|e| failed(&self.path, &e))
    }
}

/// Where an entry stands in a scanned file.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) revision: Revision,
    pub(super) previous: Revision,
    pub(super) expires: u64,
    pub(super) key: Range<usize>,
    /// `None` for a delete.
    pub(super) value: Option<Range<usize>>,
}

/// A whole segment, read and verified.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) bytes: Vec<u8>,
    pub(super) head: Head,
    pub(super) extent: Extent,
    pub(super) places: Vec<Place>,
    /// The furthest compaction it knows of.
    pub(super) compacted: Revision,
    /// Bytes after the last group that was synced whole; they were never acknowledged.
    pub(super) torn: u64,
}

impl Scan {
    pub(super) fn key(&self, place: &Place) -> &str {
        std::str::from_utf8(&self.bytes[place.key.clone()]).expect("keys were checked when the entry was decoded")
    }
}

/// Verifies a whole segment. `None`: it is the newest one and was never synced, so it holds nothing that counts.
pub(super) fn scan(path: &Path, salt: u32, bytes: Vec<u8>, newest: bool) -> Result<Option<Scan>, Error> {
    let Some(head) = Head::decode(&bytes).filter(|head| head.salt == salt) else {
        // Head and first group are written together; a readable first frame beside an unreadable head is no torn write.
        if let Some(format) = newer(&bytes) {
            let what = format!(
                "{}: store format {format}, of a newer version of Trireme; this one reads up to 2",
                path.display()
            );
            return Err(Error::Unavailable(what));
        }
        let torn = newest
            && frame::parse(bytes.get(HEAD..).unwrap_or_default(), salt).is_err()
            && !frame::synced_past(&bytes, 0, salt);
        return if torn { Ok(None) } else { Err(damaged(path, 0, "the segment's head is unreadable")) };
    };
    let may_be_open = newest && head.last.is_none();
    let mut extent = Extent { end: HEAD as u64, ..Extent::upto(head.first.saturating_sub(1)) };
    let (mut places, mut compacted, mut torn) = (Vec::new(), head.compacted, 0);
    let mut at = HEAD;
    while at < bytes.len() {
        if extent.sealed {
            return Err(damaged(path, at as u64, "bytes after the segment's seal"));
        }
        let frame = match frame::parse(&bytes[at..], salt) {
            Ok(frame) => frame,
            Err(_) if may_be_open && !frame::synced_past(&bytes, at, salt) => {
                torn = (bytes.len() - at) as u64;
                break;
            }
            Err(_) => return Err(damaged(path, at as u64, "checksum mismatch")),
        };
        let next = at + frame.len();
        match frame.kind {
            Kind::Entries => {
                let first = collect(path, &head, &bytes, at, &frame, &mut extent, &mut places, &mut compacted)?;
                extent.add(at as u64..next as u64, first, frame.checksum);
            }
            Kind::Seal => {
                extent.last = head.last.unwrap_or(extent.last);
                if Seal::decode(frame.body) != Some(extent.seal()) {
                    return Err(damaged(path, at as u64, "the segment is not as long as its seal says"));
                }
                (extent.sealed, extent.end) = (true, next as u64);
            }
        }
        extent.time = frame.time;
        at = next;
    }
    if !extent.sealed && !may_be_open {
        return Err(damaged(path, bytes.len() as u64, "the segment ends without its seal"));
    }
    if extent.end == HEAD as u64 {
        return Ok(None);
    }
    Ok(Some(Scan { bytes, head, extent, places, compacted, torn }))
}

/// Adds the frame's entries to `places`; answers the first revision among them, or 0.
#[expect(clippy::too_many_arguments, reason = "the inner half of `scan`, apart for its length only")]
fn collect(
    path: &Path,
    head: &Head,
    bytes: &[u8],
    at: usize,
    frame: &Frame<'_>,
    extent: &mut Extent,
    places: &mut Vec<Place>,
    compacted: &mut Revision,
) -> Result<Revision, Error> {
    let (mut first, mut count) = (0, 0);
    let offset = |part: &[u8]| part.as_ptr().addr() - bytes.as_ptr().addr();
    let range = |part: &[u8]| offset(part)..offset(part) + part.len();
    for entry in frame::entries(frame.body) {
        let entry = entry.ok_or_else(|| damaged(path, at as u64, "malformed entry"))?;
        count += 1;
        let (key, value, expires) = match entry.change {
            Change::Put { key, value, expires } => (key, Some(range(value)), expires),
            Change::Delete { key } => (key, None, 0),
            Change::Compact => {
                *compacted = entry.revision.max(*compacted);
                continue;
            }
        };
        let in_order = match head.last {
            None => entry.revision == extent.last + 1,
            Some(last) => entry.revision > extent.last && entry.revision <= last,
        };
        if !in_order {
            let what = format!("revision {} follows revision {}", entry.revision, extent.last);
            return Err(damaged(path, at as u64, &what));
        }
        extent.last = entry.revision;
        extent.records += 1;
        if first == 0 {
            first = entry.revision;
        }
        places.push(Place {
            revision: entry.revision,
            previous: entry.previous,
            expires,
            key: range(key.as_bytes()),
            value,
        });
    }
    if count != frame.count {
        return Err(damaged(path, at as u64, "the frame has fewer or more entries than it says"));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Builder, Stamp};
    use super::*;

    const SALT: u32 = 99;

    /// A fresh segment whose groups hold one frame per revision each.
    fn file(groups: &[&[Revision]]) -> (Vec<u8>, Vec<usize>) {
        let head = Head { salt: SALT, first: 2, last: None, compacted: 1 };
        let (mut bytes, mut starts, mut base) = (head.encode().to_vec(), Vec::new(), 0);
        for group in groups {
            let stamp = Stamp { salt: SALT, base, time: 5 };
            for &revision in *group {
                let mut builder = Builder::default();
                let change = Change::Put { key: "/key", value: b"some value", expires: 0 };
                builder.push(&Entry { revision, previous: revision - 1, change, note: b"" }, &stamp);
                builder.finish(&stamp);
                starts.push(bytes.len());
                bytes.extend(builder.bytes);
            }
            base = bytes.len() as u64;
        }
        (bytes, starts)
    }

    fn scanned(bytes: Vec<u8>) -> Result<Option<(usize, u64)>, Error> {
        scan(Path::new("segment"), SALT, bytes, true).map(|scan| scan.map(|scan| (scan.places.len(), scan.torn)))
    }

    #[test]
    fn a_head_is_what_it_was() {
        for last in [None, Some(9)] {
            let head = Head { salt: SALT, first: 2, last, compacted: 7 };
            assert_eq!(Head::decode(&head.encode()), Some(head));
        }
        assert_eq!(parse_name(&name(17, 0xab)), Some((17, 0xab)));
        assert_eq!(parse_name("17-ab.log"), None);
    }

    #[test]
    fn older_formats_are_read_and_newer_ones_refused_by_name() {
        let (mut bytes, _) = file(&[&[2]]);
        let reseal = |bytes: &mut Vec<u8>, format: u8| {
            bytes[7] = format;
            let checksum = crc32fast::hash(&bytes[..40]);
            bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
        };
        reseal(&mut bytes, b'1');
        assert_eq!(scanned(bytes.clone()).expect("what earlier versions wrote"), Some((1, 0)));
        reseal(&mut bytes, b'3');
        assert!(matches!(scanned(bytes), Err(Error::Unavailable(what)) if what.contains("store format 3")));
    }

    #[test]
    fn a_hole_in_a_group_that_was_never_synced_is_a_torn_tail() {
        let (mut bytes, starts) = file(&[&[2], &[3, 4, 5]]);
        let torn = bytes.len() - starts[2];
        bytes[starts[2] + 50] ^= 1;
        let found = scanned(bytes).expect("revision 5 got to the disk before 4, as a crash may have it");
        assert_eq!(found, Some((2, torn as u64)));
    }

    #[test]
    fn a_hole_before_a_later_group_is_damage() {
        let (mut bytes, starts) = file(&[&[2], &[3, 4], &[5]]);
        bytes[starts[2] + 50] ^= 1;
        assert!(matches!(scanned(bytes), Err(Error::Damaged(_))));
    }

    #[test]
    fn zeros_after_the_last_group_are_a_torn_tail() {
        let (mut bytes, _) = file(&[&[2], &[3]]);
        bytes.resize(bytes.len() + 5000, 0);
        assert_eq!(scanned(bytes).expect("a file may grow before its bytes arrive"), Some((2, 5000)));
    }

    #[test]
    fn a_first_group_that_was_never_synced_is_no_segment() {
        let (bytes, starts) = file(&[&[2, 3]]);
        assert_eq!(scanned(Vec::new()).expect("an empty file"), None);
        assert_eq!(scanned(vec![0; 4096]).expect("a file of zeros"), None);
        assert_eq!(scanned(bytes[..starts[0] + 5].to_vec()).expect("a head and little more"), None);
    }

    #[test]
    fn a_revision_out_of_turn_is_damage() {
        let (bytes, _) = file(&[&[2], &[4]]);
        assert!(matches!(scanned(bytes), Err(Error::Damaged(what)) if what.contains("revision 4 follows revision 2")));
    }
}
