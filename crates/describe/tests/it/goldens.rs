//! Every case is a file with an object and the answers that its description is made from, and a file with the text that upstream's
//! kubectl v1.37 printed for them.

use describe::{Answers, Failure, Settings};
use serde_json::Value;

/// The answers of a case, in the order of the reads.
fn answers(case: &Value, reads: Vec<describe::Read>) -> Answers {
    let given = case["answers"].as_array().expect("answers");
    assert_eq!(given.len(), reads.len(), "a case has an answer for every read: {reads:?}");
    let mut answers = Answers::default();
    for (read, answer) in reads.into_iter().zip(given) {
        let failed = |at: usize| answer["err"][at].as_str().expect("a reason and a message").to_owned();
        let answer = match answer.get("ok") {
            Some(found) => Ok(found.clone()),
            None => Err(Failure { reason: failed(0), message: failed(1) }),
        };
        answers.insert(read, answer);
    }
    answers
}

#[test]
fn descriptions_are_upstreams_to_the_letter() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the cases") {
        let path = entry.expect("a case").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let case: Value = serde_json::from_slice(&std::fs::read(&path).expect("a case")).expect("JSON");
        let expected = std::fs::read_to_string(path.with_extension("txt")).expect("the text");
        let text = |field: &str| case[field].as_str().expect("a text");
        let describer = describe::describer(text("group"), text("kind"));
        let answers = answers(&case, describer.reads(&case["object"], true));
        let settings =
            Settings { show_events: true, now: text("now").parse().expect("a time"), zone: jiff::tz::TimeZone::UTC };
        let made = describer.text(&case["object"], &answers, &settings).expect("a description");
        assert!(made == expected, "{}\n--- made\n{made}\n--- expected\n{expected}", path.display());
        seen += 1;
    }
    assert!(seen > 40, "only {seen} cases were found");
}
