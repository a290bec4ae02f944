//! The pause program: the first process of every sandbox, made here byte by byte.
//!
//! It holds the sandbox's namespaces open, buries orphans when containers share its process namespace, and leaves on
//! SIGTERM or SIGINT. That is so little that a compiler on the user's machine, or a binary in the repository, would be
//! the larger burden; [`pause`] assembles a static ELF file of a few hundred bytes instead.
//!
//! The program, in the same order on every architecture:
//! ```text
//!         block {SIGINT, SIGTERM, SIGCHLD}     blocked signals reach even process 1 of a namespace through sigtimedwait
//! wait:   signal = rt_sigtimedwait(those)
//!         signal < 0        -> wait            interrupted
//!         signal == SIGCHLD -> reap
//!         exit(0)
//! reap:   wait4(any, WNOHANG) > 0 -> reap      every child that is ready
//!         -> wait
//! ```

/// Where the file is mapped: the customary address of static programs.
const BASE: u64 = 0x40_0000;
/// Size of the ELF header and of one program header: the code follows them.
const HEADERS: u64 = 64 + 56;
/// Bits of SIGINT (2), SIGTERM (15) and SIGCHLD (17) in a kernel signal set.
const SIGNALS: u32 = 1 << 1 | 1 << 14 | 1 << 16;

/// The pause program for an architecture as [`std::env::consts::ARCH`] names it, or nothing when it is not known here.
pub fn pause(architecture: &str) -> Option<Vec<u8>> {
    let (machine, code) = match architecture {
        "x86_64" => (62, x86_64()),
        "aarch64" => (183, aarch64()),
        _ => return None,
    };
    Some(executable(machine, &code))
}

/// One loadable, executable, unwritable segment that holds the headers and the code.
fn executable(machine: u16, code: &[u8]) -> Vec<u8> {
    let size = HEADERS + code.len() as u64;
    let mut file = Vec::with_capacity(size as usize);
    file.extend_from_slice(b"\x7fELF\x02\x01\x01"); // 64 bits, little endian, version 1
    file.resize(16, 0);
    file.extend_from_slice(&2u16.to_le_bytes()); // an executable
    file.extend_from_slice(&machine.to_le_bytes());
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&(BASE + HEADERS).to_le_bytes()); // entry
    file.extend_from_slice(&64u64.to_le_bytes()); // program headers follow this one
    file.extend_from_slice(&0u64.to_le_bytes()); // no sections
    file.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 56, 1, 0, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes()); // header sizes and counts
    }
    file.extend_from_slice(&1u32.to_le_bytes()); // PT_LOAD
    file.extend_from_slice(&5u32.to_le_bytes()); // readable, executable
    for long in [0, BASE, BASE, size, size, 0x1000] {
        file.extend_from_slice(&long.to_le_bytes()); // offset, addresses, sizes, alignment
    }
    file.extend_from_slice(code);
    file
}

/// A jump's distance, from the byte after it to its target.
fn rel8(from: usize, to: usize) -> u8 {
    let distance = to as i64 - from as i64;
    i8::try_from(distance).expect("the whole program is shorter than a short jump reaches") as u8
}

fn x86_64() -> Vec<u8> {
    let mut c = Vec::new();
    c.push(0x68); // push SIGNALS
    c.extend_from_slice(&SIGNALS.to_le_bytes());
    c.extend_from_slice(&[0x48, 0x89, 0xe6]); // mov rsi, rsp
    c.extend_from_slice(&[0x31, 0xff]); // xor edi, edi: SIG_BLOCK
    c.extend_from_slice(&[0x31, 0xd2]); // xor edx, edx: the old set does not matter
    c.extend_from_slice(&[0x41, 0xba, 8, 0, 0, 0]); // mov r10d, 8: size of a signal set
    c.extend_from_slice(&[0xb8, 14, 0, 0, 0]); // mov eax, rt_sigprocmask
    c.extend_from_slice(&[0x0f, 0x05]); // syscall
    let wait = c.len();
    c.extend_from_slice(&[0x48, 0x89, 0xe7]); // mov rdi, rsp
    c.extend_from_slice(&[0x31, 0xf6]); // xor esi, esi: no siginfo
    c.extend_from_slice(&[0x31, 0xd2]); // xor edx, edx: no timeout
    c.extend_from_slice(&[0x41, 0xba, 8, 0, 0, 0]); // mov r10d, 8
    c.extend_from_slice(&[0xb8, 128, 0, 0, 0]); // mov eax, rt_sigtimedwait
    c.extend_from_slice(&[0x0f, 0x05]); // syscall
    c.extend_from_slice(&[0x85, 0xc0]); // test eax, eax
    c.extend_from_slice(&[0x78, rel8(c.len() + 2, wait)]); // js wait
    c.extend_from_slice(&[0x83, 0xf8, 17]); // cmp eax, SIGCHLD
    let to_reap = c.len();
    c.extend_from_slice(&[0x74, 0]); // je reap
    c.extend_from_slice(&[0x31, 0xff]); // xor edi, edi
    c.extend_from_slice(&[0xb8, 60, 0, 0, 0]); // mov eax, exit
    c.extend_from_slice(&[0x0f, 0x05]); // syscall
    let reap = c.len();
    c[to_reap + 1] = rel8(to_reap + 2, reap);
    c.extend_from_slice(&[0xbf, 0xff, 0xff, 0xff, 0xff]); // mov edi, -1: any child
    c.extend_from_slice(&[0x31, 0xf6]); // xor esi, esi
    c.extend_from_slice(&[0xba, 1, 0, 0, 0]); // mov edx, WNOHANG
    c.extend_from_slice(&[0x45, 0x31, 0xd2]); // xor r10d, r10d
    c.extend_from_slice(&[0xb8, 61, 0, 0, 0]); // mov eax, wait4
    c.extend_from_slice(&[0x0f, 0x05]); // syscall
    c.extend_from_slice(&[0x85, 0xc0]); // test eax, eax
    c.extend_from_slice(&[0x7f, rel8(c.len() + 2, reap)]); // jg reap
    c.extend_from_slice(&[0xeb, rel8(c.len() + 2, wait)]); // jmp wait
    c
}

fn aarch64() -> Vec<u8> {
    const fn mov(d: u32, value: u32) -> u32 {
        0xd280_0000 | value << 5 | d
    }
    /// add Xd, sp, #0
    const fn mov_sp(d: u32) -> u32 {
        0x9100_03e0 | d
    }
    /// cmp w0, #value
    const fn cmp(value: u32) -> u32 {
        0x7100_001f | value << 10
    }
    /// A word distance in a field of `bits` bits at bit `at`.
    const fn distance(from: usize, to: usize, bits: u32, at: u32) -> u32 {
        ((to as i32 - from as i32) as u32 & ((1 << bits) - 1)) << at
    }
    const SVC: u32 = 0xd400_0001;
    const WAIT: usize = 9;
    const REAP: usize = 21;
    let words = [
        mov(0, SIGNALS & 0xffff),
        0xf2a0_0000 | (SIGNALS >> 16) << 5, // movk x0, #high, lsl #16
        0xf81f_0fe0,                        // str x0, [sp, #-16]!
        mov(0, 0),                          // SIG_BLOCK
        mov_sp(1),
        mov(2, 0),
        mov(3, 8),
        mov(8, 135), // rt_sigprocmask
        SVC,
        mov_sp(0), // wait:
        mov(1, 0),
        mov(2, 0),
        mov(3, 8),
        mov(8, 137), // rt_sigtimedwait
        SVC,
        0x37f8_0000 | distance(15, WAIT, 14, 5), // tbnz w0, #31, wait
        cmp(17),                                 // SIGCHLD
        0x5400_0000 | distance(17, REAP, 19, 5), // b.eq reap
        mov(0, 0),
        mov(8, 93), // exit
        SVC,
        0x9280_0000, // reap: mov x0, #-1
        mov(1, 0),
        mov(2, 1), // WNOHANG
        mov(3, 0),
        mov(8, 260), // wait4
        SVC,
        cmp(0),
        0x5400_000c | distance(28, REAP, 19, 5), // b.gt reap
        0x1400_0000 | distance(29, WAIT, 26, 0), // b wait
    ];
    words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn the_program_waits_and_leaves_on_sigterm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pause");
        std::fs::write(&path, pause(std::env::consts::ARCH).unwrap()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = std::process::Command::new(&path).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        // A child's death must not end it: signal 17 comes back from sigtimedwait and finds nobody to reap.
        rustix::process::kill_process(pid, rustix::process::Signal::CHILD).unwrap();
        assert!(child.try_wait().unwrap().is_none());
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        // Killed before it had blocked the signal, or left by itself after: both are the end that was asked for.
        assert!(status.success() || status.signal() == Some(15), "{status}");
    }

    #[test]
    fn unknown_architectures_have_no_program() {
        assert!(pause("vax").is_none());
        assert_eq!(&pause("aarch64").unwrap()[..4], b"\x7fELF");
    }

    #[test]
    fn the_arm_encoding_is_what_an_assembler_writes() {
        let words: Vec<String> =
            aarch64().chunks(4).map(|w| format!("{:08x}", u32::from_le_bytes([w[0], w[1], w[2], w[3]]))).collect();
        let assembled = "d2880040 f2a00020 f81f0fe0 d2800000 910003e1 d2800002 d2800103 d28010e8 d4000001 910003e0 \
            d2800001 d2800002 d2800103 d2801128 d4000001 37ffff40 7100441f 54000080 d2800000 d2800ba8 \
            d4000001 92800000 d2800001 d2800022 d2800003 d2802088 d4000001 7100001f 54ffff2c 17ffffec";
        assert_eq!(words.join(" "), assembled);
    }
}
