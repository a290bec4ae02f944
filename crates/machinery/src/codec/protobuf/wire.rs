//! The wire format: tags, varints and lengths.

use super::Error;

/// The four wire types in use.
pub const VARINT: u8 = 0;
pub const FIXED64: u8 = 1;
pub const BYTES: u8 = 2;
pub const FIXED32: u8 = 5;

/// One field as it lies on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    pub number: u32,
    pub kind: u8,
    /// The value of a varint or a fixed number.
    pub number_value: u64,
    /// The bytes of a length-delimited field.
    pub bytes: &'a [u8],
}

/// Reads one message, piece by piece.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next piece, or the end.
    pub fn next(&mut self) -> Result<Option<Piece<'a>>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Error::Truncated)?;
        let kind = (tag & 7) as u8;
        let mut piece = Piece { number, kind, number_value: 0, bytes: &[] };
        match kind {
            VARINT => piece.number_value = self.varint()?,
            FIXED64 => piece.number_value = u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Error::Truncated)?),
            FIXED32 => {
                let bytes = self.take(4)?.try_into().map_err(|_| Error::Truncated)?;
                piece.number_value = u64::from(u32::from_le_bytes(bytes));
            }
            BYTES => {
                let length = usize::try_from(self.varint()?).map_err(|_| Error::Truncated)?;
                piece.bytes = self.take(length)?;
            }
            // Groups were never used; anything else is no protobuf.
            _ => return Err(Error::Truncated),
        }
        Ok(Some(piece))
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for (place, byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.0 = &self.0[place + 1..];
                return Ok(value);
            }
        }
        Err(Error::Truncated)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field's tag.
pub fn put_tag(out: &mut Vec<u8>, number: u32, kind: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(kind));
}

/// Appends a length-delimited field.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a varint field.
pub fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_tag(out, number, VARINT);
    put_varint(out, value);
}
