//! Small changes of an input.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// What some reader somewhere looks at.
const WORDS: [&[u8]; 24] = [
    b"null",
    b"{}",
    b"[]",
    b"[null]",
    b"\"\"",
    b"{\"\":null}",
    b"-1",
    b"1e1000",
    b"9223372036854775808",
    b"18446744073709551616",
    b"-0.0",
    b"\"0001-01-01T00:00:00Z\"",
    b"\"9999-12-31T23:59:59.999999999Z\"",
    b"\"9223372036854775807Ei\"",
    b"\"1e1000\"",
    b"\"0.1n\"",
    b"\"\\ud83d\"",
    b"\xff\xfe",
    b"&a [*a]",
    b"<<: ",
    b"!!binary ",
    b"\0",
    b"\xd9\xd9\xf7",
    b"k8s\0",
];

pub fn mutate(random: &mut StdRng, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=input.len());
        let end = random.random_range(at..=input.len().min(at + 64));
        match random.random_range(0..8) {
            0 if at < input.len() => input[at] = random.random(),
            1 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            2 => input.truncate(at.max(1)),
            3 => {
                input.drain(at..end);
            }
            4 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            5 if !other.is_empty() => {
                let from = random.random_range(0..other.len());
                let to = random.random_range(from..=other.len().min(from + 256));
                input.splice(at..end, other[from..to].iter().copied());
            }
            _ => {
                let word = WORDS.choose(random).copied().unwrap_or_default();
                input.splice(at..end, word.iter().copied());
            }
        }
    }
}
