//! Being told that somebody deleted a table: the kernel says so to whoever listens.

use std::io;

use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};

const NETLINK_NETFILTER: isize = 12;
/// Changes to nftables.
const GROUP: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_DELTABLE`.
const DELETE_TABLE: u16 = (10 << 8) | 2;
/// `NFTA_TABLE_NAME`.
const NAME: u16 = 1;
/// A netlink header, and the header of netfilter's messages behind it.
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;

/// Hears of deleted tables from the moment it is opened, in this process' network namespace.
pub struct Deletions(TokioSocket);

impl Deletions {
    /// Begins to listen.
    pub fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        socket.socket_mut().add_membership(GROUP)?;
        Ok(Self(socket))
    }

    /// Waits until a table of this name is deleted, or so much changes at once that it may have been.
    pub async fn of(&mut self, table: &str) -> io::Result<()> {
        loop {
            match self.0.recv_from_full().await {
                Ok((datagram, _)) if deletes(&datagram, table) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether one of the messages says that the table is deleted.
fn deletes(mut datagram: &[u8], table: &str) -> bool {
    while let Some((header, _)) = datagram.split_first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(message) = datagram.get(HEADER..length) else { return false };
        if kind == DELETE_TABLE && message.get(FAMILY_HEADER..).and_then(name) == Some(table.as_bytes()) {
            return true;
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// The table's name among the attributes of a message.
fn name(mut attributes: &[u8]) -> Option<&[u8]> {
    loop {
        let (header, _) = attributes.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([header[2], header[3]]) == NAME {
            return Some(value.strip_suffix(&[0]).unwrap_or(value));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn message(kind: u16, table: &str) -> Vec<u8> {
        let mut attribute = [&u16::try_from(table.len() + 5).unwrap().to_ne_bytes()[..], &NAME.to_ne_bytes()].concat();
        attribute.extend([table.as_bytes(), &[0]].concat());
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        let length = u32::try_from(HEADER + FAMILY_HEADER + attribute.len()).unwrap();
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &[2, 0, 0, 0], &attribute].concat()
    }

    #[test]
    fn only_the_deletion_of_the_named_table_counts() {
        let (gone, other) = (message(DELETE_TABLE, "ours"), message(DELETE_TABLE, "theirs"));
        assert!(deletes(&gone, "ours"));
        assert!(deletes(&[other.clone(), gone.clone()].concat(), "ours"));
        assert!(!deletes(&other, "ours") && !deletes(&message(DELETE_TABLE - 1, "ours"), "ours"));
        for cut in 0..gone.len() {
            assert!(!deletes(&gone[..cut], "ours"), "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn the_kernel_tells_of_a_deleted_table() {
        let table = "trireme-test-deletions";
        let mut deletions = Deletions::open().unwrap();
        super::super::apply(&format!("add table ip {table}\ndelete table ip {table}\n")).await.unwrap();
        super::super::apply(&format!("add table ip {table}\n")).await.unwrap();
        super::super::apply(&format!("delete table ip {table}\n")).await.unwrap();
        tokio::time::timeout(Duration::from_secs(60), deletions.of(table)).await.unwrap().unwrap();
    }
}
