//! Programs that judge packets, and the hooks of netfilter that ask them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::{Attributes, Error, call, make, pin};

const LOAD: u32 = 5;
const RUN: u32 = 10;
const LINK: u32 = 28;
/// `BPF_PROG_TYPE_NETFILTER` and `BPF_NETFILTER`, since Linux 6.4.
const NETFILTER_PROGRAM: u32 = 32;
const NETFILTER: u32 = 45;
/// What the verifier says may be long.
const LOG: usize = 1 << 20;
/// So much of its end is shown.
const SHOWN: usize = 1_500;

/// What packets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Four,
    Six,
}

/// Where packets are judged, both after their destination was translated and before their source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// They are for the machine itself.
    Input,
    /// They are passed on.
    Forward,
}

/// A program that netfilter asks about packets: it answers 0 to drop one and 1 to accept it.
#[derive(Debug)]
pub struct Program {
    name: String,
    descriptor: OwnedFd,
}

impl Program {
    /// Loads a program. Only programs under a licence that the kernel counts as compatible may call its functions.
    pub fn load(name: &str, license: &std::ffi::CStr, code: &[u64]) -> Result<Self, Error> {
        let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let count = u32::try_from(code.len()).unwrap_or(u32::MAX);
        let attributes = Attributes::new()
            .word(0, NETFILTER_PROGRAM)
            .word(4, count)
            .memory(8, &bytes)
            .memory(16, license.to_bytes_with_nul())
            .name(48, name)
            .word(68, NETFILTER);
        let first = make(LOAD, &mut attributes.clone());
        let loaded = first.or_else(|refusal| {
            // Once more, to hear why.
            let mut log = vec![0_u8; LOG];
            let size = u32::try_from(log.len()).unwrap_or(0);
            let mut attributes = attributes.word(24, 1).word(28, size).double(32, log.as_mut_ptr() as u64);
            make(LOAD, &mut attributes).map_err(|_| {
                let said = String::from_utf8_lossy(&log);
                let said = said.trim_end_matches('\0').trim_end();
                let from = said.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
                Error::Program { name: name.to_owned(), source: refusal, log: said[from..].to_owned() }
            })
        });
        Ok(Self { name: name.to_owned(), descriptor: loaded? })
    }

    /// Runs it on a frame that arrives nowhere, and says what it answers. No connection is known for such a packet.
    pub fn judge(&self, frame: &[u8]) -> Result<u32, Error> {
        let size = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let mut attributes =
            Attributes::new().descriptor(0, &self.descriptor).word(8, size).memory(16, frame).word(32, 1);
        let ran = call(RUN, &mut attributes);
        ran.map_err(|source| Error::Refused { operation: "run program", what: self.name.clone(), source })?;
        let answer: [u8; 4] = attributes.0[4..8].try_into().unwrap_or_default();
        Ok(u32::from_ne_bytes(answer))
    }
}

/// A program that is asked. It ends with its last file: with this one, unless it is pinned.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Has the program asked in the network namespace of this thread, at the first of these places that no other program has. Lower ones come first.
    pub fn attach(
        program: &Program,
        family: Family,
        hook: Hook,
        priorities: impl IntoIterator<Item = i32>,
    ) -> Result<Self, Error> {
        let refused = |source| Error::Refused { operation: "attach program", what: program.name.clone(), source };
        let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
        for priority in priorities {
            let mut attributes = Attributes::new()
                .descriptor(0, &program.descriptor)
                .word(8, NETFILTER)
                .word(16, if family == Family::Four { 2 } else { 10 })
                .word(20, if hook == Hook::Input { 1 } else { 2 })
                .word(24, priority.cast_unsigned());
            match make(LINK, &mut attributes) {
                Ok(descriptor) => return Ok(Self(descriptor)),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => last = error,
                Err(error) => return Err(refused(error)),
            }
        }
        Err(refused(last))
    }

    /// Lets it outlive this process.
    pub fn pin(&self, path: &Path) -> Result<(), Error> {
        pin(&self.0, path)
    }
}
