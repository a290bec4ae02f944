//! Instructions of the kernel's virtual machine, written one after the other, with labels where jumps go.
//!
//! A program of ours is some hundred instructions that look maps up. Written like this it needs no compiler on the machine that
//! builds Trireme, and no object file that nobody can read; and it is made for the kernel it runs on, whose structures it knows from
//! [`super::Types`].

use super::Map;

/// A register. The kernel's calls take 1 to 5, answer in 0 and keep 6 to 9; 10 is the end of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(u8);

pub const R0: Register = Register(0);
pub const R1: Register = Register(1);
pub const R2: Register = Register(2);
pub const R3: Register = Register(3);
pub const R4: Register = Register(4);
pub const R5: Register = Register(5);
pub const R6: Register = Register(6);
pub const R7: Register = Register(7);
pub const R8: Register = Register(8);
pub const R9: Register = Register(9);
pub const STACK: Register = Register(10);

/// How much of memory is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Byte,
    Half,
    Word,
    Double,
}

impl Size {
    fn bits(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Byte => 0x10,
            Self::Double => 0x18,
        }
    }
}

/// When a jump is taken; numbers have no sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum If {
    Equal,
    NotEqual,
    Less,
    AtLeast,
}

impl If {
    fn bits(self) -> u8 {
        match self {
            Self::Equal => 0x10,
            Self::NotEqual => 0x50,
            Self::Less => 0xa0,
            Self::AtLeast => 0x30,
        }
    }
}

/// What is done to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Do {
    Add,
    Subtract,
    And,
    ShiftLeft,
    ShiftRight,
    Set,
}

impl Do {
    fn bits(self) -> u8 {
        match self {
            Self::Add => 0x00,
            Self::Subtract => 0x10,
            Self::And => 0x50,
            Self::ShiftLeft => 0x60,
            Self::ShiftRight => 0x70,
            Self::Set => 0xb0,
        }
    }
}

/// A place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// Helpers that every kernel numbers alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    MapLookup = 1,
    Nanoseconds = 5,
    RingOutput = 130,
}

const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_NUMBER: u8 = 0x62;
const BY_REGISTER: u8 = 0x08;
const COMPUTE: u8 = 0x07;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_MAP: u8 = 0x18;
/// In the place of a source register: the number is a map's descriptor, or one of the kernel's own functions.
const MAP: Register = Register(1);
const FUNCTION: Register = Register(2);

/// A program being written.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    /// Where labels are, once that is known.
    places: Vec<Option<usize>>,
    /// Jumps, and where they go.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    fn push(&mut self, operation: u8, to: Register, from: Register, offset: i16, number: i32) {
        let registers = (from.0 << 4) | to.0;
        self.code.push(
            u64::from(operation)
                | u64::from(registers) << 8
                | u64::from(offset.cast_unsigned()) << 16
                | u64::from(number.cast_unsigned()) << 32,
        );
    }

    /// `to = *(from + offset)`
    pub fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.push(LOAD & !0x18 | size.bits(), to, from, offset, 0);
    }

    /// `*(to + offset) = from`
    pub fn store(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.push(STORE & !0x18 | size.bits(), to, from, offset, 0);
    }

    /// `*(to + offset) = number`
    pub fn store_number(&mut self, size: Size, to: Register, offset: i16, number: i32) {
        self.push(STORE_NUMBER & !0x18 | size.bits(), to, R0, offset, number);
    }

    pub fn compute(&mut self, what: Do, to: Register, number: i32) {
        self.push(COMPUTE | what.bits(), to, R0, 0, number);
    }

    pub fn compute_with(&mut self, what: Do, to: Register, from: Register) {
        self.push(COMPUTE | BY_REGISTER | what.bits(), to, from, 0, 0);
    }

    /// `to = number`
    pub fn set(&mut self, to: Register, number: i32) {
        self.compute(Do::Set, to, number);
    }

    /// `to = from`
    pub fn copy(&mut self, to: Register, from: Register) {
        self.compute_with(Do::Set, to, from);
    }

    /// `to` is the address of a place on the stack.
    pub fn address(&mut self, to: Register, on_stack: i16) {
        self.copy(to, STACK);
        self.compute(Do::Add, to, i32::from(on_stack));
    }

    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP, R0, R0, 0, 0);
    }

    pub fn jump_if(&mut self, left: Register, when: If, right: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP | when.bits(), left, R0, 0, right);
    }

    pub fn jump_if_register(&mut self, left: Register, when: If, right: Register, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP | BY_REGISTER | when.bits(), left, right, 0, 0);
    }

    /// `to` stands for a map.
    pub fn map(&mut self, to: Register, map: &Map) {
        self.push(LOAD_MAP, to, MAP, 0, map.descriptor());
        // The instruction is two words long.
        self.code.push(0);
    }

    pub fn call(&mut self, helper: Helper) {
        self.push(CALL, R0, R0, 0, helper as i32);
    }

    /// Calls a function of the kernel that is no helper, by its number there.
    pub fn call_kernel(&mut self, function: i32) {
        self.push(CALL, R0, FUNCTION, 0, function);
    }

    /// Ends the program with a number.
    pub fn answer(&mut self, number: i32) {
        self.set(R0, number);
        self.push(EXIT, R0, R0, 0, 0);
    }

    /// The whole program.
    ///
    /// # Panics
    /// If a jump goes to a label that is nowhere or too far away, which depends on nothing but the program's text.
    pub fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let place = self.places[label.0].expect("every label that is jumped to has a place");
            let distance = i64::try_from(place).unwrap_or(i64::MAX) - i64::try_from(at).unwrap_or(0) - 1;
            let distance = i16::try_from(distance).expect("a program of some hundred instructions");
            self.code[at] |= u64::from(distance.cast_unsigned()) << 16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_go_where_their_labels_are() {
        let mut text = Assembler::default();
        let (back, end) = (text.label(), text.label());
        text.place(back);
        text.load(Size::Word, R2, R1, 4);
        text.jump_if(R2, If::AtLeast, 3, end);
        text.jump(back);
        text.place(end);
        text.answer(1);
        let code: Vec<[u8; 8]> = text.finish().into_iter().map(u64::to_le_bytes).collect();
        assert_eq!(
            code,
            [
                [0x61, 0x12, 4, 0, 0, 0, 0, 0],
                [0x35, 0x02, 1, 0, 3, 0, 0, 0],
                [0x05, 0, 0xfd, 0xff, 0, 0, 0, 0],
                [0xb7, 0, 0, 0, 1, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }
}
