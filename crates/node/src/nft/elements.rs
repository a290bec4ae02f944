//! Elements of sets and maps, changed without a program.
//!
//! To start `nft` costs milliseconds however little it has to do, and elements are what changes all day. So they go to the kernel as
//! the messages `nft` would have made of them, all in one transaction. Whatever needs tables, chains or rules is a script.

use std::io;
use std::net::IpAddr;

use rtnetlink::sys::{Socket, SocketAddr};

use super::{Error, Family, changes};

/// `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
const BEGIN: u16 = 16;
const END: u16 = 17;
/// `NFT_MSG_NEWSETELEM` and `NFT_MSG_DELSETELEM`, of the nftables subsystem.
const ADD: u16 = (changes::SUBSYSTEM << 8) | 12;
const DELETE: u16 = (changes::SUBSYSTEM << 8) | 14;
/// Flags of a message: a request, its answer wanted, and what is not there made.
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE: u16 = 0x400;
/// An attribute that is made of attributes.
const NESTED: u16 = 0x8000;
/// Attributes of a message: the table, the set, the elements.
const TABLE: u16 = 1;
const SET: u16 = 2;
const ELEMENTS: u16 = 3 | NESTED;
/// Attributes of an element, and of its key and data.
const ELEMENT: u16 = 1 | NESTED;
const KEY: u16 = 1 | NESTED;
const DATA: u16 = 2 | NESTED;
const VALUE: u16 = 1;
const VERDICT: u16 = 2 | NESTED;
const CODE: u16 = 1;
const CHAIN: u16 = 2;
/// Verdicts: `NF_DROP`, `NFT_JUMP` and `NFT_GOTO`.
const DROP: i32 = 0;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
/// The kind of an answer.
const ANSWER: u16 = 2;
/// The list of elements in a message is an attribute, and those end at 64 KiB.
const PER_MESSAGE: usize = 256;

/// What an element of a map leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Nothing: it is an element of a set.
    None,
    /// A value, each part of it filled up to four bytes.
    Value(Vec<u8>),
    Drop,
    /// A chain, and back if it says nothing.
    Jump(String),
    /// A chain, for good.
    Goto(String),
}

/// A key or a value made of several parts: each fills up whole registers, of four bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registers(Vec<u8>);

impl Registers {
    pub fn part(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub fn address(self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => self.part(&ip.octets()),
            IpAddr::V6(ip) => self.part(&ip.octets()),
        }
    }

    pub fn port(self, port: u16) -> Self {
        self.part(&port.to_be_bytes())
    }

    /// What the kernel computed itself, not what it read in a packet.
    pub fn number(self, number: u32) -> Self {
        self.part(&number.to_ne_bytes())
    }

    /// The name of a link; the kernel compares all of its room.
    pub fn link(self, name: &str) -> Self {
        let mut room = [0; 16];
        let length = name.len().min(room.len() - 1);
        room[..length].copy_from_slice(&name.as_bytes()[..length]);
        self.part(&room)
    }

    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Changes to the elements of sets and maps that exist, in the order they were said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Elements {
    messages: Vec<u8>,
    /// Where the last message begins, and how many there are.
    last: usize,
    count: u32,
}

impl Elements {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes elements out that are there.
    pub fn delete(&mut self, family: Family, table: &str, set: &str, keys: &[Vec<u8>]) {
        for keys in keys.chunks(PER_MESSAGE) {
            self.message(DELETE, REQUEST, family, table, set, |out| {
                for key in keys {
                    attribute(out, ELEMENT, |out| value(out, KEY, key));
                }
            });
        }
    }

    /// Puts elements in. One that is there already must be the same.
    pub fn add(&mut self, family: Family, table: &str, set: &str, elements: &[(Vec<u8>, Data)]) {
        for elements in elements.chunks(PER_MESSAGE) {
            self.message(ADD, REQUEST | CREATE, family, table, set, |out| {
                for (key, data) in elements {
                    attribute(out, ELEMENT, |out| {
                        value(out, KEY, key);
                        match data {
                            Data::None => {}
                            Data::Value(bytes) => value(out, DATA, bytes),
                            Data::Drop => attribute(out, DATA, |out| verdict(out, DROP, None)),
                            Data::Jump(chain) => attribute(out, DATA, |out| verdict(out, JUMP, Some(chain))),
                            Data::Goto(chain) => attribute(out, DATA, |out| verdict(out, GOTO, Some(chain))),
                        }
                    });
                }
            });
        }
    }

    fn message(
        &mut self,
        kind: u16,
        flags: u16,
        family: Family,
        table: &str,
        set: &str,
        elements: impl FnOnce(&mut Vec<u8>),
    ) {
        self.count += 1;
        self.last = self.messages.len();
        message(&mut self.messages, kind, flags, self.count, (family.number(), 0), |out| {
            attribute(out, TABLE, |out| text(out, table));
            attribute(out, SET, |out| text(out, set));
            attribute(out, ELEMENTS, elements);
        });
    }

    /// The whole transaction as one datagram. The last change asks for an answer: it comes when all is done.
    fn batch(mut self) -> Vec<u8> {
        if let Some(flags) = self.messages.get_mut(self.last + 6..self.last + 8) {
            let asking = u16::from_ne_bytes([flags[0], flags[1]]) | ACKNOWLEDGE;
            flags.copy_from_slice(&asking.to_ne_bytes());
        }
        let subsystem = (0, changes::SUBSYSTEM);
        let mut batch = Vec::with_capacity(self.messages.len() + 40);
        message(&mut batch, BEGIN, REQUEST, 0, subsystem, |_| {});
        batch.append(&mut self.messages);
        message(&mut batch, END, REQUEST, self.count + 1, subsystem, |_| {});
        batch
    }

    fn apply(self) -> io::Result<()> {
        let batch = self.batch();
        let mut socket = Socket::new(changes::NETLINK_NETFILTER)?;
        changes::remember(socket.bind_auto()?.port_number());
        changes::force_buffer(&socket, libc::SO_SNDBUFFORCE, batch.len().saturating_mul(2));
        if socket.send_to(&batch, &SocketAddr::new(0, 0), 0)? != batch.len() {
            return Err(io::Error::other("the kernel took a part of a transaction"));
        }
        // All answers are there before the call that asked for them returns.
        socket.set_non_blocking(true)?;
        let mut done = false;
        loop {
            match socket.recv_from_full() {
                Ok((datagram, _)) => done |= answered(&datagram)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && done => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Applies the changes as one transaction: all of them or none.
pub async fn change(elements: Elements) -> Result<(), Error> {
    if elements.is_empty() {
        return Ok(());
    }
    let applied = tokio::task::spawn_blocking(move || elements.apply()).await;
    applied.unwrap_or_else(|error| Err(error.into())).map_err(Error::Change)
}

/// Whether a change was taken; an error if one was refused.
fn answered(mut datagram: &[u8]) -> io::Result<bool> {
    let mut taken = false;
    while let Some((header, rest)) = datagram.split_first_chunk::<{ changes::HEADER }>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        if u16::from_ne_bytes([header[4], header[5]]) == ANSWER
            && let Some((code, _)) = rest.split_first_chunk::<4>()
        {
            match i32::from_ne_bytes(*code) {
                0 => taken = true,
                code => return Err(io::Error::from_raw_os_error(-code)),
            }
        }
        datagram = datagram.get(length.max(changes::HEADER).next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(taken)
}

/// A netlink message with netfilter's header: a family, and a number that only the ends of a transaction have.
fn message(
    out: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    sequence: u32,
    (family, resource): (u8, u16),
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
    out.extend([family, 0]);
    out.extend(resource.to_be_bytes());
    body(out);
    let length = u32::try_from(out.len() - start).expect("a message is a few attributes of 64 KiB");
    out[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

fn attribute(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 2]);
    out.extend(kind.to_ne_bytes());
    body(out);
    let length = u16::try_from(out.len() - start).expect("so many elements of sets are less than 64 KiB");
    out[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend(text.as_bytes());
    out.push(0);
}

fn value(out: &mut Vec<u8>, kind: u16, bytes: &[u8]) {
    attribute(out, kind, |out| attribute(out, VALUE, |out| out.extend(bytes)));
}

fn verdict(out: &mut Vec<u8>, code: i32, chain: Option<&str>) {
    attribute(out, VERDICT, |out| {
        attribute(out, CODE, |out| out.extend(code.to_be_bytes()));
        if let Some(chain) = chain {
            attribute(out, CHAIN, |out| text(out, chain));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::{apply, list_table};
    use super::*;

    const TABLE: &str = "trireme-test-elements";

    fn address(last: u16) -> Vec<u8> {
        let [high, low] = last.to_be_bytes();
        vec![10, 0, high, low]
    }

    fn leads(elements: &[(u16, Data)]) -> Vec<(Vec<u8>, Data)> {
        elements.iter().map(|(last, data)| (address(*last), data.clone())).collect()
    }

    /// One table at a time: the test is one so that nobody else has its name.
    #[tokio::test]
    async fn elements_change_as_a_whole_or_not_at_all() {
        apply(&format!("add table ip {TABLE}\ndelete table ip {TABLE}")).await.unwrap();
        let make = format!(
            "table ip {TABLE} {{ chain c {{ return; }}; set s {{ type ipv4_addr; }}; \
             map v {{ type ipv4_addr : verdict; }}; map a {{ type ipv4_addr : ipv4_addr; }}; }}"
        );
        apply(&make).await.unwrap();
        let listed = async || list_table(Family::Ip, TABLE).await.unwrap();

        let many: Vec<(Vec<u8>, Data)> = (0..1_000).map(|n| (address(n), Data::None)).collect();
        let mut first = Elements::default();
        first.add(Family::Ip, TABLE, "s", &many);
        first.add(
            Family::Ip,
            TABLE,
            "v",
            &leads(&[(1, Data::Drop), (2, Data::Goto("c".into())), (4, Data::Jump("c".into()))]),
        );
        first.add(Family::Ip, TABLE, "a", &leads(&[(3, Data::Value(vec![10, 9, 9, 9]))]));
        change(first).await.unwrap();
        let text = listed().await;
        for wanted in ["10.0.0.1 : drop", "10.0.0.2 : goto c", "10.0.0.4 : jump c", "10.0.0.3 : 10.9.9.9", "10.0.3.231"]
        {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }

        // A value changes by going and coming back in one transaction.
        let mut second = Elements::default();
        second.delete(Family::Ip, TABLE, "s", &many[1..].iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
        second.delete(Family::Ip, TABLE, "v", &[address(1), address(2), address(4)]);
        second.add(Family::Ip, TABLE, "v", &leads(&[(1, Data::Goto("c".into()))]));
        change(second).await.unwrap();
        let text = listed().await;
        assert!(
            text.contains("elements = { 10.0.0.0 }") && text.contains("elements = { 10.0.0.1 : goto c }"),
            "{text}"
        );

        // One change that cannot be done undoes the others, wherever it stands.
        for at in 0..3 {
            let mut refused = Elements::default();
            for step in 0..3 {
                match step == at {
                    true => refused.delete(Family::Ip, TABLE, "s", &[address(77)]),
                    false => refused.add(Family::Ip, TABLE, "s", &leads(&[(step, Data::None)])),
                }
            }
            let error = change(refused).await.unwrap_err().to_string();
            assert!(error.contains("No such file or directory"), "{error}");
            assert_eq!(listed().await, text);
        }
        apply(&format!("delete table ip {TABLE}")).await.unwrap();
        let mut nowhere = Elements::default();
        nowhere.add(Family::Ip, TABLE, "s", &leads(&[(1, Data::None)]));
        change(nowhere).await.unwrap_err();
        change(Elements::default()).await.unwrap();
    }
}
