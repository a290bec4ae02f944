//! Where other names are asked: the machine's own resolver configuration, or what the administrator says.

use std::net::{IpAddr, SocketAddr};

use hickory_proto::rr::Name;

const PORT: u16 = 53;

/// The servers of a `resolv.conf`.
pub fn nameservers(text: &str) -> Vec<SocketAddr> {
    let lines = text.lines().map(|line| line.split(['#', ';']).next().unwrap_or_default());
    let servers = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next())?
    });
    // A link-local server comes with the name of its link, which only the system's resolver understands.
    servers.filter_map(|s| s.parse::<IpAddr>().ok()).map(|ip| SocketAddr::new(ip, PORT)).collect()
}

/// Who is asked for which names.
#[derive(Debug, Clone, Default)]
pub struct Upstreams {
    everything: Vec<SocketAddr>,
    stubs: Vec<(Name, Vec<SocketAddr>)>,
}

impl Upstreams {
    /// `everything` for all names but those under one of the stubs. Servers that are ourselves are left out: asking them
    /// would never end.
    pub fn new(everything: Vec<SocketAddr>, stubs: Vec<(Name, Vec<SocketAddr>)>, ourselves: &[SocketAddr]) -> Self {
        let others = |servers: Vec<SocketAddr>| -> Vec<SocketAddr> {
            servers.into_iter().filter(|server| !ourselves.contains(server)).collect()
        };
        let mut stubs: Vec<_> = stubs.into_iter().map(|(name, s)| (name.to_lowercase(), others(s))).collect();
        stubs.iter_mut().for_each(|(name, _)| name.set_fqdn(true));
        // The longest name that matches is the one that counts.
        stubs.sort_by_key(|(name, _)| std::cmp::Reverse(name.num_labels()));
        Self { everything: others(everything), stubs }
    }

    /// The servers to ask for a name.
    pub fn of(&self, name: &Name) -> &[SocketAddr] {
        self.stubs.iter().find(|(stub, _)| stub.zone_of(name)).map_or(&self.everything, |(_, servers)| servers)
    }

    /// Whether any server has this address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.everything.iter().chain(self.stubs.iter().flat_map(|(_, s)| s)).any(|server| server.ip() == ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_as_resolvers_do() {
        let text = "# nameserver 192.0.2.1\nsearch example\nnameserver 192.0.2.2 ; second\n  nameserver\t2001:db8::1\n\
                    nameserver fe80::1%eth0\nnameserver\noptions ndots:5\n";
        let servers: Vec<String> = nameservers(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.2:53", "[2001:db8::1]:53"]);
    }

    #[test]
    fn the_longest_stub_counts_and_we_never_ask_ourselves() {
        let server = |n: u8| SocketAddr::from(([192, 0, 2, n], 53));
        let name = |text: &str| Name::from_ascii(text).unwrap();
        let stubs =
            vec![(name("Corp.example"), vec![server(2)]), (name("lab.corp.example."), vec![server(3), server(9)])];
        let upstreams = Upstreams::new(vec![server(1), server(9)], stubs, &[server(9)]);
        assert_eq!(upstreams.of(&name("www.example.org.")), [server(1)]);
        assert_eq!(upstreams.of(&name("a.corp.example.")), [server(2)]);
        assert_eq!(upstreams.of(&name("a.lab.corp.example.")), [server(3)]);
        assert_eq!(upstreams.of(&name("notcorp.example.")), [server(1)]);
    }
}
