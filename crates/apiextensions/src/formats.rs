//! The formats of strings and numbers that upstream checks; any other is not looked at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;

use crate::Types;

/// A format that means something.
#[derive(Debug, Clone)]
pub(crate) struct Format {
    /// As the schema writes it.
    pub(crate) name: String,
    rule: Rule,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    Text(fn(&str) -> bool),
    /// Of a number: judged by its range.
    Number,
}

impl Format {
    /// The format of a schema; nothing where upstream ignores it.
    pub(crate) fn of(name: &str, types: Types) -> Option<Self> {
        let rule = match types.only() {
            Some("integer") => matches!(name, "int32" | "int64").then_some(Rule::Number),
            Some("number") => matches!(name, "float" | "double").then_some(Rule::Number),
            Some("string") | None => text_rule(&name.replace('-', "")).map(Rule::Text),
            Some(_) => None,
        }?;
        Some(Self { name: name.to_owned(), rule })
    }

    /// Whether a string is of this format; a number's format says nothing about strings.
    pub(crate) fn fits(&self, text: &str) -> bool {
        match self.rule {
            Rule::Text(rule) => rule(text),
            Rule::Number => true,
        }
    }
}

/// Whether a format of values of a type, named as schemas name it, is checked.
pub fn is_known_format(format: &str, kind: &str) -> bool {
    let checked = kind.is_empty() || matches!(kind, "string" | "integer" | "number");
    checked && Format::of(format, Types::named(kind)).is_some()
}

/// By the name without dashes.
fn text_rule(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |text| text.contains('.') && ip(text).is_some(),
        "ipv6" => |text| text.contains(':') && ip(text).is_some(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| UUID.is_match(text),
        "uuid3" => |text| UUID3.is_match(text),
        "uuid4" => |text| UUID4.is_match(text),
        "uuid5" => |text| UUID5.is_match(text),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| SSN.is_match(text),
        "hexcolor" => |text| HEX_COLOR.is_match(text),
        "rgbcolor" => |text| RGB_COLOR.is_match(text),
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && is_label(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_label),
        _ => return None,
    })
}

macro_rules! patterns {
    ($($name:ident = $pattern:literal;)*) => {
        $(static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($pattern).expect("a pattern of ours"));)*
    };
}

patterns! {
    UUID = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID3 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    SSN = "^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$";
    HEX_COLOR = "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = r"^rgb\(\s*(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])\s*,\s*(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])\s*,\s*(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])\s*\)$";
    CARD = "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14})$";
    HOSTNAME = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    GO_DURATION = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
    AMOUNT = r"([0-9]+)\s*([A-Za-zµ]+)";
}

/// Absolute, or an absolute path: what may stand in the first line of an HTTP request.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if let Some(path) = text.strip_prefix('/') {
        return !has_bad_escape(path);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    named && !has_bad_escape(rest) && !authority(rest).contains(' ')
}

fn authority(rest: &str) -> &str {
    let rest = rest.strip_prefix("//").unwrap_or_default();
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn has_bad_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && !(is_hex(at + 1) && is_hex(at + 2)))
}

/// `a@b` or `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let address = match text.trim().strip_suffix('>') {
        Some(named) => named.rsplit_once('<').map(|(_, address)| address).unwrap_or_default(),
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |part: &str| {
        !part.is_empty()
            && part.split('.').all(|word| {
                !word.is_empty()
                    && word
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c))
            })
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || is_atom(local)) && (literal || is_atom(domain))
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && HOSTNAME.is_match(text) && text.split('.').all(|part| part.len() <= 63)
}

/// Leading zeros are read as decimal, as upstream's sloppy reader does.
fn ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let parts: Vec<&str> = text.split('.').collect();
    let octet = |part: &&str| {
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.trim_start_matches('0')).map(|part| if part.is_empty() { "0" } else { part })?.parse().ok()
    };
    let octets: Vec<u8> = parts.iter().map(octet).collect::<Option<_>>()?;
    <[u8; 4]>::try_from(octets).ok().map(|octets| IpAddr::V4(Ipv4Addr::from(octets)))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let (Some(address), true, Ok(length)) = (ip(address), digits, length.parse()) else { return false };
    ipnet::IpNet::new(address, length).is_ok()
}

/// Six, eight or twenty bytes, in pairs with colons or dashes or in fours with dots.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let fits = |part: &&str| part.len() == width && part.bytes().all(|b| b.is_ascii_hexdigit());
        matches!(parts.len() * width / 2, 6 | 8 | 20) && parts.iter().all(fits)
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

fn digits(text: &str) -> Vec<u32> {
    text.chars().filter(|c| !matches!(c, ' ' | '-')).filter_map(|c| c.to_digit(10)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let plain: String = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let (Some(start), Some(last)) = (plain.get(..9), plain.get(9..10)) else { return false };
    if plain.len() != 10 || !start.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let check = match last {
        "X" => 10,
        digit => match digit.parse::<u32>() {
            Ok(digit) => digit,
            Err(_) => return false,
        },
    };
    let sum: u32 = (1..).zip(digits(start)).map(|(weight, digit)| weight * digit).sum();
    (sum + 10 * check).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let plain: String = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    if plain.len() != 13 || !plain.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let sum: u32 = digits(&plain).iter().zip([1, 3].into_iter().cycle()).map(|(digit, weight)| digit * weight).sum();
    sum.is_multiple_of(10)
}

/// Whatever stands between the digits, they must be those of a card and add up.
fn is_credit_card(text: &str) -> bool {
    let plain: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |(at, digit): (usize, u32)| match (at % 2, digit * 2) {
        (0, _) => digit,
        (_, twice) if twice > 9 => twice - 9,
        (_, twice) => twice,
    };
    let sum: u32 = digits(&plain).into_iter().rev().enumerate().map(doubled).sum();
    CARD.is_match(&plain) && sum.is_multiple_of(10)
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// In any case of letters, and without leap seconds.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(parts) = TIME.captures(time) else { return false };
    is_date(date) && &parts[1] <= "23" && &parts[2] <= "59" && &parts[3] <= "59"
}

fn is_duration(text: &str) -> bool {
    GO_DURATION.is_match(text) || worded_duration(text).is_some()
}

/// The nanoseconds of a duration as Go writes it, or of numbers with words wherever they stand: `5m30s`, `3 days`.
pub(crate) fn duration_nanos(text: &str) -> Option<i64> {
    machinery::duration::parse_nanos(text).ok().or_else(|| worded_duration(text))
}

fn worded_duration(text: &str) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    // The last of each may be the beginning of a longer word.
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], SECOND),
        (&["m", "min"], 60 * SECOND),
        (&["h", "hr", "hour"], 3_600 * SECOND),
        (&["d", "day"], 24 * 3_600 * SECOND),
        (&["w", "wk", "week"], 7 * 24 * 3_600 * SECOND),
    ];
    let unit = |word: &str| {
        let is = |names: &[&str]| names.contains(&word) || names.last().is_some_and(|start| word.starts_with(start));
        UNITS.iter().find(|(names, _)| is(names)).map(|(_, nanos)| *nanos)
    };
    let mut sum = None;
    for amount in AMOUNT.captures_iter(text) {
        let count: i64 = amount[1].parse().ok()?;
        if let Some(nanos) = unit(&amount[2].to_lowercase()) {
            // Too many begin again, as integers do in Go.
            sum = Some(sum.unwrap_or(0_i64).wrapping_add(count.wrapping_mul(nanos)));
        }
    }
    sum
}

fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_good_texts_from_bad_ones() {
        let check = |name: &str, good: &[&str], bad: &[&str]| {
            let rule = text_rule(name).unwrap_or_else(|| panic!("{name} is a format"));
            good.iter().for_each(|text| assert!(rule(text), "{name}: {text} is good"));
            bad.iter().for_each(|text| assert!(!rule(text), "{name}: {text} is bad"));
        };
        check("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "256.1.1.1", "::1", "1.2.3.4.5", "a.b.c.d"]);
        check("ipv6", &["::1", "fe80::1"], &["1.2.3.4", ":", "g::"]);
        check("cidr", &["10.0.0.0/8", "::/0", "10.1.2.3/24"], &["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/+8"]);
        check("mac", &["00:00:5e:00:53:01", "02-00-5e-10-00-00", "0200.5e10.0000"], &["00:00:5e", "zz:00:5e:00:53:01"]);
        check("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123e4567"]);
        check("uuid4", &["9e107d9d-372b-4bd8-8a1d-3542a419d6aa"], &["9e107d9d-372b-3bd8-8a1d-3542a419d6aa"]);
        check("isbn10", &["0321751043", "0-306-40615-2", "097522980X"], &["0321751044", "978-0321751041"]);
        check("isbn13", &["978-0321751041"], &["978-0321751042"]);
        check("creditcard", &["4242 4242 4242 4242", "371449635398431"], &["4242 4242 4242 4241", "1"]);
        check("hexcolor", &["#fff", "A1B2C3"], &["#ffff", "ggg"]);
        check("rgbcolor", &["rgb(255, 0, 12)"], &["rgb(256,0,0)", "rgb(1,2)"]);
        check("byte", &["aGVsbG8="], &["aGVsbG8", "", "*"]);
        check("date", &["2024-02-29"], &["2023-02-29", "2024-1-1", "2024-02-29T00:00:00Z"]);
        check(
            "datetime",
            &["2014-12-15T19:30:20.000Z", "2014-12-15T19:30:20+02:00"],
            &["2014-12-15", "2014-12-15T25:30:20Z", "2014-13-15T19:30:20Z"],
        );
        assert_eq!(duration_nanos("2 Days and 1 hour"), Some(49 * 3_600_000_000_000));
        assert_eq!(duration_nanos("-1.5h"), Some(-5_400_000_000_000));
        check("duration", &["1h5m", "22 ns", "3 days", "0", "-1.5h"], &["1", "h", "1 fortnight", ""]);
        check("email", &["a@b.c", "A B <a@b>"], &["a", "@b", "a b@c", "a@"]);
        check("hostname", &["a.example.com", "localhost"], &["a..b", "-a.example.com", "a_b.example.com"]);
        check("uri", &["http://a/b?c", "/path", "urn:x"], &["", "a/b", "http://%zz", "1http:x"]);
        check("k8sshortname", &["a-1"], &["a.b", "-a", "A"]);
        check("k8slongname", &["a.b-1.c"], &["a..b", "A.b"]);
    }

    #[test]
    fn a_format_counts_only_for_its_type() {
        let schema = |types: &str| crate::Schema::read(&serde_json::json!({"type": types})).expect("a schema").types;
        assert!(Format::of("int32", schema("integer")).is_some());
        assert!(Format::of("int32", schema("string")).is_none());
        assert!(Format::of("date-time", schema("string")).is_some());
        assert!(Format::of("date-time", schema("object")).is_none());
        assert!(Format::of("nonsense", schema("string")).is_none());
        assert!(Format::of("double", schema("number")).is_some());
    }
}
