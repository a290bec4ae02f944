//! Who wrote a value: blanks behind a JSON document, drawn for one write, which no reader of the document sees.
//!
//! A write whose answer was lost with etcd's leader is sent again. It fails if the first attempt did it, and the key then holds what was to be written. So it
//! does where another server wrote the same over the same revision, as those do that count one thing: only one of them may believe that it did. The
//! mark tells them apart. It stays in etcd, 16 bytes behind the document; here it is taken off whatever is read.

use bytes::Bytes;

const LENGTH: usize = 16;
/// What JSON calls a blank: two bits each.
const BLANKS: [u8; 4] = *b" \t\n\r";

#[derive(Debug, Clone, Copy)]
pub(super) struct Mark([u8; LENGTH]);

impl Mark {
    /// For a write of this value, if it is a document. Others, sealed ones for instance, stay as they are.
    pub(super) fn draw(value: &[u8]) -> Option<Self> {
        is_document(value).then(|| Self::of(rand::random()))
    }

    fn of(number: u32) -> Self {
        Self(std::array::from_fn(|place| BLANKS[(number >> (2 * place)) as usize & 3]))
    }

    /// The value as it is written.
    pub(super) fn on(&self, value: &[u8]) -> Bytes {
        [value, &self.0].concat().into()
    }

    /// Whether what was found is this value, as this write wrote it.
    pub(super) fn is_on(&self, value: &[u8], found: &[u8]) -> bool {
        found.strip_suffix(&self.0) == Some(value)
    }
}

/// What was read, without the mark of who wrote it.
pub(super) fn without(value: Vec<u8>) -> Bytes {
    let value = Bytes::from(value);
    match value.len().checked_sub(LENGTH) {
        Some(length) if is_document(&value) && value[length..].iter().all(|byte| BLANKS.contains(byte)) => {
            value.slice(..length)
        }
        _ => value,
    }
}

fn is_document(value: &[u8]) -> bool {
    value.first() == Some(&b'{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_seen_by_who_drew_it_and_by_nobody_else() {
        let value = br#"{"kind":"Pod"}"#;
        let (mine, theirs) = (Mark::of(0x1234_5678), Mark::of(0x1234_5679));
        let written = mine.on(value);
        assert!(mine.is_on(value, &written) && !theirs.is_on(value, &written) && !mine.is_on(value, value));
        assert!(!mine.is_on(b"{}", &written));
        assert_eq!(without(written.to_vec()), &value[..]);
        let read: serde_json::Value = serde_json::from_slice(&written).expect("JSON, whatever is behind it");
        assert_eq!(read["kind"], "Pod");
    }

    #[test]
    fn what_has_no_mark_is_read_as_it_is() {
        for value in
            [&b""[..], b"{}", b"{\"a\":\"b\"}\n", b"k8s:enc:aescbc:v1:                    ", b"                    "]
        {
            assert_eq!(without(value.to_vec()), value);
        }
        assert!(Mark::draw(b"k8s:enc:").is_none() && Mark::draw(b"").is_none() && Mark::draw(b"{}").is_some());
    }
}
