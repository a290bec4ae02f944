//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::error;
use super::operators::order;
use crate::eval::Outcome;
use crate::functions::opaque::Opaque;
use crate::value::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<String>,
}

impl Semver {
    /// Reads `1.2.3-rc.1+build`; leniently also `v1.2` and `01.2.3`.
    fn parse(text: &str, lenient: bool) -> Result<Self, String> {
        let text = if lenient { text.strip_prefix('v').unwrap_or(text) } else { text };
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
        let parts: Vec<&str> = core.split('.').collect();
        let complete =
            parts.len() == 3 || (lenient && (1..3).contains(&parts.len()) && pre.is_none() && build.is_none());
        if !complete {
            return Err("No Major.Minor.Patch elements found".to_owned());
        }
        let mut numbers = [0; 3];
        for (number, part) in numbers.iter_mut().zip(&parts) {
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(format!("Invalid character(s) found in version number {part:?}"));
            }
            if part.len() > 1 && part.starts_with('0') && !lenient {
                return Err(format!("Version number must not contain leading zeroes {part:?}"));
            }
            *number = part.parse().map_err(|_| format!("version number {part:?} is out of range"))?;
        }
        let identifiers = |list: Option<&str>| -> Result<Vec<String>, String> {
            let Some(list) = list else { return Ok(Vec::new()) };
            list.split('.')
                .map(|word| {
                    let plain =
                        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
                    if plain {
                        Ok(word.to_owned())
                    } else {
                        Err(format!("Invalid character(s) found in prerelease {word:?}"))
                    }
                })
                .collect()
        };
        identifiers(build)?;
        let pre = identifiers(pre)?;
        let number = |word: &&String| word.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(word) = pre.iter().filter(number).find(|word| word.len() > 1 && word.starts_with('0')) {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {word:?}"));
        }
        Ok(Self { numbers, pre })
    }

    /// Which comes first; builds do not count.
    pub fn precedence(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        if numbers.is_ne() {
            return numbers;
        }
        match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => return Ordering::Equal,
            // A release comes after everything that leads to it.
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        for (a, b) in self.pre.iter().zip(&other.pre) {
            let ordering = match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            };
            if ordering.is_ne() {
                return ordering;
            }
        }
        self.pre.len().cmp(&other.pre.len())
    }
}

/// A function of versions, if it is one.
pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let number = |number: u64| Some(Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX))));
    match (function, args) {
        ("semver" | "isSemver", [Value::String(text), rest @ ..]) => {
            let lenient = match rest {
                [] => false,
                [Value::Bool(lenient)] => *lenient,
                _ => return None,
            };
            let parsed = Semver::parse(text, lenient);
            Some(match (function, parsed) {
                ("isSemver", parsed) => Ok(Value::Bool(parsed.is_ok())),
                (_, Ok(version)) => Ok(Value::Opaque(Opaque::Semver(Arc::new(version)))),
                (_, Err(why)) => error(why),
            })
        }
        (_, [Value::Opaque(Opaque::Semver(own))]) => match function {
            "major" => number(own.numbers[0]),
            "minor" => number(own.numbers[1]),
            "patch" => number(own.numbers[2]),
            _ => None,
        },
        (_, [Value::Opaque(Opaque::Semver(own)), Value::Opaque(Opaque::Semver(other))]) => {
            let ordering = own.precedence(other);
            match function {
                "isGreaterThan" => Some(Ok(Value::Bool(ordering.is_gt()))),
                "isLessThan" => Some(Ok(Value::Bool(ordering.is_lt()))),
                "compareTo" => Some(Ok(Value::Int(order(Some(ordering))))),
                _ => None,
            }
        }
        _ => None,
    }
}
