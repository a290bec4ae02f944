//! Verdicts as they happen: rules write packets that open connections of isolated pods, and those that are kept back, into a log of the kernel's, and
//! programs write as much into a ring.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use node::bpf::Ring;
use node::nft::{Log, Logged};

use crate::ebpf::{self, entries, program};
use crate::model::Direction;
use rules::protocol::Protocol;

/// The groups of the kernel's log: one for whoever follows verdicts, one for the agent, which counts them.
pub(crate) const FOLLOWED: u16 = 8585;
pub(crate) const COUNTED: u16 = 8586;

/// A packet on which there was a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Of the pod that was asked about: the one that sends, or the one that is sent to.
    pub direction: Direction,
    pub allowed: bool,
    pub from: IpAddr,
    pub to: IpAddr,
    /// What the packet is sent to; nothing if it has no port that policies speak of.
    pub port: Option<(Protocol, u16)>,
}

impl Verdict {
    /// Reads what a rule wrote; nothing if it is none of ours.
    pub fn of(logged: &Logged) -> Option<Self> {
        let (direction, allowed) = match logged.prefix.as_str() {
            "ingress allowed" => (Direction::Ingress, true),
            "ingress denied" => (Direction::Ingress, false),
            "egress allowed" => (Direction::Egress, true),
            "egress denied" => (Direction::Egress, false),
            _ => return None,
        };
        let packet = &logged.packet;
        let (from, to, protocol, rest): (IpAddr, IpAddr, u8, usize) = match packet.first()? >> 4 {
            4 => {
                let part = |at: usize| <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok().map(Ipv4Addr::from);
                (part(12)?.into(), part(16)?.into(), *packet.get(9)?, usize::from(packet[0] & 15) * 4)
            }
            6 => {
                let part = |at: usize| <[u8; 16]>::try_from(packet.get(at..at + 16)?).ok().map(Ipv6Addr::from);
                (part(8)?.into(), part(24)?.into(), *packet.get(6)?, 40)
            }
            _ => return None,
        };
        let number = packet.get(rest + 2..rest + 4).map(|port| u16::from_be_bytes([port[0], port[1]]));
        let port = Protocol::of_number(protocol).zip(number);
        Some(Self { direction, allowed, from, to, port })
    }

    /// Reads what a program wrote.
    fn of_event(event: &[u8]) -> Option<Self> {
        let event: &[u8; program::LENGTH] = event.try_into().ok()?;
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = event[at..at + 16].try_into().ok()?;
            match u32::from(event[program::FAMILY]) {
                entries::FOUR => Some(<[u8; 4]>::try_from(&octets[..4]).ok()?.into()),
                entries::SIX => Some(octets.into()),
                _ => None,
            }
        };
        let written = u32::from(event[program::DIRECTION]);
        let port = u16::from_be_bytes([event[program::PORT], event[program::PORT + 1]]);
        Some(Self {
            direction: Direction::BOTH.into_iter().find(|direction| entries::number(*direction) == written)?,
            allowed: event[program::VERDICT] == 1,
            from: address(program::FROM)?,
            to: address(program::TO)?,
            port: Protocol::of_number(event[program::PROTOCOL_OF]).map(|protocol| (protocol, port)),
        })
    }
}

/// Who reads verdicts. Each has its own; there is one of each at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A user who follows them.
    Follower,
    /// The agent, which counts them.
    Counter,
}

/// Verdicts of this node from now on.
pub enum Verdicts {
    Rules(Log),
    Programs(Ring),
}

impl Verdicts {
    /// Those of the engine that judges here. An error if somebody else reads the rules' log already.
    pub async fn open(reader: Reader) -> std::io::Result<Self> {
        if let Some(ring) = ebpf::ring(reader == Reader::Counter).map_err(std::io::Error::other)? {
            return Ok(Self::Programs(ring));
        }
        let group = if reader == Reader::Counter { COUNTED } else { FOLLOWED };
        Ok(Self::Rules(Log::open(group).await?))
    }

    pub async fn next(&mut self) -> std::io::Result<Vec<Verdict>> {
        match self {
            Self::Rules(log) => Ok(log.next().await?.iter().filter_map(Verdict::of).collect()),
            Self::Programs(ring) => {
                Ok(ring.next().await?.iter().filter_map(|event| Verdict::of_event(event)).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_both_families_are_read_and_torn_ones_are_not() {
        let mut four = vec![0x45; 28];
        (four[9], four[12], four[22], four[23]) = (6, 10, 0, 80);
        let logged = |prefix: &str, packet: &[u8]| Logged { prefix: prefix.to_owned(), packet: packet.to_vec() };
        let read = Verdict::of(&logged("ingress denied", &four)).unwrap();
        assert_eq!((read.direction, read.allowed, read.port), (Direction::Ingress, false, Some((Protocol::Tcp, 80))));
        assert_eq!(read.from.to_string(), "10.69.69.69");
        let mut six = vec![0x60; 48];
        (six[6], six[42], six[43]) = (17, 0, 53);
        let read = Verdict::of(&logged("egress allowed", &six)).unwrap();
        assert_eq!((read.direction, read.allowed, read.port), (Direction::Egress, true, Some((Protocol::Udp, 53))));
        six[6] = 58;
        assert_eq!(Verdict::of(&logged("egress allowed", &six)).unwrap().port, None);
        assert_eq!(Verdict::of(&logged("something else", &four)), None);
        for cut in 0..20 {
            assert_eq!(Verdict::of(&logged("ingress denied", &four[..cut])), None, "cut at {cut}");
        }
    }
}
