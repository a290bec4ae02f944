//! Hashes that end up in names and labels.

use machinery::names::SAFE;

/// FNV-1a, 32 bits: what upstream hashes templates with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fnv32(u32);

impl Fnv32 {
    pub fn new() -> Self {
        Self(0x811c_9dc5)
    }

    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    pub fn finish(self) -> u32 {
        self.0
    }
}

/// A number's decimal digits, each mapped to a safe letter.
pub fn safe_encode(number: u32) -> String {
    number.to_string().bytes().map(|digit| SAFE[usize::from(digit) % SAFE.len()] as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_is_the_published_function() {
        let hash = |text: &str| {
            let mut hash = Fnv32::new();
            hash.write(text.as_bytes());
            hash.finish()
        };
        assert_eq!(hash(""), 0x811c_9dc5);
        assert_eq!(hash("a"), 0xe40c_292c);
        assert_eq!(hash("foobar"), 0xbf9c_f968);
    }

    #[test]
    fn encoded_numbers_hold_only_safe_letters() {
        assert_eq!(safe_encode(1_234_567_890), "56789bcdf4");
        assert!(safe_encode(u32::MAX).bytes().all(|byte| SAFE.contains(&byte)));
    }
}
