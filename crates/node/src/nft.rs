//! nftables, one transaction at a time.
//!
//! [`apply`] hands a whole script to one `nft -f -` run: the kernel takes all of it or none of it, so a reader of the
//! rules (a packet) never sees half an update. [`change`] does the same for elements only, without a program. Who computes
//! the changes owns its table; this module owns only the way in.

mod changes;
mod elements;
mod log;

use std::time::Duration;

use crate::run;
pub use changes::Changes;
pub use elements::{Data, Elements, Registers, change};
pub use log::{Log, Logged};

/// A transaction of a hundred thousand elements takes seconds; one that takes this long never ends.
const LIMIT: Duration = Duration::from_secs(60);

/// The address family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 only.
    Ip,
    /// IPv6 only.
    Ip6,
    Inet,
    /// Frames crossing a bridge.
    Bridge,
}

impl Family {
    /// The word `nft` uses for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
            Self::Bridge => "bridge",
        }
    }

    /// The number the kernel uses for it.
    fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Bridge => 7,
            Self::Ip6 => 10,
        }
    }
}

/// Why the kernel's rules are not what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The script was refused; nothing of it was taken.
    #[error("apply nftables ruleset: {0}")]
    Apply(#[source] run::Error),
    /// Elements were refused; none of them was changed.
    #[error("change nftables elements: {0}")]
    Change(#[source] std::io::Error),
    /// The table exists but could not be read.
    #[error("list nftables table {family} {name}: {source}")]
    List { family: &'static str, name: String, source: run::Error },
}

/// Applies `ruleset` as one transaction: all of it or nothing.
pub async fn apply(ruleset: &str) -> Result<(), Error> {
    let applied = run::output_noting("nft", &["-f", "-"], ruleset.as_bytes(), LIMIT, changes::remember).await;
    applied.map(drop).map_err(Error::Apply)
}

/// The rules of one table as `nft` prints them (numeric, without counters' noise); empty when there is no such table.
pub async fn list_table(family: Family, name: &str) -> Result<String, Error> {
    let args = ["--numeric", "--stateless", "list", "table", family.as_str(), name];
    match run::output("nft", &args, b"", LIMIT).await {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(run::Error::Failed { stderr, .. }) if stderr.contains("No such file or directory") => Ok(String::new()),
        Err(source) => Err(Error::List { family: family.as_str(), name: name.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table no hook refers to: it holds rules and touches no packet.
    const TABLE: &str = "trireme-test-nft";

    #[tokio::test]
    async fn a_transaction_is_taken_whole_or_not_at_all() {
        let make = format!("table ip {TABLE} {{ map m {{ type ipv4_addr : verdict; }}; chain c {{ return; }}; }}");
        apply(&make).await.unwrap();
        let refused = apply(&format!("add chain ip {TABLE} d\nadd rule ip {TABLE} nowhere return")).await.unwrap_err();
        assert!(refused.to_string().contains("No such file or directory"), "{refused}");
        let listed = list_table(Family::Ip, TABLE).await.unwrap();
        assert!(listed.contains("chain c") && !listed.contains("chain d"), "{listed}");
        apply(&format!("delete table ip {TABLE}")).await.unwrap();
        assert_eq!(list_table(Family::Ip, TABLE).await.unwrap(), "");
    }
}
