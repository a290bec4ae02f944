//! A pod's port of the node's bridge, and where frames that come in by it must be from.
//!
//! To a pod that is isolated from what comes in, other pods of the bridge send nothing but what is addressed to it: what is for many at once is judged by
//! nobody, since no policy speaks of such addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use node::nft::{self, Data, Registers};

use crate::compile::Compiler;
use crate::model::Direction;
use crate::table::TABLE;

/// What the runtime says of a pod's link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The link's name on the node.
    pub link: String,
    /// The pod's own address of its end.
    pub mac: [u8; 6],
    pub addresses: Vec<IpAddr>,
}

/// An element of a set, in both forms.
pub(crate) struct Element {
    pub text: String,
    bytes: Vec<u8>,
}

impl Port {
    /// A link's name and a hardware address as others write it; nothing if they are none.
    pub fn parse(link: &str, mac: &str, addresses: &[IpAddr]) -> Option<Self> {
        let parts: Vec<u8> = mac.split(':').map(|part| u8::from_str_radix(part, 16)).collect::<Result<_, _>>().ok()?;
        let sane =
            !link.is_empty() && link.len() < 16 && link.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        Some(Self { link: sane.then(|| link.to_owned())?, mac: parts.try_into().ok()?, addresses: addresses.to_vec() })
    }

    /// Its elements, with the sets that they are in.
    pub(crate) fn elements(&self) -> Vec<(&'static str, Element)> {
        let mac: Vec<String> = self.mac.iter().map(|part| format!("{part:02x}")).collect();
        let (link, mac) = (format!("\"{}\"", self.link), mac.join(":"));
        let of = || Registers::default().link(&self.link);
        let mut out = vec![
            ("ports", Element { text: link.clone(), bytes: of().bytes() }),
            ("links", Element { text: format!("{link} . {mac}"), bytes: of().part(&self.mac).bytes() }),
        ];
        for ip in &self.addresses {
            let (bound, given) = if ip.is_ipv4() { ("bound4", "given4") } else { ("bound6", "given6") };
            let bytes = of().part(&self.mac).address(*ip).bytes();
            out.push((bound, Element { text: format!("{link} . {mac} . {ip}"), bytes }));
            out.push((given, Element { text: format!("{link} . {ip}"), bytes: of().address(*ip).bytes() }));
        }
        out
    }

    /// Adds the change from one port to another, either of which may be none.
    pub(crate) fn change(out: &mut nft::Elements, before: Option<&Self>, after: Option<&Self>) {
        if before == after {
            return;
        }
        for (set, element) in before.map(Self::elements).unwrap_or_default() {
            out.delete(nft::Family::Bridge, TABLE, set, &[element.bytes]);
        }
        for (set, element) in after.map(Self::elements).unwrap_or_default() {
            out.add(nft::Family::Bridge, TABLE, set, &[(element.bytes, Data::None)]);
        }
    }
}

/// The links of pods that are isolated from what comes in.
pub(crate) fn quiet<'a>(compiler: &Compiler, ports: impl Iterator<Item = &'a Port>) -> BTreeSet<String> {
    let isolated = |ip: &IpAddr| compiler.ruleset_of(Direction::Ingress, *ip).is_some();
    ports.filter(|port| port.addresses.iter().any(isolated)).map(|port| port.link.clone()).collect()
}

/// Which links are quiet now.
#[derive(Debug, Default)]
pub struct Quiet(BTreeSet<String>);

impl Quiet {
    /// Adds what changed since it was looked at last.
    pub fn change<'a>(&mut self, out: &mut nft::Elements, compiler: &Compiler, ports: impl Iterator<Item = &'a Port>) {
        let after = quiet(compiler, ports);
        let bytes = |link: &String| Registers::default().link(link).bytes();
        let gone: Vec<Vec<u8>> = self.0.difference(&after).map(bytes).collect();
        let come: Vec<(Vec<u8>, Data)> = after.difference(&self.0).map(|link| (bytes(link), Data::None)).collect();
        if !gone.is_empty() {
            out.delete(nft::Family::Bridge, TABLE, "quiet", &gone);
        }
        if !come.is_empty() {
            out.add(nft::Family::Bridge, TABLE, "quiet", &come);
        }
        self.0 = after;
    }
}
