use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn selectors_print_as_upstream_prints_them() {
    for (text, printed) in [
        ("", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("z=c , x=a", "x=a,z=c"),
        ("x==a", "x==a"),
        ("x!=a", "x!=a"),
        ("x in (b,a)", "x in (a,b)"),
        ("x notin (,a)", "x notin (,a)"),
        ("x in ()", "x in ()"),
        ("x,!y", "x,!y"),
        ("x=", "x="),
        ("x>1,y<2", "x>1,y<2"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("notin=in", "notin=in"),
        ("x in (a,,b)", "x in (,a,b)"),
        ("!x", "!x"),
    ] {
        assert_eq!(LabelSelector::parse(text).expect(text).to_string(), printed, "{text}");
    }
}

#[test]
fn bad_selectors_get_upstreams_words() {
    for (text, message) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("x,", "found '', expected: identifier after ','"),
        ("x=a b", "found 'b', expected: ',' or 'end of string'"),
        ("x a", "unable to parse requirement: found 'a', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("x in a", "unable to parse requirement: found 'a' expected: '('"),
        ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("x in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("x=!", "unable to parse requirement: found '!', expected: identifier"),
        ("x=(", "unable to parse requirement: found '(', expected: identifier"),
        (
            "x>a",
            "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("!x=a", "found '=', expected: ',' or 'end of string'"),
    ] {
        assert_eq!(LabelSelector::parse(text).expect_err(text), message, "{text}");
    }
    let error = LabelSelector::parse("-x=a").expect_err("a bad key");
    assert!(
        error.starts_with("unable to parse requirement: <nil>: Invalid value: \"-x\": name part must consist"),
        "{error}"
    );
    let error = LabelSelector::parse("x=a$").expect_err("a bad value");
    assert!(
        error.starts_with("unable to parse requirement: values[0][x]: Invalid value: \"a$\": a valid label"),
        "{error}"
    );
}

#[test]
fn requirements_match_presence_absence_and_numbers() {
    let labels = json!({"app": "web", "tier": "2", "empty": ""});
    for (text, expected) in [
        ("", true),
        ("app=web", true),
        ("app==web,tier=2", true),
        ("app=db", false),
        ("other=web", false),
        ("app!=db", true),
        ("other!=x", true),
        ("app!=web", false),
        ("app in (db,web)", true),
        ("app notin (db,web)", false),
        ("other notin (x)", true),
        ("app", true),
        ("!app", false),
        ("!other", true),
        ("empty=", true),
        ("empty", true),
        ("tier>1", true),
        ("tier>2", false),
        ("tier<3", true),
        ("app>1", false),
        ("other<1", false),
    ] {
        assert_eq!(LabelSelector::parse(text).expect(text).matches_labels(&labels), expected, "{text}");
    }
}

#[test]
fn the_structured_form_is_the_same_language() {
    let read = |value| LabelSelector::from_value(&value);
    assert!(read(json!(null)).expect("nothing").is_nothing());
    assert!(!read(json!(null)).expect("nothing").matches(|_| None));
    assert!(read(json!({})).expect("everything").is_empty());
    let selector = read(json!({
        "matchLabels": {"b": "1"},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "DoesNotExist"},
        ],
    }));
    assert_eq!(selector.expect("a selector").to_string(), "a in (x,y),b=1,!c");
    let error = read(json!({"matchExpressions": [{"key": "a", "operator": "Is"}]})).expect_err("no operator");
    assert_eq!(error, "\"Is\" is not a valid label selector operator");
    let error = read(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})).expect_err("no values");
    assert_eq!(error, "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty");
}

#[test]
fn an_exact_match_is_found() {
    let selector = LabelSelector::parse("a=1,b in (2),c in (3,4),d").expect("a selector");
    assert_eq!(selector.requires_exact_match("a"), Some("1"));
    assert_eq!(selector.requires_exact_match("b"), Some("2"));
    assert_eq!(selector.requires_exact_match("c"), None);
    assert_eq!(selector.requires_exact_match("d"), None);
}

proptest! {
    #[test]
    fn whatever_parses_prints_into_itself(text in "[a-c!=<>(),in ]{0,24}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let printed = selector.to_string();
            prop_assert_eq!(LabelSelector::parse(&printed).map(|again| again.to_string()), Ok(printed));
        }
    }
}
