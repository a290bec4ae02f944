//! Amounts of resources, `100m` and `1.5Gi`: exact decimal numbers with a preferred way of being written.
//!
//! A quantity is `mantissa × 10^exponent`. Upstream holds any precision; here one with more than 38 significant digits is
//! kept and written as it is, and reckoned with as if all digits after those were zero. Fractions finer than a billionth are
//! rounded up, away from zero: who asks for something gets something.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::codec::numbers::go_text;

/// The finest scale there is: a billionth.
const NANO: i32 = -9;
/// The most digits of a text. A number of that size says nothing of anything.
const MAX_DIGITS: usize = 10_000;
/// The digits that a mantissa can have, whatever they are.
const SIGNIFICANT: usize = 38;

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
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0, format: Format::DecimalSi, text: None };

    pub fn new(value: i64, format: Format) -> Self {
        Self::scaled(i128::from(value), 0, format)
    }

    /// A number of thousandths.
    pub fn milli(value: i64, format: Format) -> Self {
        Self::scaled(i128::from(value), -3, format)
    }

    pub fn scaled(mantissa: i128, exponent: i32, format: Format) -> Self {
        let mut quantity = Self { mantissa, exponent, format, text: None };
        quantity.normalize();
        quantity
    }

    /// Reads a quantity as JSON has it: a string, a number, or null for nothing.
    pub fn from_value(value: &Value) -> Option<Result<Self, Error>> {
        match value {
            Value::Null => Some(Ok(Self::ZERO)),
            Value::String(text) => Some(text.trim().parse()),
            Value::Number(number) => Some(go_text(number).parse()),
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

    /// The same, without anything finer than a power of ten: what is finer is rounded up, away from zero.
    #[must_use]
    pub fn round_up(&self, scale: i32) -> Self {
        if self.exponent >= scale {
            return self.clone();
        }
        let mantissa = divide_up(self.mantissa, i64::from(scale) - i64::from(self.exponent));
        Self::scaled(mantissa, scale, self.format)
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

    /// What is written in powers of two ends at the largest whole number, and is decimal where it is less than one.
    fn bounded(mut self) -> Self {
        if self.format != Format::BinarySi {
            return self;
        }
        let most = Self::new(i64::MAX, self.format);
        if self > most {
            return most;
        }
        if self < Self::new(1, self.format) && !self.is_zero() {
            self.format = Format::DecimalSi;
        }
        self
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
            let next = mantissa.checked_mul(10).and_then(|shifted| shifted.checked_add(i128::from(digit - b'0')));
            let Some(next) = next else { return long(&parts, &suffix) };
            mantissa = next;
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
                let Some(shifted) = mantissa.checked_mul(1i128 << shift) else { return long(&parts, &suffix) };
                mantissa = shifted;
                (Format::BinarySi, -fraction, again)
            }
        };
        if exponent < NANO {
            mantissa = divide_up(mantissa, i64::from(NANO) - i64::from(exponent));
            exponent = NANO;
        }
        let mut quantity = Self::scaled(mantissa, exponent, format).bounded();
        if parts.negative {
            quantity.mantissa = -quantity.mantissa;
        }
        quantity.text = again.then(|| text.into());
        Ok(quantity)
    }
}

/// Reads what has more digits than a mantissa, digit by digit.
fn long(parts: &Parts<'_>, suffix: &Suffix) -> Result<Quantity, Error> {
    if parts.whole.len() + parts.fraction.len() > MAX_DIGITS {
        return Err(Error::Numeric);
    }
    let mut digits: Vec<u8> = parts.whole.bytes().chain(parts.fraction.bytes()).map(|digit| digit - b'0').collect();
    let fraction = i32::try_from(parts.fraction.len()).map_err(|_| Error::Numeric)?;
    let (mut exponent, format) = match *suffix {
        Suffix::Decimal(exponent, format) => (exponent.saturating_sub(fraction), format),
        Suffix::Binary(shift) => {
            (0..shift).for_each(|_| double(&mut digits));
            (-fraction, Format::BinarySi)
        }
    };
    let fine = usize::try_from(i64::from(NANO) - i64::from(exponent)).unwrap_or(0);
    if fine > 0 {
        cut(&mut digits, fine);
        exponent = NANO;
    }
    let begin = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len());
    digits.drain(..begin);
    while digits.pop_if(|last| *last == 0).is_some() {
        exponent = exponent.saturating_add(1);
    }
    let written = Written { negative: parts.negative, digits: &digits, exponent, format }.to_string();
    let (kept, rest) = digits.split_at(digits.len().min(SIGNIFICANT));
    let mantissa = kept.iter().fold(0i128, |number, digit| number * 10 + i128::from(*digit));
    let exponent = exponent.saturating_add(i32::try_from(rest.len()).map_err(|_| Error::Numeric)?);
    let mut quantity = Quantity::scaled(mantissa, exponent, format).bounded();
    if parts.negative {
        quantity.mantissa = -quantity.mantissa;
    }
    // What is bounded has digits enough.
    quantity.text = (!rest.is_empty() && format != Format::BinarySi).then(|| written.into());
    Ok(quantity)
}

fn double(digits: &mut Vec<u8>) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let twice = *digit * 2 + carry;
        (*digit, carry) = (twice % 10, twice / 10);
    }
    if carry > 0 {
        digits.insert(0, carry);
    }
}

/// Takes digits away at the end, and rounds up for them.
fn cut(digits: &mut Vec<u8>, count: usize) {
    let rest = digits.split_off(digits.len().saturating_sub(count));
    if rest.iter().all(|digit| *digit == 0) {
        return;
    }
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return;
        }
        *digit = 0;
    }
    digits.insert(0, 1);
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
        let digits: Vec<u8> = self.mantissa.unsigned_abs().to_string().bytes().map(|digit| digit - b'0').collect();
        let negative = self.mantissa < 0;
        Written { negative, digits: &digits, exponent: self.exponent, format: self.format }.fmt(f)
    }
}

/// A decimal number, as it is written.
struct Written<'a> {
    negative: bool,
    digits: &'a [u8],
    exponent: i32,
    format: Format,
}

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        // Zeros are appended until the exponent is one that has a suffix.
        let lift = self.exponent.rem_euclid(3);
        let exponent = self.exponent - lift;
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        write!(f, "{digits}{:0>width$}", "", width = lift as usize)?;
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
mod tests;
