//! Notifications that somebody else changed a table: the kernel says so to whoever listens.
//!
//! Every change is announced with the netlink port of the socket that asked for it, which for `nft` is its process id. So
//! what [`super::apply`] and [`super::change`] of this process did is kept apart from what others do (`nft flush ruleset`, a firewall's restart, a
//! deleted rule), and nobody has to compare tables, or look at them from time to time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use parking_lot::Mutex;
use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};

pub(super) const NETLINK_NETFILTER: isize = 12;
const GROUP: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES`, in the upper half of a message's kind.
pub(super) const SUBSYSTEM: u16 = 10;
/// `NFT_MSG_NEWGEN`: a transaction is over. The one message that is about no table.
const GENERATION: u16 = 15;
/// The first attribute of every message is the table's name.
const NAME: u16 = 1;
/// A netlink header, and the header of netfilter's messages behind it.
pub(super) const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;
/// Room for the announcements of a transaction of some hundred thousand elements.
const BUFFER: usize = 8 << 20;
/// So many of our own transactions are remembered: more than can have been announced and not been read.
const REMEMBERED: usize = 256;

/// The shortest and the longest time between two words about changes.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The ports of the last transactions of this process: process ids of `nft` commands, and ports of its own sockets.
static OWN: Mutex<VecDeque<u32>> = Mutex::new(VecDeque::new());

/// Remembers a transaction of ours, before it can have changed anything.
pub(super) fn remember(port: u32) {
    let mut own = OWN.lock();
    if own.len() == REMEMBERED {
        own.pop_front();
    }
    own.push_back(port);
}

/// Makes room for so many bytes. Without the right to it the usual room has to do: what overflows counts as changed, and what
/// cannot be sent is an error.
pub(super) fn force_buffer(socket: &impl AsRawFd, option: libc::c_int, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open, and the option's value is an integer of the length that is said.
    #[allow(unsafe_code)]
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Hears of changes from the moment it is opened, in the network namespace of the thread that opens it.
pub struct Changes(TokioSocket);

impl Changes {
    pub fn open() -> io::Result<Self> {
        Self::with_buffer(BUFFER)
    }

    fn with_buffer(bytes: usize) -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        socket.socket_mut().add_membership(GROUP)?;
        force_buffer(&socket, libc::SO_RCVBUFFORCE, bytes);
        Ok(Self(socket))
    }

    /// Says so whenever somebody else changed a table of this name, for ever: at once the first time, and ever more slowly while
    /// it goes on, for two that fight over a table must not do nothing else.
    pub async fn on_change(mut self, table: &str, mut changed: impl FnMut()) -> io::Result<Infallible> {
        let mut pause = PAUSE.0;
        let mut again = false;
        loop {
            if !again {
                self.by_others(table).await?;
            }
            changed();
            // What is announced meanwhile is read, so that it cannot overflow.
            let end = tokio::time::sleep(pause);
            tokio::pin!(end);
            again = false;
            loop {
                tokio::select! {
                    other = self.by_others(table) => {
                        other?;
                        again = true;
                    }
                    () = &mut end => break,
                }
            }
            pause = if again { (pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        }
    }

    /// Waits until somebody else changes a table of this name, or so much changes at once that it may have been.
    async fn by_others(&mut self, table: &str) -> io::Result<()> {
        loop {
            match self.0.recv_from_full().await {
                Ok((datagram, _)) if touched(&datagram, table, |process| OWN.lock().contains(&process)) => {
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether one of the messages says that somebody changed the table who is not one of us.
fn touched(mut datagram: &[u8], table: &str, is_own: impl Fn(u32) -> bool) -> bool {
    while let Some((header, _)) = datagram.split_first_chunk::<HEADER>() {
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, process) = (word(0) as usize, word(12));
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(message) = datagram.get(HEADER..length) else { return false };
        let about_a_table = kind >> 8 == SUBSYSTEM && kind & 0xff != GENERATION;
        if about_a_table && message.get(FAMILY_HEADER..).and_then(name) == Some(table.as_bytes()) && !is_own(process) {
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
    use std::process::Stdio;

    const DELETE_TABLE: u16 = (SUBSYSTEM << 8) | 2;
    const DELETE_RULE: u16 = (SUBSYSTEM << 8) | 8;

    fn message(kind: u16, table: &str, process: u32) -> Vec<u8> {
        let mut attribute = [&u16::try_from(table.len() + 5).unwrap().to_ne_bytes()[..], &NAME.to_ne_bytes()].concat();
        attribute.extend([table.as_bytes(), &[0]].concat());
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        let length = u32::try_from(HEADER + FAMILY_HEADER + attribute.len()).unwrap();
        let header = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 6], &process.to_ne_bytes()].concat();
        [&header[..], &[2, 0, 0, 0], &attribute].concat()
    }

    #[test]
    fn only_changes_to_the_named_table_by_others_count() {
        let check = |datagram: &[u8]| touched(datagram, "ours", |process| process == 7);
        let (gone, other) = (message(DELETE_TABLE, "ours", 8), message(DELETE_TABLE, "theirs", 8));
        assert!(check(&gone) && check(&message(DELETE_RULE, "ours", 8)));
        assert!(check(&[other.clone(), message(DELETE_TABLE, "ours", 7), gone.clone()].concat()));
        assert!(!check(&other) && !check(&message(DELETE_TABLE, "ours", 7)));
        assert!(!check(&message((SUBSYSTEM << 8) | GENERATION, "ours", 8)) && !check(&message(2, "ours", 8)));
        for cut in 0..gone.len() {
            assert!(!check(&gone[..cut]), "cut at {cut}");
        }
    }

    /// As an administrator does it: not through this module.
    async fn somebody(script: &str) {
        use tokio::io::AsyncWriteExt as _;
        let mut child = tokio::process::Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).await.unwrap();
        assert!(child.wait().await.unwrap().success(), "{script}");
    }

    #[tokio::test]
    async fn the_kernel_tells_who_changed_a_table() {
        let table = "trireme-test-changes";
        let mut changes = Changes::open().unwrap();
        let soon = Duration::from_secs(60);
        for script in
            ["flush chain ip T c", "add rule ip T c drop", "delete element ip T s { 10.0.0.1 }", "delete table ip T"]
        {
            let make = "table ip T { chain c { return; }; set s { type ipv4_addr; elements = { 10.0.0.1 }; }; }";
            super::super::apply(&make.replace(" T ", &format!(" {table} "))).await.unwrap();
            // Of our own transaction nothing is said: only what comes after it ends the wait.
            somebody("add table ip trireme-test-others\ndelete table ip trireme-test-others\n").await;
            assert!(
                tokio::time::timeout(Duration::from_millis(200), changes.by_others(table)).await.is_err(),
                "before {script}"
            );
            somebody(&script.replacen(" T", &format!(" {table}"), 1)).await;
            tokio::time::timeout(soon, changes.by_others(table)).await.expect(script).unwrap();
        }
    }

    #[tokio::test]
    async fn what_overflows_may_have_hidden_something() {
        let table = "trireme-test-flood";
        let mut changes = Changes::with_buffer(4096).unwrap();
        let many: Vec<String> = (0..20_000_u32).map(|n| std::net::Ipv4Addr::from(n).to_string()).collect();
        let elements = many.join(", ");
        super::super::apply(&format!(
            "table ip {table} {{ set s {{ type ipv4_addr; elements = {{ {elements} }}; }}; }}"
        ))
        .await
        .unwrap();
        tokio::time::timeout(Duration::from_secs(60), changes.by_others("any")).await.expect("an overflow").unwrap();
        super::super::apply(&format!("delete table ip {table}")).await.unwrap();
    }
}
