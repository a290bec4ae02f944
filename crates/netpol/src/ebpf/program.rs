//! The programs: one for packets that are passed on and one for those to the node itself, each for both families.
//!
//! They are asked by netfilter, where the nftables rules would be: after Services are translated and before sources are masqueraded, with fragments put
//! together, and with the connection that the packet is of. So answers are told from questions by the kernel's own memory of
//! connections, which is bounded and turns new ones away when it is full; there is no second one that could disagree with it.
//!
//! The text below is that of the chains of [`crate::table`], in the same order. The programs are under both the licence of the project and the GPL, because the
//! kernel lends the functions that read packets only to programs that are.

use std::ffi::CStr;

use node::bpf::{
    Assembler, Do, Error, Family, Helper, Hook, If, Label, Map, Program, R0, R1, R2, R3, R4, R6, R7, R8, R9, Register,
    STACK, Size, Types,
};

use super::entries::{FOUR, In, SIX, WHOLE, number};
use crate::model::Direction;

const LICENSE: &CStr = c"Dual MIT/GPL";
const DROP: i32 = 0;
const ACCEPT: i32 = 1;
/// The answer of a program that passes a packet on.
pub const ACCEPTED: u32 = 1;

/// Places on the stack.
const READER: i16 = -16;
const BUFFER: i16 = -56;
const SOURCE: i16 = -80;
const TARGET: i16 = -104;
const ALLOWANCE: i16 = -120;
const EVENT: i16 = -160;
const ZERO: i16 = -168;
/// Within the key of an address: its family and itself, behind the direction or the number of bits.
const OF_FAMILY: i16 = 4;
const OF_ADDRESS: i16 = 8;
/// Within the key of an allowance.
const OF_RULESET: i16 = 4;
const OF_OTHER: i16 = 8;
const OF_PROTOCOL: i16 = 12;
const OF_PORT: i16 = 14;

/// What is kept for the whole of a program: the packet and then where its ports are, its connection, its protocol, the ruleset.
const PACKET: Register = R6;
const PORTS: Register = R6;
const CONNECTION: Register = R7;
const PROTOCOL: Register = R8;
const RULESET: Register = R9;

/// The lower bits of a packet's connection say how it relates to it; without others there is none.
const RELATION: i32 = 7;
const RELATED: i32 = 1;
const NEW: i32 = 2;
const REPLY: i32 = 3;

const TCP: i32 = 6;
const UDP: i32 = 17;
const SCTP: i32 = 132;
/// A number that no protocol has.
const UNKNOWN: i32 = 255;
const ICMP: i32 = 1;
const ICMP6: i32 = 58;
/// Headers between that of IPv6 and the packet's own.
const OPTIONS: [i32; 3] = [0, 43, 60];
const FRAGMENT: i32 = 44;
const SIGNATURE: i32 = 51;
/// So many of them are looked behind. What is deeper has no ports that anybody knows of.
const HEADERS: usize = 8;
/// Messages by which neighbours find each other: without them there is no IPv6.
const NEIGHBOURS: [i32; 8] = [133, 134, 135, 136, 130, 131, 132, 143];

/// So many verdicts are told of in a second, by each processor.
pub const TOLD: i32 = 1_000;
const SECOND: i32 = 1_000_000_000;

/// An event's bytes.
pub const DIRECTION: usize = 0;
pub const VERDICT: usize = 1;
pub const FAMILY: usize = 2;
pub const PROTOCOL_OF: usize = 3;
pub const PORT: usize = 4;
pub const FROM: usize = 8;
pub const TO: usize = 24;
pub const LENGTH: usize = 40;

/// What programs look up and write to.
#[derive(Debug)]
pub struct Maps {
    pub allowed: Map,
    pub identities: Map,
    pub exact: Map,
    pub blocks: Map,
    pub rulesets: Map,
    /// Addresses of the node that stand for pods.
    pub served: Map,
    /// When this second began, and how much was told in it.
    pub told: Map,
    pub followed: Map,
    pub counted: Map,
}

/// What the running kernel calls things.
#[derive(Debug)]
pub struct Kernel {
    packet: i16,
    connection: i16,
    open_packet: i32,
    read_packet: i32,
}

impl Kernel {
    pub fn read() -> Result<Self, Error> {
        let types = Types::of_kernel()?;
        Ok(Self {
            packet: types.offset("bpf_nf_ctx", "skb")?,
            connection: types.offset("sk_buff", "_nfct")?,
            open_packet: types.function("bpf_dynptr_from_skb")?,
            read_packet: types.function("bpf_dynptr_slice")?,
        })
    }
}

/// What a program believes of packets that are of no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strays {
    /// Nobody knows who answers whom, so an isolated pod gets none.
    Dropped,
    /// They are taken for questions, for tests of single packets.
    Judged,
}

struct Text<'a> {
    code: Assembler,
    maps: &'a Maps,
    kernel: &'a Kernel,
    family: Family,
    accept: Label,
    drop: Label,
}

/// Loads the program of one hook and family.
pub fn load(maps: &Maps, kernel: &Kernel, family: Family, hook: Hook, strays: Strays) -> Result<Program, Error> {
    let mut code = Assembler::default();
    let (accept, drop) = (code.label(), code.label());
    let mut text = Text { code, maps, kernel, family, accept, drop };
    text.read_connection();
    text.read_addresses();
    text.find_ports();
    text.read_ports();
    text.exempt();
    match hook {
        Hook::Forward => {
            text.judge(Direction::Egress, SOURCE, TARGET, strays);
            text.judge(Direction::Ingress, TARGET, SOURCE, strays);
        }
        Hook::Input => {
            let own = text.code.label();
            text.look_up(|maps| &maps.served, TARGET + OF_FAMILY);
            text.code.jump_if(R0, If::Equal, 0, own);
            text.judge(Direction::Egress, SOURCE, TARGET, strays);
            text.code.jump(accept);
            text.code.place(own);
            text.judge(Direction::Node, SOURCE, TARGET, strays);
        }
    }
    text.code.place(accept);
    text.code.answer(ACCEPT);
    text.code.place(drop);
    text.code.answer(DROP);
    let name = match (family, hook) {
        (Family::Four, Hook::Forward) => "policy_forward4",
        (Family::Six, Hook::Forward) => "policy_forward6",
        (Family::Four, Hook::Input) => "policy_input4",
        (Family::Six, Hook::Input) => "policy_input6",
    };
    Program::load(name, LICENSE, &text.code.finish())
}

impl Text<'_> {
    fn look_up(&mut self, map: impl Fn(&Maps) -> &Map, key: i16) {
        self.code.map(R1, map(self.maps));
        self.code.address(R2, key);
        self.code.call(Helper::MapLookup);
    }

    /// Answers are of a connection that was judged when it was asked for.
    fn read_connection(&mut self) {
        let unknown = self.code.label();
        self.code.load(Size::Double, PACKET, R1, self.kernel.packet);
        self.code.load(Size::Double, CONNECTION, PACKET, self.kernel.connection);
        self.code.jump_if(CONNECTION, If::Less, RELATION + 1, unknown);
        self.code.copy(R1, CONNECTION);
        self.code.compute(Do::And, R1, RELATION);
        self.code.jump_if(R1, If::AtLeast, REPLY, self.accept);
        self.code.place(unknown);
    }

    /// Reads so many bytes from where a register says; they may have to be copied. A packet that is shorter goes elsewhere.
    fn read(&mut self, from: Option<Register>, length: i32, shorter: Label) {
        self.code.address(R1, READER);
        match from {
            Some(register) => self.code.copy(R2, register),
            None => self.code.set(R2, 0),
        }
        self.code.address(R3, BUFFER);
        self.code.set(R4, length);
        self.code.call_kernel(self.kernel.read_packet);
        self.code.jump_if(R0, If::Equal, 0, shorter);
    }

    /// Makes keys of both addresses, and finds the protocol and where its header is.
    fn read_addresses(&mut self) {
        self.code.copy(R1, PACKET);
        self.code.set(R2, 0);
        self.code.address(R3, READER);
        self.code.call_kernel(self.kernel.open_packet);
        self.code.jump_if(R0, If::NotEqual, 0, self.drop);
        for slot in [BUFFER, BUFFER + 8, BUFFER + 16, BUFFER + 24, BUFFER + 32] {
            self.code.store_number(Size::Double, STACK, slot, 0);
        }
        let (length, family, source, target) = match self.family {
            Family::Four => (20, FOUR, 12, 16),
            Family::Six => (40, SIX, 8, 24),
        };
        self.read(None, length, self.drop);
        for (key, at) in [(SOURCE, source), (TARGET, target)] {
            self.code.store_number(Size::Word, STACK, key + OF_FAMILY, family.cast_signed());
            let words: i16 = if self.family == Family::Four { 1 } else { 4 };
            for word in 0..4 {
                if word < words {
                    self.code.load(Size::Word, R1, R0, at + 4 * word);
                    self.code.store(Size::Word, STACK, key + OF_ADDRESS + 4 * word, R1);
                } else {
                    self.code.store_number(Size::Word, STACK, key + OF_ADDRESS + 4 * word, 0);
                }
            }
        }
    }

    /// Leaves the protocol and the place of its header in their registers. That of packets whose header is not in them is unknown.
    fn find_ports(&mut self) {
        let (done, unknown) = (self.code.label(), self.code.label());
        match self.family {
            Family::Four => {
                self.code.load(Size::Byte, PORTS, R0, 0);
                self.code.compute(Do::And, PORTS, 15);
                self.code.compute(Do::ShiftLeft, PORTS, 2);
                self.code.load(Size::Byte, PROTOCOL, R0, 9);
                // Not the first fragment: the upper bits of this half are flags.
                self.code.load(Size::Byte, R1, R0, 6);
                self.code.compute(Do::And, R1, 0x1f);
                self.code.jump_if(R1, If::NotEqual, 0, unknown);
                self.code.load(Size::Byte, R1, R0, 7);
                self.code.jump_if(R1, If::NotEqual, 0, unknown);
                self.code.jump(done);
            }
            Family::Six => {
                self.code.load(Size::Byte, PROTOCOL, R0, 6);
                self.code.set(PORTS, 40);
                for _ in 0..HEADERS {
                    self.skip_header(done, unknown);
                }
                for more in OPTIONS.into_iter().chain([FRAGMENT, SIGNATURE]) {
                    self.code.jump_if(PROTOCOL, If::Equal, more, unknown);
                }
                self.code.jump(done);
            }
        }
        self.code.place(unknown);
        self.code.set(PROTOCOL, UNKNOWN);
        self.code.place(done);
    }

    /// Looks behind one header of IPv6, if it is one that others follow.
    fn skip_header(&mut self, done: Label, unknown: Label) {
        let (options, fragment, signature, next) =
            (self.code.label(), self.code.label(), self.code.label(), self.code.label());
        for header in OPTIONS {
            self.code.jump_if(PROTOCOL, If::Equal, header, options);
        }
        self.code.jump_if(PROTOCOL, If::Equal, FRAGMENT, fragment);
        self.code.jump_if(PROTOCOL, If::Equal, SIGNATURE, signature);
        self.code.jump(done);
        // Its length is in words of eight bytes, without the first one.
        self.code.place(options);
        self.read(Some(PORTS), 8, unknown);
        self.code.load(Size::Byte, PROTOCOL, R0, 0);
        self.code.load(Size::Byte, R1, R0, 1);
        self.code.compute(Do::Add, R1, 1);
        self.code.compute(Do::ShiftLeft, R1, 3);
        self.code.compute_with(Do::Add, PORTS, R1);
        self.code.jump(next);
        // Of this one in words of four, without the first two.
        self.code.place(signature);
        self.read(Some(PORTS), 8, unknown);
        self.code.load(Size::Byte, PROTOCOL, R0, 0);
        self.code.load(Size::Byte, R1, R0, 1);
        self.code.compute(Do::Add, R1, 2);
        self.code.compute(Do::ShiftLeft, R1, 2);
        self.code.compute_with(Do::Add, PORTS, R1);
        self.code.jump(next);
        self.code.place(fragment);
        self.read(Some(PORTS), 8, unknown);
        self.code.load(Size::Byte, R1, R0, 2);
        self.code.jump_if(R1, If::NotEqual, 0, unknown);
        self.code.load(Size::Byte, R1, R0, 3);
        self.code.compute(Do::And, R1, 0xf8);
        self.code.jump_if(R1, If::NotEqual, 0, unknown);
        self.code.load(Size::Byte, PROTOCOL, R0, 0);
        self.code.compute(Do::Add, PORTS, 8);
        self.code.place(next);
    }

    /// Completes the key of allowances. What may have ports that nobody can read is found only where everything is allowed.
    fn read_ports(&mut self) {
        let (ports, unknown, done) = (self.code.label(), self.code.label(), self.code.label());
        self.code.store_number(Size::Word, STACK, ALLOWANCE, WHOLE.cast_signed());
        self.code.store_number(Size::Word, STACK, ALLOWANCE + OF_PROTOCOL, 0);
        for protocol in [TCP, UDP, SCTP] {
            self.code.jump_if(PROTOCOL, If::Equal, protocol, ports);
        }
        self.code.jump_if(PROTOCOL, If::NotEqual, UNKNOWN, done);
        self.code.place(unknown);
        self.code.store_number(Size::Byte, STACK, ALLOWANCE + OF_PROTOCOL + 1, UNKNOWN);
        self.code.jump(done);
        self.code.place(ports);
        self.read(Some(PORTS), 4, unknown);
        self.code.load(Size::Half, R1, R0, 2);
        self.code.store(Size::Half, STACK, ALLOWANCE + OF_PORT, R1);
        self.code.store(Size::Byte, STACK, ALLOWANCE + OF_PROTOCOL + 1, PROTOCOL);
        self.code.place(done);
    }

    /// What is never judged: errors about connections, what neighbours say, and a pod that talks to itself.
    fn exempt(&mut self) {
        let (judged, differs) = (self.code.label(), self.code.label());
        let errors = if self.family == Family::Four { ICMP } else { ICMP6 };
        self.code.jump_if(PROTOCOL, If::NotEqual, errors, judged);
        let unrelated = self.code.label();
        self.code.jump_if(CONNECTION, If::Less, RELATION + 1, unrelated);
        self.code.copy(R1, CONNECTION);
        self.code.compute(Do::And, R1, RELATION);
        self.code.jump_if(R1, If::Equal, RELATED, self.accept);
        self.code.place(unrelated);
        if self.family == Family::Six {
            self.read(Some(PORTS), 4, judged);
            self.code.load(Size::Byte, R1, R0, 0);
            for message in NEIGHBOURS {
                self.code.jump_if(R1, If::Equal, message, self.accept);
            }
        }
        self.code.place(judged);
        for half in [OF_ADDRESS, OF_ADDRESS + 8] {
            self.code.load(Size::Double, R1, STACK, SOURCE + half);
            self.code.load(Size::Double, R2, STACK, TARGET + half);
            self.code.jump_if_register(R1, If::NotEqual, R2, differs);
        }
        self.code.jump(self.accept);
        self.code.place(differs);
    }

    /// Asks the ruleset of one end about the other, if it has one.
    fn judge(&mut self, direction: Direction, own: i16, other: i16, strays: Strays) {
        let (passed, next) = (self.code.label(), self.code.label());
        self.code.store_number(Size::Word, STACK, own, number(direction).cast_signed());
        self.look_up(|maps| &maps.rulesets, own);
        self.code.jump_if(R0, If::Equal, 0, next);
        self.code.load(Size::Word, RULESET, R0, 0);
        if strays == Strays::Dropped {
            self.code.jump_if(CONNECTION, If::Less, RELATION + 1, self.drop);
        }
        self.code.store(Size::Word, STACK, ALLOWANCE + OF_RULESET, RULESET);
        self.code.store_number(Size::Word, STACK, ALLOWANCE + OF_OTHER, 0);
        let bits = if self.family == Family::Four { 64 } else { 160 };
        self.code.store_number(Size::Word, STACK, other, bits);
        let (ordered, denied) = (self.code.label(), self.code.label());
        self.code.copy(R1, RULESET);
        self.code.compute(Do::ShiftRight, R1, 31);
        self.code.jump_if(R1, If::NotEqual, 0, ordered);
        self.ask(passed);
        for block in [false, true] {
            let nobody = self.code.label();
            self.name_other(block, In::Identities, other, nobody);
            self.ask(passed);
            self.code.place(nobody);
        }
        self.code.jump(denied);
        // The smallest block around the address, and instead of it the pod behind it, if there is one.
        self.code.place(ordered);
        for block in [true, false] {
            let nobody = self.code.label();
            self.name_other(block, In::Exact, other, nobody);
            self.code.place(nobody);
        }
        self.ask(passed);
        self.code.place(denied);
        self.tell(direction, false);
        self.code.jump(self.drop);
        self.code.place(passed);
        // Of a connection that is allowed the first packet is told.
        self.code.copy(R1, CONNECTION);
        self.code.compute(Do::And, R1, RELATION);
        self.code.jump_if(R1, If::NotEqual, NEW, next);
        self.tell(direction, true);
        self.code.place(next);
    }

    /// Puts the number of the other end into the key, as its block or its pod has it, or goes elsewhere.
    fn name_other(&mut self, block: bool, pods: In, other: i16, nobody: Label) {
        match (block, pods) {
            (true, _) => self.look_up(|maps| &maps.blocks, other),
            (false, In::Exact) => self.look_up(|maps| &maps.exact, other + OF_FAMILY),
            (false, _) => self.look_up(|maps| &maps.identities, other + OF_FAMILY),
        }
        self.code.jump_if(R0, If::Equal, 0, nobody);
        self.code.load(Size::Word, R1, R0, 0);
        self.code.store(Size::Word, STACK, ALLOWANCE + OF_OTHER, R1);
    }

    /// Whether what the key says is allowed.
    fn ask(&mut self, passed: Label) {
        self.look_up(|maps| &maps.allowed, ALLOWANCE);
        self.code.jump_if(R0, If::NotEqual, 0, passed);
    }

    /// Writes a verdict into both rings, unless many were written in this second.
    fn tell(&mut self, direction: Direction, allowed: bool) {
        let (silent, same_second) = (self.code.label(), self.code.label());
        self.code.store_number(Size::Word, STACK, ZERO, 0);
        self.look_up(|maps| &maps.told, ZERO);
        self.code.jump_if(R0, If::Equal, 0, silent);
        self.code.copy(RULESET, R0);
        self.code.call(Helper::Nanoseconds);
        self.code.load(Size::Double, R1, RULESET, 0);
        self.code.copy(R2, R0);
        self.code.compute_with(Do::Subtract, R2, R1);
        self.code.jump_if(R2, If::Less, SECOND, same_second);
        self.code.store(Size::Double, RULESET, 0, R0);
        self.code.store_number(Size::Double, RULESET, 8, 0);
        self.code.place(same_second);
        self.code.load(Size::Double, R1, RULESET, 8);
        self.code.jump_if(R1, If::AtLeast, TOLD, silent);
        self.code.compute(Do::Add, R1, 1);
        self.code.store(Size::Double, RULESET, 8, R1);
        let at = |offset: usize| EVENT + i16::try_from(offset).unwrap_or(0);
        // To its own node, too, a pod sends.
        let told = if direction == Direction::Node { Direction::Egress } else { direction };
        self.code.store_number(Size::Byte, STACK, at(DIRECTION), number(told).cast_signed());
        self.code.store_number(Size::Byte, STACK, at(VERDICT), i32::from(allowed));
        self.code.store_number(Size::Byte, STACK, at(FAMILY), if self.family == Family::Four { 4 } else { 6 });
        self.code.load(Size::Byte, R1, STACK, ALLOWANCE + OF_PROTOCOL + 1);
        self.code.store(Size::Byte, STACK, at(PROTOCOL_OF), R1);
        self.code.load(Size::Half, R1, STACK, ALLOWANCE + OF_PORT);
        self.code.store(Size::Half, STACK, at(PORT), R1);
        self.code.store_number(Size::Half, STACK, at(PORT) + 2, 0);
        for (key, to) in [(SOURCE, at(FROM)), (TARGET, at(TO))] {
            for half in [0, 8] {
                self.code.load(Size::Double, R1, STACK, key + OF_ADDRESS + half);
                self.code.store(Size::Double, STACK, to + half, R1);
            }
        }
        for ring in [&self.maps.followed, &self.maps.counted] {
            self.code.map(R1, ring);
            self.code.address(R2, EVENT);
            self.code.set(R3, i32::try_from(LENGTH).unwrap_or(0));
            self.code.set(R4, 0);
            self.code.call(Helper::RingOutput);
        }
        self.code.place(silent);
    }
}
