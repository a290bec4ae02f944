//! Reading what programs write into a ring. There is one reader at a time; what does not fit is lost, and no packet waits for it.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Error, Map};

/// A record whose writer has not finished, and one that nobody wants.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// A record's length, and a word that only the kernel needs.
const HEADER: usize = 8;

/// A ring as its reader sees it: the reader's place, the writers' place, and the records, twice in a row so that none is broken in two.
#[derive(Debug)]
pub struct Ring {
    file: AsyncFd<OwnedFd>,
    reader: NonNull<AtomicU64>,
    writers: NonNull<AtomicU64>,
    page: usize,
    size: usize,
}

// SAFETY: the memory belongs to this value until it is dropped, both places are atomic, and records are only read between them.
#[allow(unsafe_code)]
unsafe impl Send for Ring {}

impl Ring {
    /// Reads a ring of so many bytes from now on; what was written before is left out.
    pub fn open(map: &Map, size: u32) -> Result<Self, Error> {
        let refused = |source: io::Error| Error::Refused { operation: "read", what: "ring".to_owned(), source };
        let (page, size) = (rustix::param::page_size(), size as usize);
        let file = map.file().try_clone().map_err(refused)?;
        let (page_and_records, read_only) = (page + 2 * size, libc::PROT_READ);
        let reader = map_memory(&file, page, read_only | libc::PROT_WRITE, 0).map_err(refused)?;
        let writers = match map_memory(&file, page_and_records, read_only, page) {
            Ok(writers) => writers,
            Err(error) => {
                unmap_memory(reader, page);
                return Err(refused(error));
            }
        };
        let unwatched = |error| {
            unmap_memory(reader, page);
            unmap_memory(writers, page_and_records);
            refused(error)
        };
        // SAFETY: the descriptor is our own copy, and stays open as long as the registration that owns it.
        #[allow(unsafe_code)]
        let file = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        let file = file.map_err(|error| unwatched(error.into()))?;
        let ring = Self { file, reader: reader.cast(), writers: writers.cast(), page, size };
        let (read, written) = ring.places();
        read.store(written.load(Ordering::Acquire), Ordering::Release);
        Ok(ring)
    }

    fn places(&self) -> (&AtomicU64, &AtomicU64) {
        // SAFETY: both are mapped, aligned to a page, and shared with the kernel, which changes them atomically.
        #[allow(unsafe_code)]
        unsafe {
            (self.reader.as_ref(), self.writers.as_ref())
        }
    }

    /// The next records, once there are any.
    pub async fn next(&mut self) -> io::Result<Vec<Vec<u8>>> {
        loop {
            let records = self.take();
            if !records.is_empty() {
                return Ok(records);
            }
            let mut ready = self.file.readable().await?;
            ready.clear_ready();
        }
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        let (read, written) = self.places();
        let mut at = read.load(Ordering::Acquire);
        let end = written.load(Ordering::Acquire);
        while at < end {
            let offset = usize::try_from(at).unwrap_or(0) & (self.size - 1);
            // SAFETY: `offset` is within the ring, records begin at multiples of eight, and a record that begins within the ring ends within its
            // second copy. The kernel writes the length last, atomically.
            #[allow(unsafe_code)]
            let (length, record) = unsafe {
                let header = self.writers.cast::<u8>().add(self.page + offset);
                let length = header.cast::<AtomicU32>().as_ref().load(Ordering::Acquire);
                let bytes = (length & !(BUSY | DISCARDED)) as usize;
                let room = bytes.min(self.size - HEADER);
                (length, std::slice::from_raw_parts(header.add(HEADER).as_ptr(), room))
            };
            if length & BUSY != 0 {
                break;
            }
            if length & DISCARDED == 0 {
                records.push(record.to_vec());
            }
            at += u64::try_from((HEADER + record.len()).next_multiple_of(8)).unwrap_or(0);
            read.store(at, Ordering::Release);
        }
        records
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        unmap_memory(self.reader.cast(), self.page);
        unmap_memory(self.writers.cast(), self.page + 2 * self.size);
    }
}

fn map_memory(file: &OwnedFd, length: usize, rights: libc::c_int, from: usize) -> io::Result<NonNull<libc::c_void>> {
    let from = libc::off_t::try_from(from).unwrap_or(libc::off_t::MAX);
    // SAFETY: the kernel chooses the address, so nothing else is there.
    #[allow(unsafe_code)]
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, file.as_raw_fd(), from) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Once for every `map_memory`, with the same length, when nobody holds a reference into it any more.
fn unmap_memory(address: NonNull<libc::c_void>, length: usize) {
    // SAFETY: see above; both callers are in this file.
    #[allow(unsafe_code)]
    unsafe {
        libc::munmap(address.as_ptr(), length);
    }
}
