//! IP addresses and CIDR blocks, as the older (lenient) and the newer (strict, canonical) fields want them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::status::FieldError;

/// Reads an address as upstream always did: octets of an IPv4 address may have leading zeros.
pub fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        // Upstream takes no zones, and neither does this parser.
        return match text.rfind(':') {
            Some(at) if text[at..].contains('.') => {
                let mapped = parse_v4_sloppy(&text[at + 1..])?;
                format!("{}{mapped}", &text[..=at]).parse::<Ipv6Addr>().ok().map(IpAddr::V6)
            }
            _ => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        };
    }
    parse_v4_sloppy(text).map(IpAddr::V4)
}

fn parse_v4_sloppy(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // A number beyond any octet is refused before it can overflow, whatever zeros lead it.
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// Reads a block as upstream always did; host bits may be set, zeros may lead.
pub fn parse_cidr_sloppy(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_sloppy(address)?;
    if length.is_empty() || length.len() > 16 || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let length: u64 = length.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length as u8))
}

/// An address as Go prints it: an IPv4 address in IPv6 clothes comes out as IPv4.
pub fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The network of a block: the address with all host bits cleared.
pub fn network(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// An address in a field that existed before addresses were checked strictly. Values in `known` passed once and pass again.
pub fn is_valid_ip_for_legacy_field(path: &str, value: &str, strict: bool, known: &[&str]) -> Vec<FieldError> {
    if known.contains(&value) {
        return Vec::new();
    }
    check_ip(path, value, strict).1
}

/// An address in a newer field: strict, and in canonical form.
pub fn is_valid_ip(path: &str, value: &str) -> Vec<FieldError> {
    let (address, mut errors) = check_ip(path, value, true);
    if let Some(address) = address.filter(|_| errors.is_empty()) {
        let shown = address.to_string();
        if shown != value {
            errors.push(FieldError::invalid(path, value, format!("must be in canonical form ({shown:?})")));
        }
    }
    errors
}

fn check_ip(path: &str, value: &str, strict: bool) -> (Option<IpAddr>, Vec<FieldError>) {
    let Some(address) = parse_sloppy(value) else {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        return (None, vec![FieldError::invalid(path, value, detail)]);
    };
    let mut errors = Vec::new();
    if strict && value.parse::<IpAddr>().is_err() {
        errors.push(FieldError::invalid(path, value, "must not have leading 0s"));
    } else if strict && is_mapped(address) {
        errors.push(FieldError::invalid(path, value, "must not be an IPv4-mapped IPv6 address"));
    }
    (Some(canonical(address)), errors)
}

/// A block in a field that existed before blocks were checked strictly. Values in `known` passed once and pass again.
pub fn is_valid_cidr_for_legacy_field(path: &str, value: &str, strict: bool, known: &[&str]) -> Vec<FieldError> {
    if known.contains(&value) {
        return Vec::new();
    }
    check_cidr(path, value, strict).1
}

/// A block in a newer field: strict, and in canonical form.
pub fn is_valid_cidr(path: &str, value: &str) -> Vec<FieldError> {
    let (block, mut errors) = check_cidr(path, value, true);
    if let Some((address, length)) = block.filter(|_| errors.is_empty()) {
        let shown = format!("{}/{length}", network(address, length));
        if shown != value {
            errors.push(FieldError::invalid(path, value, format!("must be in canonical form ({shown:?})")));
        }
    }
    errors
}

fn check_cidr(path: &str, value: &str, strict: bool) -> (Option<(IpAddr, u8)>, Vec<FieldError>) {
    let Some((address, length)) = parse_cidr_sloppy(value) else {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        return (None, vec![FieldError::invalid(path, value, detail)]);
    };
    let mut errors = Vec::new();
    if strict {
        let (ip, digits) = value.split_once('/').unwrap_or((value, ""));
        if ip.parse::<IpAddr>().is_err() || (digits.len() > 1 && digits.starts_with('0')) {
            errors.push(FieldError::invalid(path, value, "must not have leading 0s in IP or prefix length"));
        } else if is_mapped(address) {
            errors.push(FieldError::invalid(path, value, "must not have an IPv4-mapped IPv6 address"));
        } else if network(address, length) != address {
            errors.push(FieldError::invalid(path, value, "must not have bits set beyond the prefix length"));
        }
    }
    (Some((address, length)), errors)
}

/// Warnings about an address that passed as one of an older field.
pub fn warnings_for_ip(path: &str, value: &str) -> Vec<String> {
    let Some(address) = parse_sloppy(value) else { return Vec::new() };
    let shown = canonical(address).to_string();
    if value.parse::<IpAddr>().is_err() || is_mapped(address) {
        return vec![format!("{path}: non-standard IP address {value:?} is invalid: use {shown:?}")];
    }
    if address.is_ipv6() && shown != value {
        return vec![format!("{path}: IPv6 address {value:?} should be in RFC 5952 canonical format ({shown:?})")];
    }
    Vec::new()
}

/// Warnings about a block that passed as one of an older field.
pub fn warnings_for_cidr(path: &str, value: &str) -> Vec<String> {
    let Some((address, length)) = parse_cidr_sloppy(value) else { return Vec::new() };
    let base = network(address, length);
    let shown = format!("{}/{length}", canonical(base));
    let mut warnings = Vec::new();
    if base != address {
        let host = if address.is_ipv4() { 32 } else { 128 };
        warnings.push(format!(
            "{path}: CIDR value {value:?} is ambiguous in this context (should be {shown:?} or \"{}/{host}\"?)",
            canonical(address)
        ));
    }
    let (ip, digits) = value.split_once('/').unwrap_or((value, ""));
    if ip.parse::<IpAddr>().is_err() || (digits.len() > 1 && digits.starts_with('0')) || is_mapped(address) {
        warnings.push(format!("{path}: non-standard CIDR value {value:?} is invalid: use {shown:?}"));
    }
    if warnings.is_empty() && address.is_ipv6() && shown != value {
        warnings.push(format!("{path}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format ({shown:?})"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_judged_as_upstream_judges_them() {
        let strict = |value: &str| is_valid_ip_for_legacy_field("f", value, true, &[]).pop().map(|e| e.detail);
        for good in ["10.0.0.1", "::1", "FE80::ABC", "2001:db8::ffff"] {
            assert_eq!(strict(good), None, "{good}");
        }
        assert_eq!(strict("010.0.0.1").as_deref(), Some("must not have leading 0s"));
        assert_eq!(strict("::ffff:1.2.3.4").as_deref(), Some("must not be an IPv4-mapped IPv6 address"));
        for bad in ["", "1.2.3", "256.0.0.1", "1.2.3.4.5", "fe80::1%eth0", "::ffff:1.2.3", "a"] {
            assert!(strict(bad).is_some_and(|d| d.starts_with("must be a valid IP")), "{bad}");
        }
        assert!(is_valid_ip_for_legacy_field("f", "010.0.0.1", false, &[]).is_empty());
        assert!(is_valid_ip_for_legacy_field("f", "x", true, &["x"]).is_empty());
        assert_eq!(is_valid_ip("f", "FE80::ABC")[0].detail, "must be in canonical form (\"fe80::abc\")");
    }

    #[test]
    fn blocks_are_judged_as_upstream_judges_them() {
        let strict = |value: &str| is_valid_cidr_for_legacy_field("f", value, true, &[]).pop().map(|e| e.detail);
        for good in ["10.0.0.0/8", "::/0", "0.0.0.0/0", "fd00::/64", "1.2.3.4/32"] {
            assert_eq!(strict(good), None, "{good}");
        }
        assert_eq!(strict("10.0.0.1/8").as_deref(), Some("must not have bits set beyond the prefix length"));
        assert_eq!(strict("10.0.0.0/08").as_deref(), Some("must not have leading 0s in IP or prefix length"));
        for bad in
            ["10.0.0.0", "10.0.0.0/33", "::/129", "/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/99999999999999999999"]
        {
            assert!(strict(bad).is_some_and(|d| d.starts_with("must be a valid CIDR")), "{bad}");
        }
        assert_eq!(is_valid_cidr("f", "FD00::/64")[0].detail, "must be in canonical form (\"fd00::/64\")");
    }

    #[test]
    fn odd_values_that_pass_are_warned_about() {
        assert_eq!(warnings_for_ip("f", "10.0.0.1"), Vec::<String>::new());
        assert_eq!(
            warnings_for_ip("f", "010.0.0.1"),
            ["f: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\""]
        );
        assert_eq!(
            warnings_for_ip("f", "FE80::1"),
            ["f: IPv6 address \"FE80::1\" should be in RFC 5952 canonical format (\"fe80::1\")"]
        );
        assert_eq!(
            warnings_for_cidr("f", "10.0.0.1/8"),
            [
                "f: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"
            ]
        );
        assert_eq!(warnings_for_cidr("f", "fd00::/8"), Vec::<String>::new());
    }
}
