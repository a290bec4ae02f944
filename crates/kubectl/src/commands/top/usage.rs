//! Figures as `top` writes them: millicores, mebibytes and hundredths of what there is. Pure.

use std::cmp::Ordering;

use machinery::quantity::{Format, Quantity};
use serde_json::Value;

pub const MEASURED: [&str; 2] = ["cpu", "memory"];
pub const SWAP: &str = "swap";

/// What is measured, with swap or without.
pub fn measured(swap: bool) -> Vec<&'static str> {
    let mut all = MEASURED.to_vec();
    if swap {
        all.push(SWAP);
    }
    all
}

/// The amount of a resource in a list of them; none is zero.
pub fn amount(list: &Value, resource: &str) -> Quantity {
    let found = list.get(resource).and_then(Quantity::from_value).and_then(Result::ok);
    found.unwrap_or_else(|| Quantity::new(0, Format::DecimalSi))
}

pub fn sum<'a>(lists: impl IntoIterator<Item = &'a Value>, resource: &str) -> Quantity {
    let mut total = Quantity::new(0, Format::DecimalSi);
    for list in lists {
        total.add(&amount(list, resource));
    }
    total
}

/// One figure in its unit.
pub fn shown(resource: &str, quantity: &Quantity) -> String {
    match resource {
        "cpu" => format!("{}m", quantity.milli_value()),
        _ => format!("{}Mi", quantity.value() / (1 << 20)),
    }
}

/// How much of what there is.
pub fn fraction(used: &Quantity, available: &Quantity) -> String {
    if available.is_zero() {
        return "0%".to_owned();
    }
    let fraction = used.milli_value() as f64 / available.milli_value() as f64 * 100.0;
    format!("{}%", fraction as i64)
}

/// The larger first by the figure; by name where there is none.
pub fn order(by: &str, first: (&Quantity, &str), second: (&Quantity, &str)) -> Ordering {
    if by.is_empty() {
        return first.1.cmp(second.1);
    }
    let value = |quantity: &Quantity| if by == "cpu" { quantity.milli_value() } else { quantity.value() };
    value(second.0).cmp(&value(first.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_have_their_units() {
        let list = json!({"cpu": "1500000000n", "memory": "3Mi"});
        assert_eq!(shown("cpu", &amount(&list, "cpu")), "1500m");
        assert_eq!(shown("memory", &amount(&list, "memory")), "3Mi");
        assert_eq!(shown("memory", &amount(&list, "swap")), "0Mi");
        let two = [list.clone(), list];
        assert_eq!(shown("memory", &sum(&two, "memory")), "6Mi");
        let of = |text: &str| amount(&json!({"cpu": text}), "cpu");
        assert_eq!(fraction(&of("1500m"), &of("4")), "37%");
        assert_eq!(fraction(&of("1"), &of("0")), "0%");
    }
}
