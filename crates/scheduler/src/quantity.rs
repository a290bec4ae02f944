//! Quantities as the scheduler needs them: whole units and thousandths, both rounded up, saturating at `i64`.
//!
//! Scheduling never writes a quantity back, so the canonical form, the suffix and arbitrary precision are of no interest
//! here; what matters is that `Value` and `MilliValue` agree with the API's own rounding (always away from zero).

/// The value in whole units, rounded up, or `None` when the text is not a quantity.
pub fn value(text: &str) -> Option<i64> {
    scaled(text, 0)
}

/// The value in thousandths, rounded up, or `None` when the text is not a quantity.
pub fn milli_value(text: &str) -> Option<i64> {
    scaled(text, 3)
}

/// The suffix as (binary exponent, decimal exponent): the value is `mantissa * 2^b * 10^d`.
fn suffix(text: &str) -> Option<(u32, i32)> {
    Some(match text {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?;
            (0, exponent.parse::<i32>().ok().filter(|e| e.abs() <= 64)?)
        }
    })
}

/// `text * 10^shift`, rounded away from zero and clamped to `i64`.
fn scaled(text: &str, shift: i32) -> Option<i64> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, unit) = unsigned.split_at(end);
    let (binary, decimal) = suffix(unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mut mantissa: u128 = 0;
    let mut exponent = decimal + shift;
    let mut inexact = false;
    for (position, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        match mantissa.checked_mul(10).filter(|m| *m < 1 << 120) {
            Some(next) => {
                mantissa = next + u128::from(digit - b'0');
                if position >= whole.len() {
                    exponent -= 1;
                }
            }
            // Beyond 36 digits only the rounding direction matters, and the order of magnitude of the whole part.
            None => {
                inexact |= digit != b'0';
                if position < whole.len() {
                    exponent += 1;
                }
            }
        }
    }
    let magnitude = apply(mantissa, binary, exponent, inexact);
    Some(if negative { -magnitude } else { magnitude })
}

/// `mantissa * 2^binary * 10^exponent`, rounded up and clamped.
fn apply(mantissa: u128, binary: u32, exponent: i32, mut inexact: bool) -> i64 {
    if mantissa == 0 {
        return i64::from(inexact);
    }
    let Some(mut value) = mantissa.checked_mul(1u128 << binary) else { return i64::MAX };
    for _ in 0..exponent.max(0) {
        match value.checked_mul(10) {
            Some(next) => value = next,
            None => return i64::MAX,
        }
    }
    for _ in 0..(-exponent).max(0) {
        inexact |= value % 10 != 0;
        value /= 10;
    }
    i64::try_from(value + u128::from(inexact)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_up_like_the_api_does() {
        for (text, whole, milli) in [
            ("0", Some(0), Some(0)),
            ("1", Some(1), Some(1000)),
            ("100m", Some(1), Some(100)),
            ("1.5", Some(2), Some(1500)),
            (".5", Some(1), Some(500)),
            ("1Ki", Some(1024), Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736), Some(1_610_612_736_000)),
            ("2e3", Some(2000), Some(2_000_000)),
            ("1E", Some(1_000_000_000_000_000_000), Some(i64::MAX)),
            ("100n", Some(1), Some(1)),
            ("-1500m", Some(-2), Some(-1500)),
            ("8Ei", Some(i64::MAX), Some(i64::MAX)),
            ("123456789012345678901234567890123456789012", Some(i64::MAX), Some(i64::MAX)),
            ("", None, None),
            ("x", None, None),
            ("1Q", None, None),
            ("1.2.3", None, None),
        ] {
            assert_eq!(value(text), whole, "{text}");
            assert_eq!(milli_value(text), milli, "{text} in thousandths");
        }
    }
}
