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
    ] {
        assert_eq!(text.parse::<Quantity>(), Err(error), "{text}");
    }
    assert_eq!("9".repeat(MAX_DIGITS + 1).parse::<Quantity>(), Err(Error::Numeric));
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
fn numbers_of_any_length_are_kept() {
    let sixty = "123456789012345678901234567890123456789012345678901234567890";
    for (text, canonical, value) in [
        (sixty.to_owned(), sixty.to_owned(), i64::MAX),
        (format!("-{sixty}"), format!("-{sixty}"), i64::MIN),
        (format!("{sixty}000"), format!("{sixty}k"), i64::MAX),
        (format!("{sixty}e-50"), "1234567890123456790e-9".to_owned(), 1_234_567_891),
        (format!("1.{}1", "0".repeat(50)), "1000000001n".to_owned(), 2),
        (format!("0.{}", "9".repeat(50)), "1".to_owned(), 1),
        (format!("{sixty}Ki"), i64::MAX.to_string(), i64::MAX),
        (format!("-{sixty}Ki"), format!("-{}", i64::MAX), -i64::MAX),
        (format!("1.5{}Gi", "0".repeat(50)), "1536Mi".to_owned(), 1536 << 20),
        (format!("0.{}1Ei", "0".repeat(50)), "1n".to_owned(), 1),
        ("0.123456789012345678901234567890123456789Ki".to_owned(), "126419751949n".to_owned(), 127),
    ] {
        assert_eq!((parse(&text).to_string(), parse(&text).value()), (canonical, value), "{text}");
    }
    let (less, more) = (parse(&format!("1{}", "0".repeat(60))), parse(&format!("2{}", "0".repeat(60))));
    assert!(less < more && parse(sixty) < less);
    let mut sum = parse(sixty);
    sum.add(&parse("1"));
    assert_eq!(sum.value(), i64::MAX);
}

#[test]
fn rounding_changes_only_what_is_finer() {
    for (text, rounded) in [
        ("9223372036854775807Ei", "9223372036854775807"),
        ("-9223372036854775807Ei", "-9223372036854775807"),
        ("1e1000", "10e999"),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ("1.5Gi", "1536Mi"),
        ("+5", "+5"),
        ("100m", "100m"),
        ("100u", "1m"),
        ("1000001u", "1001m"),
        ("-1n", "-1m"),
        ("1e-1000", "1e-3"),
    ] {
        assert_eq!(parse(text).round_up(-3).to_string(), rounded, "{text}");
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
