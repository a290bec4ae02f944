//! Addresses and networks.

use std::net::IpAddr;

use ipnet::IpNet;

use super::error;
use crate::eval::Outcome;
use crate::functions::opaque::Opaque;
use crate::value::Value;

/// Neither zones nor mapped addresses: two texts must not mean the same in different ways.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    if text.contains('%') {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    let parsed: IpAddr = text.parse().map_err(|_| {
        format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        )
    })?;
    match parsed {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        ip => Ok(ip),
    }
}

fn parse_cidr(text: &str) -> Result<IpNet, String> {
    let parsed: IpNet = text.parse().map_err(|_| {
        format!("network address parse error during conversion from string: netip.ParsePrefix({text:?}): no '/'")
    })?;
    match parsed.addr() {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        _ => Ok(parsed),
    }
}

/// A function of addresses, if it is one.
pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let ip = |ip: IpAddr| Value::Opaque(Opaque::Ip(ip));
    let truth = |truth: bool| Some(Ok(Value::Bool(truth)));
    match (function, args) {
        ("ip", [Value::String(text)]) => Some(parse_ip(text).map_or_else(error, |parsed| Ok(ip(parsed)))),
        ("isIP", [Value::String(text)]) => truth(parse_ip(text).is_ok()),
        ("ip.isCanonical", [Value::String(text)]) => {
            Some(parse_ip(text).map_or_else(error, |ip| Ok(Value::Bool(ip.to_string() == **text))))
        }
        ("cidr", [Value::String(text)]) => {
            Some(parse_cidr(text).map_or_else(error, |net| Ok(Value::Opaque(Opaque::Cidr(net)))))
        }
        ("isCIDR", [Value::String(text)]) => truth(parse_cidr(text).is_ok()),
        (_, [Value::Opaque(Opaque::Ip(own))]) => match function {
            "family" => Some(Ok(Value::Int(if own.is_ipv4() { 4 } else { 6 }))),
            "isUnspecified" => truth(own.is_unspecified()),
            "isLoopback" => truth(own.is_loopback()),
            "isLinkLocalMulticast" => truth(match own {
                IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
                IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
            }),
            "isLinkLocalUnicast" => truth(is_link_local(own)),
            "isGlobalUnicast" => truth(
                !own.is_unspecified()
                    && !own.is_loopback()
                    && !own.is_multicast()
                    && !is_link_local(own)
                    && *own != IpAddr::from([255, 255, 255, 255]),
            ),
            _ => None,
        },
        (_, [Value::Opaque(Opaque::Cidr(own))]) => match function {
            "ip" => Some(Ok(ip(own.addr()))),
            "prefixLength" => Some(Ok(Value::Int(own.prefix_len().into()))),
            "masked" => Some(Ok(Value::Opaque(Opaque::Cidr(own.trunc())))),
            _ => None,
        },
        ("containsIP", [Value::Opaque(Opaque::Cidr(own)), Value::Opaque(Opaque::Ip(other))]) => {
            truth(own.contains(other))
        }
        ("containsIP", [Value::Opaque(Opaque::Cidr(own)), Value::String(text)]) => {
            Some(parse_ip(text).map_or_else(error, |other| Ok(Value::Bool(own.contains(&other)))))
        }
        ("containsCIDR", [Value::Opaque(Opaque::Cidr(own)), Value::Opaque(Opaque::Cidr(other))]) => {
            truth(own.contains(other))
        }
        ("containsCIDR", [Value::Opaque(Opaque::Cidr(own)), Value::String(text)]) => {
            Some(parse_cidr(text).map_or_else(error, |other| Ok(Value::Bool(own.contains(&other)))))
        }
        _ => None,
    }
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}
