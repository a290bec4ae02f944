//! Maps: what programs look up, and what is changed meanwhile, one element at a time.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use super::{Attributes, Error, call, make, open, pin};

const CREATE: u32 = 0;
const LOOK_UP: u32 = 1;
const UPDATE: u32 = 2;
const DELETE: u32 = 3;
/// Elements take memory as they come.
const ON_DEMAND: u32 = 1;

/// How a map finds what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By the whole key.
    Hash,
    /// By the longest beginning of it: the first four bytes of a key say how many bits of the others count.
    Longest,
    /// By number, for each processor on its own.
    PerProcessor,
    /// Not at all: what is written is read once, in order.
    Ring,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Self::Hash => 1,
            Self::Longest => 11,
            Self::PerProcessor => 6,
            Self::Ring => 27,
        }
    }

    fn flags(self) -> u32 {
        match self {
            Self::Hash | Self::Longest => ON_DEMAND,
            Self::PerProcessor | Self::Ring => 0,
        }
    }
}

/// A map of the kernel.
#[derive(Debug)]
pub struct Map {
    name: String,
    descriptor: OwnedFd,
    key: usize,
    value: usize,
}

impl Map {
    /// A map for so many elements, or of so many bytes if it is a ring.
    pub fn new(name: &str, kind: Kind, key: usize, value: usize, room: u32) -> Result<Self, Error> {
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut attributes = Attributes::new()
            .word(0, kind.number())
            .word(4, size(key))
            .word(8, size(value))
            .word(12, room)
            .word(16, kind.flags())
            .name(28, name);
        let made = make(CREATE, &mut attributes);
        let descriptor =
            made.map_err(|source| Error::Refused { operation: "make map", what: name.to_owned(), source })?;
        Ok(Self { name: name.to_owned(), descriptor, key, value })
    }

    /// The ring that is pinned there.
    pub fn open_ring(path: &Path) -> Result<Self, Error> {
        Ok(Self { name: path.display().to_string(), descriptor: open(path)?, key: 0, value: 0 })
    }

    pub fn pin(&self, path: &Path) -> Result<(), Error> {
        pin(&self.descriptor, path)
    }

    pub(super) fn descriptor(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.descriptor
    }

    fn refused(&self, operation: &'static str) -> impl FnOnce(io::Error) -> Error {
        let what = format!("of map {}", self.name);
        move |source| Error::Refused { operation, what, source }
    }

    fn element(&self, key: &[u8]) -> Attributes {
        assert_eq!(key.len(), self.key, "a key of map {}", self.name);
        Attributes::new().descriptor(0, &self.descriptor).memory(8, key)
    }

    /// Adds an element or gives it another value; whoever looks it up meanwhile finds the one or the other.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        assert_eq!(value.len(), self.value, "a value of map {}", self.name);
        let inserted = call(UPDATE, &mut self.element(key).memory(16, value));
        inserted.map(drop).map_err(self.refused("insert an element"))
    }

    /// Removes an element; one that is not there is gone already.
    pub fn remove(&self, key: &[u8]) -> Result<(), Error> {
        match call(DELETE, &mut self.element(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.refused("remove an element")(error)),
            _ => Ok(()),
        }
    }

    /// What a program would find.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = vec![0; self.value];
        let mut attributes = self.element(key).double(16, value.as_mut_ptr() as u64);
        match call(LOOK_UP, &mut attributes) {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.refused("read an element")(error)),
        }
    }
}
