//! The few kinds of tar entries an image layer needs, written deterministically: no owner but root, no time but zero.

const BLOCK: usize = 512;

/// One file of an archive.
#[derive(Debug, Clone)]
pub struct Entry {
    path: String,
    mode: u32,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Directory,
    File(Vec<u8>),
    Link(String),
}

impl Entry {
    pub fn directory(path: &str, mode: u32) -> Self {
        Self { path: format!("{path}/"), mode, kind: Kind::Directory }
    }

    pub fn file(path: &str, mode: u32, content: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode, kind: Kind::File(content) }
    }

    pub fn link(path: &str, target: &str) -> Self {
        Self { path: path.to_owned(), mode: 0o777, kind: Kind::Link(target.to_owned()) }
    }
}

/// The entries as one archive, in the order given.
///
/// # Panics
/// When a path is longer than the 100 bytes a plain header holds: archives are made by this program, not by users.
pub fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        out.extend_from_slice(&header(entry));
        if let Kind::File(content) = &entry.kind {
            out.extend_from_slice(content);
            out.resize(out.len().next_multiple_of(BLOCK), 0);
        }
    }
    // Two empty blocks end an archive.
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

fn header(entry: &Entry) -> [u8; BLOCK] {
    let (size, flag, target) = match &entry.kind {
        Kind::Directory => (0, b'5', ""),
        Kind::File(content) => (content.len(), b'0', ""),
        Kind::Link(target) => (0, b'2', target.as_str()),
    };
    let mut block = [0; BLOCK];
    put(&mut block, 0, 100, entry.path.as_bytes());
    put(&mut block, 100, 8, format!("{:07o}", entry.mode).as_bytes());
    put(&mut block, 108, 8, b"0000000");
    put(&mut block, 116, 8, b"0000000");
    put(&mut block, 124, 12, format!("{size:011o}").as_bytes());
    put(&mut block, 136, 12, b"00000000000");
    block[156] = flag;
    put(&mut block, 157, 100, target.as_bytes());
    put(&mut block, 257, 8, b"ustar\x0000");
    // The checksum counts its own field as spaces.
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    put(&mut block, 148, 8, format!("{sum:06o}\0 ").as_bytes());
    block
}

fn put(block: &mut [u8; BLOCK], at: usize, room: usize, bytes: &[u8]) {
    assert!(bytes.len() <= room, "tar field too long: {}", String::from_utf8_lossy(bytes));
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn the_systems_tar_reads_what_we_write() {
        let bytes = archive(&[
            Entry::directory("bin", 0o755),
            Entry::file("bin/sh", 0o755, vec![7; 1000]),
            Entry::link("bin/ls", "sh"),
        ]);
        let mut tar = Command::new("tar")
            .args(["--numeric-owner", "--utc", "-tvf", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&bytes).unwrap();
        let listed = String::from_utf8(tar.wait_with_output().unwrap().stdout).unwrap();
        let words: Vec<Vec<&str>> = listed.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(words[0][..3], ["drwxr-xr-x", "0/0", "0"]);
        assert_eq!(words[1], ["-rwxr-xr-x", "0/0", "1000", "1970-01-01", "00:00", "bin/sh"]);
        assert_eq!(words[2][5..], ["bin/ls", "->", "sh"]);
    }
}
