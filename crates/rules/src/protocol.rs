//! Transport protocols: what ports of Services, pods and policies are of.

use std::fmt;

/// A transport protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// As the API and users write it; absent and empty mean TCP.
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("") => Some(Self::Tcp),
            Some(text) => Self::ALL.into_iter().find(|protocol| text.eq_ignore_ascii_case(protocol.as_str())),
        }
    }

    /// The protocol's number in a packet.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// The protocol with this number in a packet.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.number() == number)
    }

    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// As rules of the kernel have it.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_lead_back() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::parse(Some(protocol.as_str())), Some(protocol));
            assert_eq!(Protocol::parse(Some(&protocol.to_string())), Some(protocol));
            assert_eq!(Protocol::of_number(protocol.number()), Some(protocol));
        }
        assert_eq!((Protocol::parse(None), Protocol::parse(Some(""))), (Some(Protocol::Tcp), Some(Protocol::Tcp)));
        assert_eq!((Protocol::parse(Some("ICMP")), Protocol::of_number(1)), (None, None));
    }
}
