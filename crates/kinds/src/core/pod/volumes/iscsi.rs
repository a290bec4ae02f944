//! Volumes behind iSCSI.

use crate::checks::{At, Errors};
use crate::core::pod::volumes::require;

pub fn iscsi(at: &At<'_, '_>, errors: &mut Errors) {
    require(at, &["targetPortal"], errors);
    iscsi_names(at, "must be valid format starting with iqn, eui, or naa", errors);
}

/// What volumes and persistent volumes over iSCSI have in common. They speak differently of a wrong beginning.
pub fn iscsi_names(at: &At<'_, '_>, wrong_start: &str, errors: &mut Errors) {
    let iqn = at.at("iqn");
    if errors.required_text(&iqn) {
        iscsi_name(&iqn, wrong_start, errors);
    }
    let lun = at.at("lun");
    if lun.int().is_some_and(|lun| !(0..=255).contains(&lun)) {
        errors.invalid(&lun, "must be between 0 and 255, inclusive");
    }
    if (at.at("chapAuthDiscovery").flag() || at.at("chapAuthSession").flag()) && !at.has("secretRef") {
        errors.required(&at.at("secretRef"), "");
    }
    if at.has("initiatorName") {
        iscsi_name(&at.named("initiatorname", "initiatorName"), wrong_start, errors);
    }
}

fn iscsi_name(at: &At<'_, '_>, wrong_start: &str, errors: &mut Errors) {
    let name = at.text();
    let alphanumeric =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let good = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        // Any character may follow the first three: the pattern's dot is not escaped.
        Some("eui") => name.get(4..).is_some_and(|rest| alphanumeric(rest, 16)),
        Some("naa") => name.get(4..).is_some_and(|rest| alphanumeric(rest, 32)),
        _ => return errors.invalid_text(at, wrong_start),
    };
    if !good {
        errors.invalid_text(at, "must be valid format");
    }
}

/// `iqn.yyyy-mm.domain:name`.
fn is_iqn(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let bytes = rest.as_bytes();
    let date = bytes.len() > 8
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes[5..7].iter().all(u8::is_ascii_digit)
        && bytes[7] == b'.';
    let Some((domain, unique)) = date.then(|| rest[8..].split_once(':')).flatten() else { return false };
    let in_domain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let in_unique = |c: char| !matches!(c, ',' | ';' | '*' | '&' | '$' | '|') && !c.is_whitespace();
    !domain.is_empty() && domain.bytes().all(in_domain) && !unique.is_empty() && unique.chars().all(in_unique)
}
