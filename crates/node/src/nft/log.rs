//! Packets that rules wrote into one of the kernel's logs (`log group N`), as they happen.
//!
//! One socket at a time has a group; while nobody has it, the kernel writes nothing. What is not read in time is lost, and no packet
//! waits for it.

use std::io;

use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};

use super::changes::{self, HEADER};

/// `NFNL_SUBSYS_ULOG`, in the upper half of a message's kind: a packet, and a setting.
const PACKET: u16 = 4 << 8;
const SETTING: u16 = (4 << 8) | 1;
/// The header of netfilter's messages.
const FAMILY_HEADER: usize = 4;
/// Attributes of settings: to have the group, and how much of a packet is wanted.
const COMMAND: u16 = 1;
const MODE: u16 = 2;
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
/// Attributes of a packet.
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;
/// Enough for the headers of IP and of ports, options included.
const WANTED: u32 = 128;
/// Room for a few thousand packets that nobody read yet.
const BUFFER: usize = 1 << 20;

/// A packet that a rule wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// What the rule says of it.
    pub prefix: String,
    /// Its first bytes, from its IP header on.
    pub packet: Vec<u8>,
}

/// A group of the kernel's log, in the network namespace of the thread that opens it.
pub struct Log(TokioSocket);

impl Log {
    /// Takes the group; an error if somebody has it.
    pub async fn open(group: u16) -> io::Result<Self> {
        let mut socket = TokioSocket::new(changes::NETLINK_NETFILTER)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        changes::force_buffer(&socket, libc::SO_RCVBUFFORCE, BUFFER);
        let mut mode = WANTED.to_be_bytes().to_vec();
        mode.extend([COPY_PACKET, 0]);
        for (attribute, value) in [(COMMAND, &[BIND][..]), (MODE, &mode)] {
            socket.send_to(&setting(group, attribute, value), &SocketAddr::new(0, 0)).await?;
            let (answer, _) = socket.recv_from_full().await?;
            refused(&answer)?;
        }
        Ok(Self(socket))
    }

    /// The next packets; none where some were lost.
    pub async fn next(&mut self) -> io::Result<Vec<Logged>> {
        match self.0.recv_from_full().await {
            Ok((datagram, _)) => Ok(read(&datagram)),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

fn setting(group: u16, attribute: u16, value: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0];
    body.extend(group.to_be_bytes());
    body.extend(u16::try_from(4 + value.len()).unwrap_or(4).to_ne_bytes());
    body.extend(attribute.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
    let length = u32::try_from(HEADER + body.len()).unwrap_or(0);
    // A request whose answer is wanted.
    [&length.to_ne_bytes()[..], &SETTING.to_ne_bytes(), &5_u16.to_ne_bytes(), &[0; 8], &body].concat()
}

/// The error in an answer, if it is one.
fn refused(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    match (kind, answer.get(HEADER..HEADER + 4)) {
        (Some(2), Some(&[a, b, c, d])) => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(-code)),
        },
        _ => Ok(()),
    }
}

fn read(mut datagram: &[u8]) -> Vec<Logged> {
    let mut all = Vec::new();
    while let Some((header, _)) = datagram.split_first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(mut attributes) = datagram.get(HEADER + FAMILY_HEADER..length) else { return all };
        let mut logged = Logged { prefix: String::new(), packet: Vec::new() };
        while let Some((header, _)) = attributes.split_first_chunk::<4>() {
            let size = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            let Some(value) = attributes.get(4..size) else { break };
            match u16::from_ne_bytes([header[2], header[3]]) {
                PREFIX => logged.prefix = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
                PAYLOAD => logged.packet = value.to_vec(),
                _ => {}
            }
            attributes = attributes.get(size.next_multiple_of(4)..).unwrap_or_default();
        }
        if kind == PACKET {
            all.push(logged);
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}
