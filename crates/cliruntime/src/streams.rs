//! What a command reads and writes. Tests hand in memory, the binary its own standard streams.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use crate::trace::Trace;

/// Standard input, output and error.
pub struct Streams {
    pub input: Box<dyn Read + Send>,
    pub out: Box<dyn Write + Send>,
    pub err: Box<dyn Write + Send>,
    /// Whether a person looks at the output.
    pub terminal: bool,
    /// Whether a person types the input.
    pub typed: bool,
    /// Where `-v` writes.
    pub trace: Trace,
    /// Whether they are the process' own, so that a program can be given them.
    pub own: bool,
}

impl Streams {
    /// Those of the process.
    pub fn standard() -> Self {
        use std::io::IsTerminal as _;
        Self {
            input: Box::new(std::io::stdin()),
            out: Box::new(std::io::BufWriter::with_capacity(64 << 10, std::io::stdout())),
            err: Box::new(std::io::stderr()),
            terminal: std::io::stdout().is_terminal(),
            typed: std::io::stdin().is_terminal(),
            trace: Trace::new(Box::new(std::io::stderr())),
            own: true,
        }
    }

    /// Memory, with something to read.
    pub fn memory(input: &[u8]) -> (Self, Memory, Memory) {
        let (out, err) = (Memory::default(), Memory::default());
        let streams = Self {
            input: Box::new(std::io::Cursor::new(input.to_vec())),
            out: Box::new(out.clone()),
            err: Box::new(err.clone()),
            terminal: false,
            typed: false,
            trace: Trace::new(Box::new(err.clone())),
            own: false,
        };
        (streams, out, err)
    }

    /// Writes a line, which is seen at once: what follows it may take long, as the end of a pod does. A reader that went away
    /// ends the program, as it does every other.
    pub fn line(&mut self, text: &str) -> std::io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }

    /// Writes what there may be much of, as a table is; it is seen when there is enough of it, or at the end.
    pub fn text(&mut self, text: &str) -> std::io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    /// Hands the input over to somebody who reads it elsewhere; nothing is left of it here.
    pub fn take_input(&mut self) -> Box<dyn Read + Send> {
        std::mem::replace(&mut self.input, Box::new(std::io::empty()))
    }

    /// Writes a line to standard error, after what was written to standard output before it.
    pub fn error(&mut self, text: &str) {
        // There is nobody left to tell if this fails.
        let _ = self.out.flush();
        let _ = writeln!(self.err, "{text}");
    }
}

impl Streams {
    /// A line as upstream's log writes it.
    pub fn log(&mut self, level: char, place: &str, text: &str) {
        self.error(&log_line(level, place, text));
    }
}

/// A line as upstream's log writes it.
pub fn log_line(level: char, place: &str, text: &str) -> String {
    let now = jiff::Zoned::now();
    let time = now.strftime("%m%d %H:%M:%S.%6f").to_string();
    format!("{level}{time} {:7} {place}] {text}", std::process::id())
}

/// What was written, shared with whoever reads it afterwards.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    pub fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_seen_before_whatever_follows_it() {
        let (mut streams, out, _) = Streams::memory(b"");
        streams.out = Box::new(std::io::BufWriter::new(out.clone()));
        streams.text("a table").expect("written");
        assert_eq!(out.text(), "");
        streams.line(", and a line").expect("written");
        assert_eq!(out.text(), "a table, and a line\n");
    }
}
