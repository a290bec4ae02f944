//! Numbers that may be percentages.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a percentage of a whole is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

/// The value, or the percentage of `total`. What is neither (validation refuses it) is `None`.
pub fn scaled(value: &IntOrString, total: i32, round: Round) -> Option<i32> {
    match value {
        IntOrString::Int(value) => Some(*value),
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(i64::from(total))?;
            let scaled = match round {
                Round::Up => (product + 99).div_euclid(100),
                Round::Down => product.div_euclid(100),
            };
            i32::try_from(scaled).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_told() {
        let percent = |text: &str| IntOrString::String(text.to_owned());
        for (value, total, up, down) in [
            (IntOrString::Int(3), 10, Some(3), Some(3)),
            (percent("25%"), 10, Some(3), Some(2)),
            (percent("100%"), 7, Some(7), Some(7)),
            (percent("0%"), 7, Some(0), Some(0)),
            (percent("25"), 10, None, None),
            (percent("many"), 10, None, None),
        ] {
            assert_eq!(scaled(&value, total, Round::Up), up, "{value:?} of {total}");
            assert_eq!(scaled(&value, total, Round::Down), down, "{value:?} of {total}");
        }
    }
}
