//! Addresses that endpoints may have.

use std::net::IpAddr;

use machinery::names::ip;

use crate::checks::{At, Errors};

/// An address that traffic can be sent to.
pub fn endpoint_ip(at: &At<'_, '_>, errors: &mut Errors) {
    let Some(address) = ip::parse_sloppy(at.text()).map(ip::canonical) else {
        return errors.invalid_text(at, "must be a valid IP address");
    };
    let (link_local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        errors.invalid_text(at, format!("may not be unspecified ({})", at.text()));
    }
    if address.is_loopback() {
        errors.invalid_text(at, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        errors.invalid_text(at, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        errors.invalid_text(at, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}
