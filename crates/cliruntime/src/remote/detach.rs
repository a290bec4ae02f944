//! Keys that end a conversation and leave the container alone, such as `ctrl-p,ctrl-q`.

/// A sequence of keys, and how much of it was typed.
pub struct Keys {
    sequence: Vec<u8>,
    typed: usize,
}

impl Keys {
    /// Reads `ctrl-p,ctrl-q` and plain characters.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut sequence = Vec::new();
        for key in text.split(',') {
            let unknown = || format!("unknown character: '{key}'");
            match key.strip_prefix("ctrl-") {
                None if key.len() == 1 && key.is_ascii() => sequence.push(key.as_bytes()[0]),
                None => return Err(unknown()),
                Some(letter) => sequence.push(match letter.as_bytes() {
                    [letter @ b'a'..=b'z'] => letter - b'a' + 1,
                    b"@" => 0,
                    b"[" => 27,
                    b"\\" => 28,
                    b"]" => 29,
                    b"^" => 30,
                    b"_" => 31,
                    _ => return Err(unknown()),
                }),
            }
        }
        Ok(Self { sequence, typed: 0 })
    }

    /// What is to be sent of what was typed, and whether that was the end. A beginning of the sequence is held back.
    pub fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut sent = Vec::with_capacity(typed.len());
        for key in typed {
            if *key != self.sequence[self.typed] {
                sent.extend_from_slice(&self.sequence[..self.typed]);
                self.typed = 0;
            }
            if *key == self.sequence[self.typed] {
                self.typed += 1;
                if self.typed == self.sequence.len() {
                    return (sent, true);
                }
            } else {
                sent.push(*key);
            }
        }
        (sent, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_ends_and_its_beginning_waits() {
        let mut keys = Keys::parse("ctrl-p,ctrl-q").expect("keys");
        assert_eq!(keys.pass(b"ab"), (b"ab".to_vec(), false));
        assert_eq!(keys.pass(b"c\x10"), (b"c".to_vec(), false));
        assert_eq!(keys.pass(b"d"), (b"\x10d".to_vec(), false));
        assert_eq!(keys.pass(b"\x10\x10"), (b"\x10".to_vec(), false));
        assert_eq!(keys.pass(b"\x11x"), (b"".to_vec(), true));
        let mut one = Keys::parse("ctrl-],q").expect("keys");
        assert_eq!(one.pass(b"a\x1dq"), (b"a".to_vec(), true));
        for odd in ["", "ctrl-", "ctrl-1", "long", "a,,b"] {
            assert!(Keys::parse(odd).is_err(), "{odd}");
        }
    }
}
