//! Forgetting tracked connections: a datagram flow would otherwise keep going to an endpoint that is gone.

use std::net::IpAddr;
use std::time::Duration;

use crate::run;

const LIMIT: Duration = Duration::from_secs(10);

/// Why entries could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("clear conntrack entries: {0}")]
pub struct Error(#[source] run::Error);

/// Forgets UDP flows to `address` (and `port`); only those that were sent on to `endpoint`, when it is given.
pub async fn clear_udp(address: IpAddr, port: Option<u16>, endpoint: Option<IpAddr>) -> Result<(), Error> {
    let mut args = vec!["-D".to_owned(), "-p".into(), "udp".into(), "--orig-dst".into(), address.to_string()];
    if let Some(port) = port {
        args.extend(["--dport".into(), port.to_string()]);
    }
    if let Some(endpoint) = endpoint {
        args.extend(["--dst-nat".into(), endpoint.to_string()]);
    }
    if address.is_ipv6() {
        args.extend(["-f".into(), "ipv6".into()]);
    }
    delete(&args).await
}

/// Forgets UDP flows to a local port, whatever the address.
pub async fn clear_udp_port(port: u16, ipv6: bool) -> Result<(), Error> {
    let mut args = vec!["-D".to_owned(), "-p".into(), "udp".into(), "--dport".into(), port.to_string()];
    if ipv6 {
        args.extend(["-f".into(), "ipv6".into()]);
    }
    delete(&args).await
}

async fn delete(args: &[String]) -> Result<(), Error> {
    match run::output("conntrack", args, b"", LIMIT).await {
        // The program calls it a failure when there was nothing to forget.
        Err(run::Error::Failed { stderr, .. }) if stderr.contains("0 flow entries have been deleted") => Ok(()),
        other => other.map(drop).map_err(Error),
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn nothing_to_forget_is_no_failure() {
        super::clear_udp("198.19.255.250".parse().unwrap(), Some(53), None).await.unwrap();
    }
}
