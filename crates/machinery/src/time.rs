//! Timestamps as Kubernetes writes them. The clock itself is injected by whoever has one.

use jiff::Timestamp;

/// `metav1.Time`: RFC 3339 in UTC, whole seconds.
pub fn format(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime`: RFC 3339 in UTC with exactly six decimals.
pub fn format_micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Reads either form, with any offset.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_and_micro_times_have_six_decimals() {
        let at = parse("2026-02-03T04:05:06.789+01:00").expect("a timestamp");
        assert_eq!(format(at), "2026-02-03T03:05:06Z");
        assert_eq!(format_micro(at), "2026-02-03T03:05:06.789000Z");
    }
}
