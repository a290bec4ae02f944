//! What the running kernel says of its own structures and functions (`/sys/kernel/btf/vmlinux`): where a field is, and which number a
//! function has. Both differ from kernel to kernel, so a program is made from what is read here and never from what was seen elsewhere.

use std::collections::HashMap;

use super::Error;

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNCTION: u32 = 12;
/// So deep may structures without a name be within each other.
const DEPTH: usize = 16;

/// The kernel's description of itself.
#[derive(Debug)]
pub struct Types {
    bytes: Vec<u8>,
    strings: usize,
    /// Where each type begins; the first one has number 1.
    places: Vec<usize>,
    structures: HashMap<String, usize>,
    functions: HashMap<String, usize>,
}

impl Types {
    pub fn of_kernel() -> Result<Self, Error> {
        Self::parse(std::fs::read(PATH).map_err(|source| Error::Refused {
            operation: "read",
            what: PATH.into(),
            source,
        })?)
    }

    fn parse(bytes: Vec<u8>) -> Result<Self, Error> {
        let torn = || Error::Types("its types in a form that is known".to_owned());
        if bytes.get(..2) != Some(&MAGIC.to_ne_bytes()) {
            return Err(torn());
        }
        let header = word(&bytes, 4).ok_or_else(torn)? as usize;
        let part = |at| Some(word(&bytes, at)? as usize);
        let (first, length, strings) =
            (part(8).zip(part(12)).zip(part(16))).map(|((a, b), c)| (a, b, c)).ok_or_else(torn)?;
        let mut types = Self {
            strings: header + strings,
            places: vec![0],
            structures: HashMap::new(),
            functions: HashMap::new(),
            bytes,
        };
        let mut at = header + first;
        while at < header + first + length {
            let info = word(&types.bytes, at + 4).ok_or_else(torn)?;
            let (kind, count) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
            let number = types.places.len();
            match kind {
                STRUCT => drop(types.structures.insert(types.name(at), number)),
                FUNCTION => drop(types.functions.insert(types.name(at), number)),
                _ => {}
            }
            types.places.push(at);
            at += 12
                + match kind {
                    1 | 14 | 17 => 4,
                    3 => 12,
                    STRUCT | UNION | 15 | 19 => count * 12,
                    6 | 13 => count * 8,
                    2 | 7..=12 | 16 | 18 => 0,
                    _ => return Err(torn()),
                };
        }
        Ok(types)
    }

    fn name(&self, at: usize) -> String {
        let from = self.strings + word(&self.bytes, at).unwrap_or(0) as usize;
        let bytes = self.bytes.get(from..).unwrap_or_default();
        String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
    }

    /// The number of a function, by which programs call it.
    pub fn function(&self, name: &str) -> Result<i32, Error> {
        let number = self.functions.get(name).and_then(|number| i32::try_from(*number).ok());
        number.ok_or_else(|| Error::Types(format!("{name}()")))
    }

    /// Where a field is in a structure, in bytes.
    pub fn offset(&self, structure: &str, field: &str) -> Result<i16, Error> {
        let place = self.structures.get(structure).and_then(|number| self.places.get(*number));
        let bits = place.and_then(|at| self.bits(*at, field, DEPTH));
        let bytes = bits.filter(|bits| bits % 8 == 0).and_then(|bits| i16::try_from(bits / 8).ok());
        bytes.ok_or_else(|| Error::Types(format!("{structure}.{field}")))
    }

    /// Structures without a name are part of the one that they are in.
    fn bits(&self, at: usize, field: &str, depth: usize) -> Option<u32> {
        let info = word(&self.bytes, at + 4)?;
        let packed = info >> 31 == 1;
        (0..(info & 0xffff) as usize).find_map(|member| {
            let member = at + 12 + member * 12;
            let offset = word(&self.bytes, member + 8)?;
            let offset = if packed { offset & 0xff_ffff } else { offset };
            match self.name(member) {
                name if name == field => Some(offset),
                name if name.is_empty() && depth > 0 => {
                    let inner = *self.places.get(word(&self.bytes, member + 4)? as usize)?;
                    let kind = (word(&self.bytes, inner + 4)? >> 24) & 0x1f;
                    let found = matches!(kind, STRUCT | UNION).then(|| self.bits(inner, field, depth - 1));
                    Some(offset + found.flatten()?)
                }
                _ => None,
            }
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { u32 a; struct { u32 b; }; }` and `f()`.
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0a\0b\0f\0";
        let entry = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let types = [
            entry(&[0, 1 << 24, 4, 32]),
            entry(&[0, (STRUCT << 24) | 1, 4, 9, 1, 0]),
            entry(&[1, (STRUCT << 24) | 2, 8, 7, 1, 0, 0, 2, 32]),
            entry(&[11, FUNCTION << 24, 1]),
        ]
        .concat();
        let length = u32::try_from(types.len()).unwrap();
        let mut out = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
        out.extend(entry(&[24, 0, length, length, u32::try_from(strings.len()).unwrap()]));
        out.extend(types);
        out.extend(strings);
        out
    }

    #[test]
    fn fields_are_found_within_structures_without_a_name() {
        let types = Types::parse(sample()).unwrap();
        assert_eq!(types.offset("outer", "a").unwrap(), 0);
        assert_eq!(types.offset("outer", "b").unwrap(), 4);
        assert_eq!(types.function("f").unwrap(), 4);
        assert_eq!(types.offset("outer", "c").unwrap_err().to_string(), "the kernel does not describe outer.c");
        assert!(types.function("g").is_err() && types.offset("inner", "b").is_err());
    }

    #[test]
    fn what_is_torn_is_refused_or_lacks_what_is_asked() {
        let whole = sample();
        for cut in 0..whole.len() {
            if let Ok(types) = Types::parse(whole[..cut].to_vec()) {
                let _ = (types.offset("outer", "b"), types.function("f"));
            }
        }
    }
}
