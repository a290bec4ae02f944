//! One file of the archive: every change of a run of revisions, by key, with the values that were replaced.
//!
//! ```text
//! magic · blocks of changes and of values · index (a block) · times (a block) · filter · foot
//! ```
//! Changes are sorted by key and revision, so versions of an object lie beside each other: they compress well, and one reading finds
//! them all. Values are in blocks of their own, so that what changed when is read without them. Nothing of a table is in memory but
//! its foot; a question reads one group of the filter and, where that says perhaps, the index, a block of changes and a block of values.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::block::{self, Change, Place, filter, u32_at, u64_at};
use crate::embedded::disk::private_file;
use crate::embedded::segment::failed;
use crate::{Error, Revision};

const MAGIC: [u8; 8] = *b"TRIREMEH";
/// What this version writes, and the newest that it reads.
const FORMAT: u32 = 1;
const HEAD: usize = 16;
const FOOT: usize = 112;
/// Bytes of changes in a block.
const CHANGES: usize = 16 << 10;
/// Bytes of values in a block, give or take one.
const VALUES: usize = 64 << 10;
/// Bytes handed to the disk at once.
const SLICE: usize = 1 << 20;

/// What a table covers and where its parts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::embedded) struct Foot {
    /// It has every change after this revision…
    pub(super) after: Revision,
    /// …up to and including this one.
    pub(in crate::embedded) last: Revision,
    /// When its first change was made, in milliseconds since 1970.
    pub(super) first_time: u64,
    /// The latest time of a change in it.
    pub(super) last_time: u64,
    pub(super) changes: u64,
    /// Bytes of changes and values before they were deflated.
    pub(super) raw: u64,
    index: u64,
    times: u64,
    filter: u64,
    groups: u64,
    /// Bytes of the whole file.
    pub(super) bytes: u64,
}

impl Foot {
    fn encode(&self) -> [u8; FOOT] {
        let mut out = [0; FOOT];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let numbers = [
            self.after,
            self.last,
            self.first_time,
            self.last_time,
            self.changes,
            self.raw,
            self.index,
            self.times,
            self.filter,
            self.groups,
            self.bytes,
        ];
        for (number, place) in numbers.iter().zip(out[16..104].chunks_exact_mut(8)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32fast::hash(&out[..104]);
        out[104..108].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; FOOT]) -> Option<Self> {
        let whole = bytes[..8] == MAGIC && u32_at(bytes, 104) == crc32fast::hash(&bytes[..104]);
        let number = |place: usize| u64_at(bytes, 16 + place * 8);
        whole.then(|| Self {
            after: number(0),
            last: number(1),
            first_time: number(2),
            last_time: number(3),
            changes: number(4),
            raw: number(5),
            index: number(6),
            times: number(7),
            filter: number(8),
            groups: number(9),
            bytes: number(10),
        })
    }
}

/// The file name of a table.
pub(super) fn name(after: Revision, last: Revision) -> String {
    format!("{after:020}-{last:020}.past")
}

/// What a table covers, out of its file's name.
pub(super) fn parse_name(name: &str) -> Option<(Revision, Revision)> {
    let (after, last) = name.strip_suffix(".past")?.split_once('-')?;
    (after.len() == 20 && last.len() == 20).then_some(())?;
    Some((after.parse().ok()?, last.parse().ok()?))
}

/// A change on its way into a table.
pub(super) struct Entry<'a> {
    /// Where its value is does not matter yet.
    pub(super) change: Change<'a>,
    /// The value that it replaced.
    pub(super) value: &'a [u8],
}

/// A table being written, from its first key to its last.
pub(super) struct Writer {
    path: PathBuf,
    file: File,
    out: Vec<u8>,
    written: u64,
    changes: Vec<u8>,
    values: Vec<u8>,
    /// First key and offset of every block of changes.
    index: Vec<(Box<str>, u64)>,
    /// Offsets of the blocks of values.
    places: Vec<u64>,
    hashes: Vec<u64>,
    last_key: Option<Box<str>>,
    foot: Foot,
}

impl Writer {
    /// A new file for what happened after `after` up to `last`.
    pub(super) fn create(path: &Path, after: Revision, last: Revision) -> Result<Self, Error> {
        let file = private_file().create(true).truncate(true).open(path).map_err(|e| failed(path, &e))?;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.resize(HEAD, 0);
        let foot = Foot { after, last, ..Foot::default() };
        Ok(Self {
            path: path.to_owned(),
            file,
            out,
            written: 0,
            changes: Vec::new(),
            values: Vec::new(),
            index: Vec::new(),
            places: Vec::new(),
            hashes: Vec::new(),
            last_key: None,
            foot,
        })
    }

    /// Adds a change. They come by key, those of a key by revision.
    pub(super) fn push(&mut self, entry: &Entry<'_>) -> Result<(), Error> {
        let key = entry.change.key;
        if self.last_key.as_deref() != Some(key) {
            self.hashes.push(filter::hash(key));
            self.last_key = Some(key.into());
        }
        if self.changes.is_empty() {
            // The block of changes goes out later than some of values, so its place is not known yet.
            self.index.push((key.into(), 0));
        }
        let value = Place {
            block: self.places.len() as u32,
            offset: self.values.len() as u32,
            length: entry.value.len() as u32,
        };
        self.values.extend_from_slice(entry.value);
        let before = self.changes.len();
        Change { value, ..entry.change }.encode(&mut self.changes);
        self.foot.changes += 1;
        self.foot.raw += (self.changes.len() - before + entry.value.len()) as u64;
        if self.values.len() >= VALUES {
            self.finish_values();
        }
        if self.changes.len() >= CHANGES {
            self.finish_changes();
        }
        self.flush(SLICE)
    }

    fn at(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    fn finish_values(&mut self) {
        self.places.push(self.at());
        block::seal(&self.values, &mut self.out);
        self.values.clear();
    }

    fn finish_changes(&mut self) {
        let at = self.at();
        self.index.last_mut().expect("a block that was begun is in the index").1 = at;
        block::seal(&self.changes, &mut self.out);
        self.changes.clear();
    }

    fn flush(&mut self, from: usize) -> Result<(), Error> {
        if self.out.len() < from {
            return Ok(());
        }
        let written = self.file.write_all_at(&self.out, self.written);
        written.map_err(|e| failed(&self.path, &e))?;
        self.written += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    /// Finishes the file and makes it durable. `times` are first revisions of moments, ascending by revision.
    pub(super) fn finish(mut self, times: &[(Revision, u64)]) -> Result<Table, Error> {
        if !self.values.is_empty() {
            self.finish_values();
        }
        if !self.changes.is_empty() {
            self.finish_changes();
        }
        self.foot.index = self.at();
        let mut raw = (self.places.len() as u32).to_le_bytes().to_vec();
        self.places.iter().for_each(|place| raw.extend_from_slice(&place.to_le_bytes()));
        for (key, at) in &self.index {
            raw.extend_from_slice(&(key.len() as u32).to_le_bytes());
            raw.extend_from_slice(&at.to_le_bytes());
            raw.extend_from_slice(key.as_bytes());
        }
        block::seal(&raw, &mut self.out);
        self.foot.times = self.at();
        raw.clear();
        times.iter().for_each(|(revision, time)| {
            raw.extend_from_slice(&revision.to_le_bytes());
            raw.extend_from_slice(&time.to_le_bytes());
        });
        block::seal(&raw, &mut self.out);
        self.foot.first_time = times.first().map_or(0, |(_, time)| *time);
        self.foot.last_time = times.iter().map(|(_, time)| *time).max().unwrap_or(0);
        let filter = filter::make(&self.hashes);
        self.foot.filter = self.at();
        self.foot.groups = (filter.len() / filter::GROUP) as u64;
        self.out.extend_from_slice(&filter);
        self.foot.bytes = self.at() + FOOT as u64;
        let foot = self.foot.encode();
        self.out.extend_from_slice(&foot);
        self.flush(0)?;
        self.file.sync_all().map_err(|e| failed(&self.path, &e))?;
        Ok(Table { path: self.path, file: self.file, foot: self.foot })
    }
}

/// A finished table.
#[derive(Debug)]
pub(in crate::embedded) struct Table {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(in crate::embedded) foot: Foot,
}

/// Where the blocks of a table are.
pub(super) struct Index {
    places: Vec<u64>,
    blocks: Vec<(Box<str>, u64)>,
}

impl Table {
    /// Opens a table by its foot. What is behind it is verified when it is read.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|e| failed(path, &e))?;
        let length = file.metadata().map_err(|e| failed(path, &e))?.len();
        let mut foot = [0; FOOT];
        let at = length.checked_sub(FOOT as u64).ok_or_else(|| unreadable(path, length, "it is too short"))?;
        file.read_exact_at(&mut foot, at).map_err(|e| failed(path, &e))?;
        if foot[..8] == MAGIC && u32_at(&foot, 8) > FORMAT {
            let format = u32_at(&foot, 8);
            let what = format!(
                "{}: history in format {format}, of a newer version of Trireme; this one reads up to {FORMAT}",
                path.display()
            );
            return Err(Error::Unavailable(what));
        }
        let foot = Foot::decode(&foot).filter(|foot| foot.bytes == length);
        let foot = foot.ok_or_else(|| unreadable(path, at, "its end is not what was written"))?;
        Ok(Self { path: path.to_owned(), file, foot })
    }

    fn damaged(&self, at: u64) -> Error {
        unreadable(&self.path, at, "checksum mismatch")
    }

    fn block(&self, at: u64) -> Result<Vec<u8>, Error> {
        let mut header = [0; block::HEADER];
        let read = |bytes: &mut [u8], at: u64| match self.file.read_exact_at(bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.damaged(at)),
            read => read.map_err(|e| failed(&self.path, &e)),
        };
        read(&mut header, at)?;
        let mut deflated = vec![0; block::length(&header).ok_or_else(|| self.damaged(at))?];
        read(&mut deflated, at + block::HEADER as u64)?;
        block::open(&header, &deflated).ok_or_else(|| self.damaged(at))
    }

    /// Whether the key may have changed in it.
    pub(super) fn may_hold(&self, hash: u64) -> Result<bool, Error> {
        let at = self.foot.filter + filter::group(hash, self.foot.groups) * filter::GROUP as u64;
        let mut group = [0; filter::GROUP];
        self.file.read_exact_at(&mut group, at).map_err(|e| failed(&self.path, &e))?;
        filter::holds(&group, hash).ok_or_else(|| self.damaged(at))
    }

    pub(super) fn index(&self) -> Result<Index, Error> {
        let raw = self.block(self.foot.index)?;
        let malformed = || self.damaged(self.foot.index);
        let count = raw.get(..4).map(|count| u32_at(count, 0) as usize).ok_or_else(malformed)?;
        let places = raw.get(4..4 + count * 8).ok_or_else(malformed)?;
        let places = places.chunks_exact(8).map(|place| u64_at(place, 0)).collect();
        let (mut rest, mut blocks) = (&raw[4 + count * 8..], Vec::new());
        while !rest.is_empty() {
            let length = rest.get(..12).map(|head| u32_at(head, 0) as usize).ok_or_else(malformed)?;
            let key = rest.get(12..12 + length).and_then(|key| std::str::from_utf8(key).ok()).ok_or_else(malformed)?;
            blocks.push((key.into(), u64_at(rest, 4)));
            rest = &rest[12 + length..];
        }
        Ok(Index { places, blocks })
    }

    /// When which revision was the first of its moment, ascending by revision.
    pub(super) fn times(&self) -> Result<Vec<(Revision, u64)>, Error> {
        let raw = self.block(self.foot.times)?;
        Ok(raw.chunks_exact(16).map(|pair| (u64_at(pair, 0), u64_at(pair, 8))).collect())
    }

    /// Calls `each` with every change of a key that starts with `prefix`, by key and revision, until it breaks.
    pub(super) fn scan(
        &self,
        index: &Index,
        prefix: &str,
        mut each: impl FnMut(&Change<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        // Several blocks may begin with the same key, and the one before the first of them may end with it.
        let first = index.blocks.partition_point(|(key, _)| &**key < prefix).saturating_sub(1);
        for (key, at) in &index.blocks[first..] {
            if &**key > prefix && !key.starts_with(prefix) {
                break;
            }
            let raw = self.block(*at)?;
            for change in block::changes(&raw) {
                let change = change.ok_or_else(|| self.damaged(*at))?;
                if change.key.starts_with(prefix) && each(&change).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Table {
    /// Reads all of it.
    pub(super) fn verify(&self) -> Result<(), Error> {
        let index = self.index()?;
        let mut changes = 0;
        self.scan(&index, "", |_| {
            changes += 1;
            ControlFlow::Continue(())
        })?;
        for place in &index.places {
            self.block(*place)?;
        }
        self.times()?;
        if changes == self.foot.changes { Ok(()) } else { Err(self.damaged(self.foot.index)) }
    }
}

/// Values of one table, asked for in any order; those of a block that was just read cost nothing more.
pub(super) struct Values<'a> {
    table: &'a Table,
    index: &'a Index,
    current: Option<(u32, Bytes)>,
}

impl<'a> Values<'a> {
    pub(super) fn of(table: &'a Table, index: &'a Index) -> Self {
        Self { table, index, current: None }
    }

    pub(super) fn get(&mut self, place: Place) -> Result<Bytes, Error> {
        let Place { block, offset, length } = place;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let at = *self.index.places.get(block as usize).ok_or_else(|| self.table.damaged(0))?;
        if self.current.as_ref().is_none_or(|(current, _)| *current != block) {
            self.current = Some((block, self.table.block(at)?.into()));
        }
        let (_, values) = self.current.as_ref().expect("it was read just now");
        let range = offset as usize..offset as usize + length as usize;
        if range.end > values.len() {
            return Err(self.table.damaged(at));
        }
        // A copy: a slice would keep the whole block alive.
        Ok(Bytes::copy_from_slice(&values[range]))
    }
}

/// All of a table in its order, a block at a time, for merging.
pub(super) struct Reader<'a> {
    table: &'a Table,
    values: Values<'a>,
    next_block: usize,
    block: Vec<u8>,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn of(table: &'a Table, index: &'a Index) -> Self {
        Self { table, values: Values::of(table, index), next_block: 0, block: Vec::new(), at: 0 }
    }

    /// The change that it stands at; none at the end.
    pub(super) fn peek(&mut self) -> Result<Option<Change<'_>>, Error> {
        if self.at == self.block.len() {
            let Some((_, at)) = self.values.index.blocks.get(self.next_block) else { return Ok(None) };
            self.block = self.table.block(*at)?;
            (self.at, self.next_block) = (0, self.next_block + 1);
        }
        let damaged = || self.table.damaged(0);
        block::changes(&self.block[self.at..]).next().flatten().ok_or_else(damaged).map(Some)
    }

    /// Hands the change that it stands at to `take`, with its value, and goes on.
    pub(super) fn take(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let place = match self.peek()? {
            Some(change) => change.value,
            None => return Ok(()),
        };
        let value = self.values.get(place)?;
        let change = block::changes(&self.block[self.at..]).next().flatten().ok_or_else(|| self.table.damaged(0))?;
        writer.push(&Entry { change, value: &value })?;
        self.at += change.encoded_len();
        Ok(())
    }
}

fn unreadable(path: &Path, at: u64, what: &str) -> Error {
    Error::Damaged(format!("{} at byte {at}: {what}; what it held of the past is lost", path.display()))
}
