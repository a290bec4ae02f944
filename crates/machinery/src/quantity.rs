//! Amounts of resources, `100m` and `1.5Gi`: exact decimal numbers with a preferred way of being written.
//!
//! A quantity is `mantissa × 10^exponent`. Upstream holds any precision; here a number has at most 38 significant digits,
//! and one with more is refused. Fractions finer than a billionth are rounded up, away from zero: who asks for something
//! gets something.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// The finest scale there is: a billionth.
const NANO: i32 = -9;

/// Why a text is no quantity, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something stands where nothing may.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// More digits than a quantity can hold.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// A suffix that nobody knows.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How a quantity prefers to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `12e6`.
    DecimalExponent,
    /// `12Mi`.
    BinarySi,
    /// `12M`.
    DecimalSi,
}

/// An amount.
#[derive(Debug, Clone)]
pub struct Quantity {
    mantissa: i128,
    exponent: i32,
    format: Format,
    /// What was parsed, where upstream prints it again as it was. It gives up looking for the canonical form early, and
    /// what it prints is what clients compare.
    text: Option<Box<str>>,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0, format: Format::DecimalSi, text: None };

    /// A whole number.
    pub fn new(value: i64, format: Format) -> Self {
        Self::scaled(i128::from(value), 0, format)
    }

    /// A number of thousandths.
    pub fn milli(value: i64, format: Format) -> Self {
        Self::scaled(i128::from(value), -3, format)
    }

    fn scaled(mantissa: i128, exponent: i32, format: Format) -> Self {
        let mut quantity = Self { mantissa, exponent, format, text: None };
        quantity.normalize();
        quantity
    }

    /// Reads a quantity as JSON has it: a string, a number, or null for nothing.
    pub fn from_value(value: &Value) -> Option<Result<Self, Error>> {
        match value {
            Value::Null => Some(Ok(Self::ZERO)),
            Value::String(text) => Some(text.trim().parse()),
            Value::Number(number) => Some(number.to_string().parse()),
            _ => None,
        }
    }

    /// How it prefers to be written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// The whole number next to it, away from zero; what does not fit is the largest that does.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// As [`Quantity::value`], in thousandths.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    /// As [`Quantity::value`], in units of a power of ten.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        let shift = i64::from(self.exponent) - i64::from(scale);
        let value = if shift >= 0 {
            power(shift).and_then(|factor| self.mantissa.checked_mul(factor))
        } else {
            Some(divide_up(self.mantissa, -shift))
        };
        match value.map(i64::try_from) {
            Some(Ok(value)) => value,
            _ if self.mantissa < 0 => i64::MIN,
            _ => i64::MAX,
        }
    }

    /// The nearest floating-point number.
    pub fn as_f64(&self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.exponent)
    }

    /// Adds another. Zero takes over the other's format. A sum beyond all bounds stays at the bound.
    pub fn add(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        *self = match align(self, other) {
            Some((a, b, exponent)) => match a.checked_add(b) {
                Some(sum) => Self::scaled(sum, exponent, self.format),
                None => Self::scaled(if a < 0 { i128::MIN } else { i128::MAX }, exponent, self.format),
            },
            // So far apart that the smaller one is beyond the digits of the greater one.
            None if self.magnitude() >= other.magnitude() => Self::scaled(self.mantissa, self.exponent, self.format),
            None => Self::scaled(other.mantissa, other.exponent, self.format),
        };
    }

    /// Takes another away, as [`Quantity::add`] adds it.
    pub fn sub(&mut self, other: &Self) {
        self.add(&Self { mantissa: other.mantissa.saturating_neg(), text: None, ..other.clone() });
    }

    /// Moves all factors of ten into the exponent, so that equal numbers look alike.
    fn normalize(&mut self) {
        if self.mantissa == 0 {
            self.exponent = 0;
            return;
        }
        while self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.exponent = self.exponent.saturating_add(1);
        }
    }

    /// The decimal exponent of the leading digit.
    fn magnitude(&self) -> i64 {
        self.mantissa
            .unsigned_abs()
            .checked_ilog10()
            .map_or(i64::MIN, |digits| i64::from(digits) + i64::from(self.exponent))
    }

    /// The number as an integer, if it is one.
    fn integer(&self) -> Option<i128> {
        if self.exponent < 0 {
            return None;
        }
        self.mantissa.checked_mul(power(i64::from(self.exponent))?)
    }
}

/// Both mantissas at the smaller exponent, if they fit there.
fn align(a: &Quantity, b: &Quantity) -> Option<(i128, i128, i32)> {
    if a.is_zero() || b.is_zero() {
        return Some((a.mantissa, b.mantissa, if a.is_zero() { b.exponent } else { a.exponent }));
    }
    let exponent = a.exponent.min(b.exponent);
    let shifted = |of: &Quantity| of.mantissa.checked_mul(power(i64::from(of.exponent) - i64::from(exponent))?);
    Some((shifted(a)?, shifted(b)?, exponent))
}

fn power(exponent: i64) -> Option<i128> {
    10i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// Divided by a power of ten, away from zero.
fn divide_up(mantissa: i128, digits: i64) -> i128 {
    let Some(divisor) = power(digits) else { return mantissa.signum() };
    let (quotient, rest) = (mantissa / divisor, mantissa % divisor);
    if rest == 0 { quotient } else { quotient + rest.signum() }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.signum().cmp(&other.signum());
        if signs != Ordering::Equal || self.is_zero() {
            return signs;
        }
        let magnitudes = self.magnitude().cmp(&other.magnitude());
        if magnitudes != Ordering::Equal {
            return if self.mantissa < 0 { magnitudes.reverse() } else { magnitudes };
        }
        // Equal magnitudes differ in their exponents by no more than the digits that fit.
        match align(self, other) {
            Some((a, b, _)) => a.cmp(&b),
            None => self.as_f64().total_cmp(&other.as_f64()),
        }
    }
}

impl FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Format);
        }
        let parts = split(text)?;
        let suffix = suffix(parts.suffix).ok_or(Error::Suffix)?;
        let digits = parts.whole.len() + parts.fraction.len();
        let mut mantissa: i128 = 0;
        for digit in parts.whole.bytes().chain(parts.fraction.bytes()) {
            mantissa = mantissa
                .checked_mul(10)
                .and_then(|shifted| shifted.checked_add(i128::from(digit - b'0')))
                .ok_or(Error::Numeric)?;
        }
        let fraction = i32::try_from(parts.fraction.len()).map_err(|_| Error::Numeric)?;
        let (format, mut exponent, again) = match suffix {
            Suffix::Decimal(exponent, format) => {
                let exponent = exponent.saturating_sub(fraction);
                let canonical = exponent % 3 == 0
                    && !text_ends_with_thousands(&parts)
                    && parts.whole.bytes().chain(parts.fraction.bytes()).next() != Some(b'0');
                (format, exponent, digits <= 18 && exponent >= NANO && canonical)
            }
            Suffix::Binary(shift) => {
                // Beyond some fifteen decimal digits upstream takes its slow path, which always writes the number anew.
                let fast = fraction == 0 && 14 - digits as i32 - (shift as i32 * 3 / 10) >= 0;
                let again = fast && mantissa & 7 != 0;
                mantissa = mantissa.checked_mul(1i128 << shift).ok_or(Error::Numeric)?;
                (Format::BinarySi, -fraction, again)
            }
        };
        if exponent < NANO {
            mantissa = divide_up(mantissa, i64::from(NANO) - i64::from(exponent));
            exponent = NANO;
        }
        let mut quantity = Self::scaled(mantissa, exponent, format);
        if format == Format::BinarySi {
            let most = Self::new(i64::MAX, format);
            if quantity > most {
                quantity = most;
            }
            if quantity < Self::new(1, format) && !quantity.is_zero() {
                quantity.format = Format::DecimalSi;
            }
        }
        if parts.negative {
            quantity.mantissa = -quantity.mantissa;
        }
        quantity.text = again.then(|| text.into());
        Ok(quantity)
    }
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// Takes a text apart. Upstream's scanner takes `+`, `.` and `m` for zero, and so do we.
fn split(text: &str) -> Result<Parts<'_>, Error> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let number = suffix[letters..].strip_prefix(['-', '+']).unwrap_or(&suffix[letters..]);
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::Format);
    }
    Ok(Parts { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
}

fn text_ends_with_thousands(parts: &Parts<'_>) -> bool {
    let mut last = parts.fraction.bytes().rev().chain(parts.whole.bytes().rev());
    (0..3).all(|_| last.next() == Some(b'0'))
}

enum Suffix {
    Decimal(i32, Format),
    Binary(u32),
}

fn suffix(text: &str) -> Option<Suffix> {
    let decimal = |exponent| Some(Suffix::Decimal(exponent, Format::DecimalSi));
    match text {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some(Suffix::Binary(10)),
        "Mi" => Some(Suffix::Binary(20)),
        "Gi" => Some(Suffix::Binary(30)),
        "Ti" => Some(Suffix::Binary(40)),
        "Pi" => Some(Suffix::Binary(50)),
        "Ei" => Some(Suffix::Binary(60)),
        _ => {
            let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Exponents that no number of ours can have are taken for the nearest one that it can.
            let exponent = exponent.clamp(i64::from(i32::MIN / 2), i64::from(i32::MAX / 2)) as i32;
            Some(Suffix::Decimal(exponent, Format::DecimalExponent))
        }
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the greatest suffix that allows it, and binary only where it is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let Some(mut number) = self.integer().filter(|number| number.unsigned_abs() >= 1024)
        {
            let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
            let mut suffix = suffixes.next().unwrap_or_default();
            while number % 1024 == 0
                && let Some(next) = suffixes.next()
            {
                (number, suffix) = (number / 1024, next);
            }
            return write!(f, "{number}{suffix}");
        }
        // Zeros are appended until the exponent is one that has a suffix.
        let lift = self.exponent.rem_euclid(3);
        let exponent = self.exponent - lift;
        write!(f, "{}{:0>width$}", self.mantissa, "", width = lift as usize)?;
        let suffix = match exponent {
            0 => "",
            _ if self.format == Format::DecimalExponent => return write!(f, "e{exponent}"),
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            _ => return write!(f, "e{exponent}"),
        };
        f.write_str(suffix)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn canonical_forms_are_upstreams() {
        for (text, canonical) in [
            ("0", "0"),
            ("0n", "0"),
            ("-0", "0"),
            ("+", "0"),
            (".", "0"),
            ("000", "0"),
            ("0Ki", "0"),
            ("100m", "100m"),
            ("0.1", "100m"),
            ("1.5", "1500m"),
            ("1.50", "1500m"),
            ("1.234", "1.234"),
            ("2", "2"),
            ("1000", "1k"),
            ("1000m", "1"),
            ("1000k", "1M"),
            ("1M", "1M"),
            ("12e6", "12e6"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e1", "10"),
            ("1e4", "10e3"),
            ("1E", "1E"),
            ("1.5Gi", "1536Mi"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1024Ki", "1Mi"),
            ("100Mi", "100Mi"),
            ("128Mi", "128Mi"),
            ("1000Ki", "1000Ki"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("1.1Ki", "1126400m"),
            ("0.0001Ki", "102400u"),
            ("1Ei", "1Ei"),
            ("7Ei", "7Ei"),
            ("9Ei", "9223372036854775807"),
            ("1.0000000001", "1000000001n"),
            ("1e-10", "1e-9"),
            ("0.0000000001", "1n"),
            ("-1.5", "-1500m"),
            ("-1Ki", "-1Ki"),
            ("8Ki", "8Ki"),
            ("+5", "+5"),
            ("1.", "1."),
            ("1e100", "10e99"),
        ] {
            assert_eq!(parse(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_gets_upstreams_words() {
        for (text, error) in [
            ("", Error::Format),
            (" ", Error::Format),
            ("1 Gi", Error::Format),
            ("1.5.5", Error::Format),
            ("ü", Error::Format),
            ("1e", Error::Suffix),
            ("1ki", Error::Suffix),
            ("1Gi5", Error::Suffix),
            ("1mm", Error::Suffix),
            ("1Ee3", Error::Suffix),
            ("123456789012345678901234567890123456789012345678901234567890", Error::Numeric),
        ] {
            assert_eq!(text.parse::<Quantity>(), Err(error), "{text}");
        }
    }

    #[test]
    fn values_round_away_from_zero() {
        for (text, value, milli) in [
            ("1.5", 2, 1500),
            ("-1.5", -2, -1500),
            ("1n", 1, 1),
            ("100m", 1, 100),
            ("1Gi", 1 << 30, 1000 << 30),
            ("1e30", i64::MAX, i64::MAX),
            ("-1e30", i64::MIN, i64::MIN),
            ("1e2000000000", i64::MAX, i64::MAX),
        ] {
            assert_eq!((parse(text).value(), parse(text).milli_value()), (value, milli), "{text}");
        }
    }

    #[test]
    fn sums_keep_the_format_of_the_first() {
        for (a, b, sum) in [
            ("0", "1Gi", "1Gi"),
            ("1Gi", "1Gi", "2Gi"),
            ("100m", "0.9", "1"),
            ("1", "1Ki", "1025"),
            ("1Ki", "1", "1025"),
            ("1e100", "1", "10e99"),
            ("1", "1e100", "10e99"),
        ] {
            let mut total = parse(a);
            total.add(&parse(b));
            assert_eq!(total.to_string(), sum, "{a} + {b}");
        }
        let mut rest = parse("1");
        rest.sub(&parse("300m"));
        assert_eq!(rest.to_string(), "700m");
    }

    #[test]
    fn numbers_are_quantities_too() {
        let read = |value| Quantity::from_value(&value).map(|quantity| quantity.map(|quantity| quantity.to_string()));
        assert_eq!(read(json!(2)), Some(Ok("2".to_owned())));
        assert_eq!(read(json!(0.1)), Some(Ok("100m".to_owned())));
        assert_eq!(read(json!(" 5 ")), Some(Ok("5".to_owned())));
        assert_eq!(read(json!(null)), Some(Ok("0".to_owned())));
        assert_eq!(read(json!([])), None);
    }

    fn quantities() -> impl Strategy<Value = Quantity> {
        "[-+]?[0-9]{1,12}(\\.[0-9]{0,12})?(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|e[0-9]|e-[0-9])".prop_map(|text| parse(&text))
    }

    proptest! {
        #[test]
        fn order_is_total_and_agrees_with_differences(a in quantities(), b in quantities()) {
            let mut difference = a.clone();
            difference.sub(&b);
            prop_assert_eq!(a.cmp(&b) as i32, difference.signum());
            prop_assert_eq!(b.cmp(&a), a.cmp(&b).reverse());
        }

        #[test]
        fn what_is_printed_reads_back_and_prints_the_same(a in quantities()) {
            let printed = a.to_string();
            let again = parse(&printed);
            prop_assert_eq!(&again, &a);
            prop_assert_eq!(again.to_string(), printed);
        }

        #[test]
        fn no_text_panics(text in "[-+.0-9eEinumkKMGTPix ]{0,12}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let _ = (quantity.to_string(), quantity.value(), quantity.milli_value());
            }
        }
    }
}
