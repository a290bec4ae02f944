//! Archives, packed and taken apart in threads of their own: files are read and written without keeping the network waiting.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::paths;
use crate::remote::{Input, Typed};

/// How much is sent at once.
const PIECE: usize = 64 << 10;

/// What goes to the container.
struct Pipe(mpsc::Sender<Typed>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.blocking_send(Typed::Data(bytes.to_vec())).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Packs a file or a directory under a name, as it is read.
pub fn pack(from: PathBuf, name: String) -> (Input, JoinHandle<Result<(), String>>) {
    let (sender, receiver) = mpsc::channel(16);
    let packing = std::thread::spawn(move || {
        let pipe = io::BufWriter::with_capacity(PIECE, Pipe(sender));
        let mut builder = tar::Builder::new(pipe);
        builder.follow_symlinks(false);
        let packed = add(&mut builder, &from, Path::new(&name));
        let packed = packed.and_then(|()| builder.into_inner()?.flush());
        match packed {
            // The container wanted no more, and says itself why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|error| error.to_string()),
        }
    });
    (receiver, packing)
}

/// Adds a file, a link, or everything in a directory. Only empty directories are entries themselves.
fn add(builder: &mut tar::Builder<impl Write>, from: &Path, name: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(from)?;
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&about);
    if about.is_dir() {
        let mut names: Vec<_> =
            fs::read_dir(from)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
        names.sort();
        if names.is_empty() {
            return builder.append_data(&mut header, name, io::empty());
        }
        return names.into_iter().try_for_each(|child| add(builder, &from.join(&child), &name.join(&child)));
    }
    if about.is_symlink() {
        header.set_size(0);
        return builder.append_link(&mut header, name, fs::read_link(from)?);
    }
    if !about.is_file() {
        header.set_size(0);
        return builder.append_data(&mut header, name, io::empty());
    }
    builder.append_data(&mut header, name, File::open(from)?)
}

/// What comes from the container.
struct Arriving {
    from: Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Arriving {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.piece.read(bytes)? {
                0 => match self.from.recv() {
                    Ok(piece) => self.piece = io::Cursor::new(piece),
                    Err(_) => return Ok(0),
                },
                read => return Ok(read),
            }
        }
    }
}

/// Where an archive is taken apart.
pub struct Unpacking {
    /// What every name in it begins with.
    pub prefix: String,
    pub to: PathBuf,
    /// The destination as the user wrote it, for messages.
    pub shown: String,
    /// A command that copies links, too.
    pub advice: String,
}

/// Takes an archive apart; what was left out is said in warnings.
pub fn unpack(unpacking: Unpacking, from: Receiver<Vec<u8>>) -> JoinHandle<Result<Vec<String>, String>> {
    std::thread::spawn(move || {
        let mut arriving = Arriving { from, piece: io::Cursor::default() };
        let warnings = take_apart(&unpacking, &mut arriving)?;
        // What follows the end of the archive is padding that somebody still has to take.
        io::copy(&mut arriving, &mut io::sink()).map_err(|error| error.to_string())?;
        Ok(warnings)
    })
}

fn take_apart(unpacking: &Unpacking, arriving: &mut Arriving) -> Result<Vec<String>, String> {
    let failed = |error: io::Error| error.to_string();
    let mut warnings = Vec::new();
    let mut advised = false;
    for entry in tar::Archive::new(arriving).entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let name = String::from_utf8(entry.path_bytes().into_owned());
        let name = name.map_err(|error| format!("file name is not UTF-8: {error}"))?;
        let Some(rest) = name.strip_prefix(&unpacking.prefix) else {
            return Err("tar contents corrupted".to_owned());
        };
        let shown = paths::join(&unpacking.shown, rest);
        let Some(below) = paths::below(rest) else {
            warnings.push(format!("warning: file {shown:?} is outside target destination, skipping"));
            continue;
        };
        let to = if below == "." { unpacking.to.clone() } else { unpacking.to.join(below) };
        let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        directory.map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        match entry.header().entry_type() {
            tar::EntryType::Directory => fs::create_dir_all(&to).map_err(failed)?,
            tar::EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let target = String::from_utf8_lossy(&target).into_owned();
                let advice =
                    if advised { String::new() } else { format!(" (consider using \"{}\")", unpacking.advice) };
                warnings.push(format!("warning: skipping symlink: {shown:?} -> {target:?}{advice}"));
                advised = true;
            }
            _ => {
                let mut file = File::create(&to).map_err(failed)?;
                io::copy(&mut entry, &mut file).map_err(failed)?;
            }
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(archive: Vec<u8>, prefix: &str, to: &Path) -> Result<Vec<String>, String> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1024);
        for piece in archive.chunks(700) {
            sender.send(piece.to_vec()).expect("room");
        }
        drop(sender);
        let unpacking =
            Unpacking { prefix: prefix.to_owned(), to: to.to_owned(), shown: "d".to_owned(), advice: "x".to_owned() };
        unpack(unpacking, receiver).join().expect("no panic")
    }

    fn packed(from: &Path, name: &str) -> Vec<u8> {
        let (mut input, packing) = pack(from.to_owned(), name.to_owned());
        let mut archive = Vec::new();
        while let Some(typed) = input.blocking_recv() {
            if let Typed::Data(data) = typed {
                archive.extend(data);
            }
        }
        packing.join().expect("no panic").expect("packed");
        archive
    }

    #[test]
    fn trees_with_odd_names_come_through_and_links_do_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let long = "l".repeat(150);
        fs::create_dir_all(from.join("a b/empty")).expect("directories");
        fs::write(from.join("a b/[x]*?"), "odd").expect("a file");
        fs::write(from.join(&long), vec![7; 100_000]).expect("a file");
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).expect("a link");
        let archive = packed(&from, "src");
        let warnings = unpacked(archive, "src", &to).expect("taken apart");
        assert_eq!(warnings, ["warning: skipping symlink: \"d/link\" -> \"/etc/passwd\" (consider using \"x\")"]);
        assert_eq!(fs::read(to.join("a b/[x]*?")).expect("the file"), b"odd");
        assert_eq!(fs::read(to.join(&long)).expect("the file").len(), 100_000);
        assert!(to.join("a b/empty").is_dir());
        assert!(!to.join("link").exists());
    }

    #[test]
    fn what_would_lie_outside_is_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o644);
        let name = b"src/../../evil";
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, &b"x"[..]).expect("an entry");
        let archive = builder.into_inner().expect("an archive");
        let to = directory.path().join("deep/to");
        let warnings = unpacked(archive.clone(), "src", &to).expect("taken apart");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(!directory.path().join("evil").exists() && !directory.path().join("deep/evil").exists());
        assert_eq!(unpacked(archive, "other", &to), Err("tar contents corrupted".to_owned()));
    }
}
