//! Programs of our own in the kernel (eBPF), and the maps that they look things up in.
//!
//! [`Assembler`] writes a program, [`Types`] says what the running kernel's structures are, [`Program`] loads it, and a [`Link`] has
//! netfilter ask it about every packet. [`Map`]s are changed while programs read them, one element at a time. [`Ring`] is how programs
//! tell of what they did. Whatever is pinned to a file of the kernel's own file system (bpffs) outlives the process.
//!
//! All of it is five system calls with their numbers; a library would bring a loader of compiled objects, which there are none of, and the newest of them
//! knows neither links of netfilter nor calls of the kernel's functions.

mod assembler;
mod link;
mod map;
mod ring;
mod types;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub use assembler::{Assembler, Do, Helper, If, Label, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Register, STACK, Size};
pub use link::{Family, Hook, Link, Program};
pub use map::{Kind, Map};
pub use ring::Ring;
pub use types::Types;

/// Where the kernel's file system is.
const FILES: &str = "/sys/fs/bpf";
/// What `statfs` says of it.
const FILE_SYSTEM: u64 = 0xcafe_4a11;

/// Why the kernel does not have it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{operation} {what}: {source}")]
    Refused { operation: &'static str, what: String, source: io::Error },
    /// The end of the verifier's log says what it minds.
    #[error("load program {name}: {source}: {log}")]
    Program { name: String, source: io::Error, log: String },
    #[error("the kernel does not describe {0}")]
    Types(String),
}

/// Where a part pins what it makes in the network namespace of this thread. A pinned link holds its namespace, so the number stays its own.
pub fn place(part: &str) -> Result<PathBuf, Error> {
    Ok(Path::new(FILES).join(part).join(number(Path::new("/proc/thread-self/ns/net"))?))
}

fn number(namespace: &Path) -> Result<String, Error> {
    let found = std::fs::metadata(namespace).map_err(|source| refused("read", namespace, source))?;
    Ok(found.ino().to_string())
}

/// Removes everything that any part pinned in a network namespace, which could not go otherwise.
pub fn release(namespace: &Path) -> Result<(), Error> {
    let number = number(namespace)?;
    for part in std::fs::read_dir(FILES).into_iter().flatten().flatten() {
        remove_directory(&part.path().join(&number))?;
    }
    Ok(())
}

/// Removes a directory with all that is pinned in it. Nothing there is no error.
pub fn remove_directory(path: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(path) {
        Err(source) if !matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(refused("remove", path, source))
        }
        _ => Ok(()),
    }
}

fn refused(operation: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Refused { operation, what: path.display().to_string(), source }
}

/// Makes a directory of the kernel's file system, which is mounted if it is not.
pub fn make_directory(path: &Path) -> Result<(), Error> {
    let is_mounted = || rustix::fs::statfs(FILES).is_ok_and(|stat| stat.f_type as u64 == FILE_SYSTEM);
    if !is_mounted() {
        let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
        rustix::mount::mount("bpf", FILES, "bpf", flags, Some(c"mode=700"))
            .map_err(|error| refused("mount", Path::new(FILES), error.into()))?;
    }
    std::fs::create_dir_all(path).map_err(|source| refused("make", path, source))
}

/// The part of the system call's argument that is used: numbers in their places, the rest zero.
#[derive(Debug, Clone)]
struct Attributes([u8; 144]);

impl Attributes {
    fn new() -> Self {
        Self([0; 144])
    }

    fn word(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn descriptor(self, at: usize, of: &OwnedFd) -> Self {
        self.word(at, of.as_raw_fd().cast_unsigned())
    }

    fn double(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// Memory that has to stay until the call is over.
    fn memory(self, at: usize, memory: &[u8]) -> Self {
        self.double(at, memory.as_ptr() as u64)
    }

    fn name(mut self, at: usize, name: &str) -> Self {
        // The kernel wants a zero behind it.
        let length = name.len().min(15);
        self.0[at..at + length].copy_from_slice(&name.as_bytes()[..length]);
        self
    }
}

/// The one system call. Whoever calls it answers for the memory that the attributes point to.
fn call(command: u32, attributes: &mut Attributes) -> io::Result<i32> {
    // SAFETY: the attributes are as long as is said, every address in them is that of a slice that its caller holds over this call and that
    // is at least as long as the kernel is told or knows from the map's sizes, which `Map` checks.
    #[allow(unsafe_code)]
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, libc::c_long::from(command), attributes.0.as_mut_ptr(), attributes.0.len())
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(i32::try_from(answer).unwrap_or(i32::MAX)) }
}

/// A call that answers with something new.
fn make(command: u32, attributes: &mut Attributes) -> io::Result<OwnedFd> {
    let descriptor = call(command, attributes)?;
    // SAFETY: the kernel has just made the descriptor for us.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn text(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| refused("name", path, error.into()))
}

const PIN: u32 = 6;
const OPEN: u32 = 7;

fn pin(descriptor: &OwnedFd, path: &Path) -> Result<(), Error> {
    let name = text(path)?;
    let mut attributes = Attributes::new().memory(0, name.as_bytes_with_nul()).descriptor(8, descriptor);
    let pinned = call(PIN, &mut attributes);
    pinned.map(drop).map_err(|source| refused("pin", path, source))
}

fn open(path: &Path) -> Result<OwnedFd, Error> {
    let name = text(path)?;
    let opened = make(OPEN, &mut Attributes::new().memory(0, name.as_bytes_with_nul()));
    opened.map_err(|source| refused("open", path, source))
}
