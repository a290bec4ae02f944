//! Describes what is on standard input: `{"group", "kind", "object", "now", "answers"}`, or says which paths have to be read
//! where there are no answers yet. Answers are in the order of the paths, each `{"ok": object}` or `{"err": [reason, message]}`.

use std::io::Read as _;

use describe::{Answers, Failure, Settings};
use serde_json::Value;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    let input: Value = serde_json::from_str(&input)?;
    let text = |field: &str| input[field].as_str().unwrap_or_default();
    let describer = describe::describer(text("group"), text("kind"));
    let reads = describer.reads(&input["object"], true);
    let Some(given) = input["answers"].as_array() else {
        reads.iter().for_each(|read| println!("{}", read.path(0)));
        return Ok(());
    };
    let mut answers = Answers::default();
    for (read, answer) in reads.into_iter().zip(given) {
        let failed = |at: usize| answer["err"][at].as_str().unwrap_or_default().to_owned();
        let answer = match answer.get("ok") {
            Some(found) => Ok(found.clone()),
            None => Err(Failure { reason: failed(0), message: failed(1) }),
        };
        answers.insert(read, answer);
    }
    let settings = Settings { show_events: true, now: text("now").parse()?, zone: jiff::tz::TimeZone::UTC };
    print!("{}", describer.text(&input["object"], &answers, &settings)?);
    Ok(())
}
