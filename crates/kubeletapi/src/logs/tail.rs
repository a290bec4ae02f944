//! Where the last lines of a log begin. The file is read backwards, so that its size does not matter.

use std::io::{Read, Seek, SeekFrom};

use super::record::Record;

const BLOCK: usize = 64 << 10;
/// Enough for everything in front of a record's content.
const HEAD: usize = 128;

/// The place in the file from which the last `lines` lines can be read. Records of one line count once.
pub fn start(file: &mut (impl Read + Seek), lines: u64) -> std::io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut scan = Scan { lines, seen: 0, next: length, last: true };
    if lines == 0 {
        return Ok(length);
    }
    let mut end = length;
    // What follows the block at hand: a record may begin in one block and be recognized only with the next.
    let mut head: Vec<u8> = Vec::new();
    let mut at_end = true;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK as u64);
        let size = usize::try_from(end - begin).expect("a block fits");
        let mut block = vec![0; size];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut block)?;
        block.extend_from_slice(&head);
        for position in (0..size).rev().filter(|position| block[*position] == b'\n') {
            // The newline at the end of the file begins nothing.
            if std::mem::take(&mut at_end) && begin + position as u64 + 1 == length {
                continue;
            }
            if let Some(found) = scan.record(begin + position as u64 + 1, &block[position + 1..]) {
                return Ok(found);
            }
        }
        if begin == 0 {
            return Ok(scan.record(0, &block).unwrap_or(0));
        }
        block.truncate(HEAD);
        head = block;
        end = begin;
    }
    Ok(0)
}

struct Scan {
    lines: u64,
    seen: u64,
    /// Where the record after the one looked at begins.
    next: u64,
    last: bool,
}

impl Scan {
    /// Looks at the record that begins here; says where to begin once there are lines enough after it.
    fn record(&mut self, begin: u64, bytes: &[u8]) -> Option<u64> {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let ends_a_line = match Record::parse(&line[..line.len().min(HEAD)]) {
            Some(record) => !record.partial || self.last,
            None => false,
        };
        self.last = false;
        if ends_a_line {
            if self.seen == self.lines {
                return Some(self.next);
            }
            self.seen += 1;
        }
        self.next = begin;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[track_caller]
    fn check(log: &str, table: &[(u64, &str)]) {
        for (lines, expect) in table {
            let start = start(&mut Cursor::new(log.as_bytes()), *lines).unwrap();
            let rest = &log[usize::try_from(start).unwrap()..];
            let shown: Vec<&str> = rest.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
            assert_eq!(shown.join("|"), *expect, "tail of {lines}");
        }
    }

    #[test]
    fn the_last_lines_are_found() {
        let log = "t stdout F one\nt stderr F two\nt stdout F three\n";
        check(log, &[(0, ""), (1, "three"), (2, "two|three"), (3, "one|two|three"), (9, "one|two|three")]);
        check("", &[(0, ""), (5, "")]);
    }

    #[test]
    fn a_line_in_several_records_counts_once() {
        let log = "t stdout F one\nt stdout P a\nt stdout P b\nt stdout F c\nt stdout F last\n";
        check(log, &[(1, "last"), (2, "a|b|c|last"), (3, "one|a|b|c|last")]);
        // The last line is not at its end yet.
        check("t stdout F one\nt stdout P a\n", &[(1, "a"), (2, "one|a")]);
    }

    #[test]
    fn a_record_being_written_counts_as_a_line() {
        check("t stdout F one\nt stdout F tw", &[(1, "tw"), (2, "one|tw")]);
    }

    #[test]
    fn blocks_do_not_matter() {
        let line = |n: usize| format!("2026-01-01T00:00:00.123456789Z stdout F {n:01000}\n");
        let log: String = (0..300).map(line).collect();
        for lines in [1u64, 63, 64, 65, 66, 127, 130, 299, 300, 301] {
            let start = start(&mut Cursor::new(log.as_bytes()), lines).unwrap();
            let expect = log.len() as u64 - lines.min(300) * line(0).len() as u64;
            assert_eq!(start, expect, "tail of {lines}");
        }
    }
}
