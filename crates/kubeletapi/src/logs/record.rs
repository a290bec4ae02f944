//! Records of a log file as the runtime writes them: `time stream tag content`, one to a line.
//!
//! A line too long for the runtime's buffer comes as several records, all but the last tagged `P`. Everything here is
//! pure: [`Printer`] turns pieces of a file into what the reader asked to see.

use jiff::Timestamp;

/// Longest record that is kept whole; what is beyond is cut off. Runtimes write far shorter ones.
const LONGEST: usize = 1 << 20;

/// Which of a container's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    pub time: &'a str,
    /// Where it was written to.
    pub stream: Stream,
    /// Whether the line goes on in the stream's next record.
    pub partial: bool,
    pub content: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads a record, given without its newline.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(fields.next()?).ok().filter(|time| !time.is_empty())?;
        let stream = match fields.next()? {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        // There may be more tags, behind colons; only the first has a meaning so far.
        let partial = match fields.next()?.split(|byte| *byte == b':').next()? {
            b"P" => true,
            b"F" => false,
            _ => return None,
        };
        Some(Self { time, stream, partial, content: fields.next().unwrap_or_default() })
    }

    /// The time with nine digits behind the point, so that columns line up.
    fn long_time(&self) -> String {
        let zone = self.time.find(['Z', '+']).or_else(|| self.time.rfind('-').filter(|at| *at > 10));
        let (clock, zone) = self.time.split_at(zone.unwrap_or(self.time.len()));
        let (seconds, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        format!("{seconds}.{fraction:0<9}{zone}")
    }
}

/// What of the records is to be shown, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub stream: Option<Stream>,
    pub since: Option<Timestamp>,
    /// Every line begins with its time.
    pub timestamps: bool,
    /// No more bytes than this.
    pub limit: Option<u64>,
}

/// Turns pieces of a log file into output.
#[derive(Debug)]
pub struct Printer {
    wanted: Wanted,
    /// The beginning of a record whose end was not read yet.
    pending: Vec<u8>,
    /// Set while the rest of a record that is too long is dropped.
    dropping: bool,
    /// The last thing shown did not end its line.
    inside: bool,
    left: Option<u64>,
}

impl Printer {
    /// One that has shown nothing yet.
    pub fn new(wanted: Wanted) -> Self {
        Self { left: wanted.limit, wanted, pending: Vec::new(), dropping: false, inside: false }
    }

    /// Whether all that was asked for has been shown.
    pub fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Takes the next bytes of the file and appends what they show.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if std::mem::take(&mut self.dropping) {
                continue;
            }
            if self.pending.is_empty() {
                self.show(line, false, out);
            } else {
                self.pending.extend_from_slice(line);
                let whole = std::mem::take(&mut self.pending);
                self.show(&whole, false, out);
                self.pending = whole;
                self.pending.clear();
            }
        }
        if self.dropping {
            return;
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() > LONGEST {
            self.dropping = true;
            let cut = std::mem::take(&mut self.pending);
            self.show(&cut, false, out);
        }
    }

    /// The file ends here, perhaps within a record.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.show(&rest, true, out);
        }
    }

    fn show(&mut self, line: &[u8], torn: bool, out: &mut Vec<u8>) {
        let Some(record) = Record::parse(line) else { return };
        if self.wanted.stream.is_some_and(|stream| stream != record.stream) {
            return;
        }
        if let Some(since) = self.wanted.since {
            // A record without a time one can read is not known to be newer.
            if !record.time.parse::<Timestamp>().is_ok_and(|time| time >= since) {
                return;
            }
        }
        if self.wanted.timestamps && !self.inside {
            self.write(record.long_time().as_bytes(), out);
            self.write(b" ", out);
        }
        self.write(record.content, out);
        self.inside = record.partial || torn;
        if !self.inside {
            self.write(b"\n", out);
        }
    }

    fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let bytes = match &mut self.left {
            Some(left) => {
                let fits = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= fits as u64;
                &bytes[..fits]
            }
            None => bytes,
        };
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n\
                       2026-01-01T00:00:02.5Z stderr F two\n\
                       2026-01-01T00:00:03.123456789+02:00 stdout P thr\n\
                       2026-01-01T00:00:04Z stdout F ee\n\
                       garbage\n\
                       2026-01-01T00:00:05Z stdout F \n\
                       2026-01-01T00:00:06Z stdout F:extra  six \n";

    #[track_caller]
    fn check(wanted: Wanted, log: &str, expect: &str) {
        // However the file is cut into pieces, the output is the same.
        for size in [1, 7, 64, 4096] {
            let mut printer = Printer::new(wanted.clone());
            let mut out = Vec::new();
            for piece in log.as_bytes().chunks(size) {
                printer.feed(piece, &mut out);
            }
            printer.finish(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expect, "in pieces of {size}");
        }
    }

    #[test]
    fn records_become_lines() {
        check(Wanted::default(), LOG, "one\ntwo\nthree\n\n six \n");
        check(Wanted { stream: Some(Stream::Stderr), ..Wanted::default() }, LOG, "two\n");
        check(Wanted { stream: Some(Stream::Stdout), ..Wanted::default() }, LOG, "one\nthree\n\n six \n");
        check(Wanted::default(), "", "");
        check(Wanted::default(), "2026-01-01T00:00:01Z stdout F torn of", "torn of");
    }

    #[test]
    fn times_stand_at_the_beginning_of_lines_only() {
        let expect = "2026-01-01T00:00:01.000000000Z one\n\
                      2026-01-01T00:00:02.500000000Z two\n\
                      2026-01-01T00:00:03.123456789+02:00 three\n\
                      2026-01-01T00:00:05.000000000Z \n\
                      2026-01-01T00:00:06.000000000Z  six \n";
        check(Wanted { timestamps: true, ..Wanted::default() }, LOG, expect);
    }

    #[test]
    fn older_records_are_left_out() {
        let since = |time: &str| Wanted { since: Some(time.parse().unwrap()), ..Wanted::default() };
        check(since("2026-01-01T00:00:02.5Z"), LOG, "two\nee\n\n six \n");
        check(since("2026-01-01T00:00:06Z"), LOG, " six \n");
        check(since("2027-01-01T00:00:00Z"), LOG, "");
    }

    #[test]
    fn no_byte_beyond_the_limit_is_shown() {
        let limit = |bytes| Wanted { limit: Some(bytes), ..Wanted::default() };
        check(limit(5), LOG, "one\nt");
        check(limit(1000), LOG, "one\ntwo\nthree\n\n six \n");
        check(Wanted { timestamps: true, limit: Some(4), ..Wanted::default() }, LOG, "2026");
        let mut printer = Printer::new(limit(3));
        printer.feed(LOG.as_bytes(), &mut Vec::new());
        assert!(printer.is_done());
    }

    #[test]
    fn a_record_without_end_is_cut() {
        let mut printer = Printer::new(Wanted::default());
        let mut out = Vec::new();
        printer.feed(b"2026-01-01T00:00:01Z stdout F ", &mut out);
        for _ in 0..64 {
            printer.feed(&[b'x'; 64 << 10], &mut out);
            assert!(printer.pending.len() <= LONGEST + (64 << 10));
        }
        printer.feed(b"end\n2026-01-01T00:00:01Z stdout F next\n", &mut out);
        assert!(out.len() < 2 * LONGEST && out.ends_with(b"x\nnext\n"), "{}", out.len());
    }

    #[test]
    fn what_is_no_record_is_not_shown() {
        for line in ["", "x", "t stdin F a", "t stdout X a", "t stdout", " stdout F a"] {
            assert_eq!(Record::parse(line.as_bytes()), None, "{line:?}");
        }
    }
}
