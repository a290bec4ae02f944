//! Notifications that links, addresses or routes have changed.
//!
//! The kernel drops the routes of a link that goes down, and of IPv4 routes it does so without a word about each; so the
//! links themselves have to be listened to. The ends of pods' links come and go all the time and carry nobody else's
//! routes: they are left out.

use std::io;

use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};

const NETLINK_ROUTE: isize = 0;
/// Links, IPv4 addresses, IPv4 routes, IPv6 addresses, IPv6 routes.
const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const DELETE_ROUTE: u16 = 25;
const HEADER: usize = 16;
/// The length of what comes before a link's attributes, and where in it the changed flags are.
const LINK_HEADER: usize = 16;
const CHANGED_FLAGS: usize = 12;
/// Where a route says who made it.
const ROUTE_PROTOCOL: usize = 5;
/// The attribute with a link's name.
const LINK_NAME: u16 = 3;
/// How the plugins of pod networks call the node's end of a pod's link.
const POD_LINKS: &[u8] = b"veth";

/// Hears of changes from the moment it is opened, in the network namespace of the thread that opens it.
pub struct Changes(TokioSocket);

impl Changes {
    pub fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.socket_mut().add_membership(group)?;
        }
        Ok(Self(socket))
    }

    /// Waits until a link comes, goes, or is switched on or off, an address comes or goes, a route of this protocol goes, or
    /// so much happens at once that one of these may have.
    pub async fn disturbing(&mut self, protocol: u8) -> io::Result<()> {
        loop {
            match self.0.recv_from_full().await {
                Ok((datagram, _)) if disturbs(&datagram, protocol) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn disturbs(mut datagram: &[u8], protocol: u8) -> bool {
    while let Some((header, _)) = datagram.split_first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(message) = datagram.get(HEADER..length) else { return false };
        let disturbing = match u16::from_ne_bytes([header[4], header[5]]) {
            NEW_LINK => switched(message) && !is_of_pod(message),
            DELETE_LINK => !is_of_pod(message),
            NEW_ADDRESS | DELETE_ADDRESS => true,
            DELETE_ROUTE => message.get(ROUTE_PROTOCOL) == Some(&protocol),
            _ => false,
        };
        if disturbing {
            return true;
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

fn switched(link: &[u8]) -> bool {
    let flags = link.get(CHANGED_FLAGS..).and_then(|rest| rest.first_chunk::<4>());
    flags.is_some_and(|flags| u32::from_ne_bytes(*flags) & libc::IFF_UP.cast_unsigned() != 0)
}

fn is_of_pod(link: &[u8]) -> bool {
    let mut attributes = link.get(LINK_HEADER..).unwrap_or_default();
    while let Some((header, _)) = attributes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let Some(value) = attributes.get(4..length) else { return false };
        if u16::from_ne_bytes([header[2], header[3]]) == LINK_NAME {
            return value.starts_with(POD_LINKS);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], body].concat()
    }

    fn link(kind: u16, name: &str, changed: u32) -> Vec<u8> {
        let mut body = [&[0; CHANGED_FLAGS][..], &changed.to_ne_bytes()].concat();
        let length = u16::try_from(4 + name.len() + 1).unwrap();
        body.extend([&length.to_ne_bytes()[..], &LINK_NAME.to_ne_bytes(), name.as_bytes(), &[0]].concat());
        body.resize(body.len().next_multiple_of(4), 0);
        message(kind, &body)
    }

    #[test]
    fn what_may_take_routes_along_disturbs() {
        let up = libc::IFF_UP.cast_unsigned();
        let route = |kind, protocol| message(kind, &[2, 24, 0, 0, 254, protocol, 0, 1, 0, 0, 0, 0]);
        for (datagram, want) in [
            (link(NEW_LINK, "eth0", up), true),
            (link(NEW_LINK, "eth0", 0), false),
            (link(NEW_LINK, "veth1234", up), false),
            (link(DELETE_LINK, "trireme.vxlan", 0), true),
            (link(DELETE_LINK, "veth1234", up), false),
            (route(DELETE_ROUTE, 84), true),
            (route(DELETE_ROUTE, 2), false),
            (route(DELETE_ROUTE - 1, 84), false),
            (message(NEW_ADDRESS, &[2, 24, 0, 0, 1, 0, 0, 0]), true),
            ([link(NEW_LINK, "veth1", up), route(DELETE_ROUTE, 84)].concat(), true),
            (route(DELETE_ROUTE, 84)[..18].to_vec(), false),
        ] {
            assert_eq!(disturbs(&datagram, 84), want, "{datagram:?}");
        }
    }
}
