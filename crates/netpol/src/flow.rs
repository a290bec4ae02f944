//! Verdicts as they happen: the kernel writes packets that open connections of isolated pods, and those that are kept back, into a log.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use node::nft::{Log, Logged};

use crate::model::Direction;
use crate::ports::Protocol;

/// The groups of the kernel's log: one for whoever follows verdicts, one for the agent, which counts them.
pub const FOLLOWED: u16 = 8585;
pub const COUNTED: u16 = 8586;

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
}

/// Verdicts of this node from now on.
pub struct Verdicts(Log);

impl Verdicts {
    /// An error if somebody else follows them already.
    pub async fn open(group: u16) -> std::io::Result<Self> {
        Ok(Self(Log::open(group).await?))
    }

    pub async fn next(&mut self) -> std::io::Result<Vec<Verdict>> {
        Ok(self.0.next().await?.iter().filter_map(Verdict::of).collect())
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
