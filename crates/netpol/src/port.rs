//! A pod's port of the node's bridge, and where frames that come in by it must be from.

use std::net::IpAddr;

use node::nft::{self, Data, Registers};

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
        out.extend(self.addresses.iter().map(|ip| {
            let element =
                Element { text: format!("{link} . {mac} . {ip}"), bytes: of().part(&self.mac).address(*ip).bytes() };
            (if ip.is_ipv4() { "bound4" } else { "bound6" }, element)
        }));
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
