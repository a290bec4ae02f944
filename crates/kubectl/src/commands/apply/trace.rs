//! `apply --trace`: the hops of this apply, timed, as they happen. Upstream has no such flag; the server has to be this one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use machinery::value::{list, text};
use serde_json::Value;

use crate::command::Invocation;
use crate::discovery::query;
use crate::error::Outcome;
use crate::resource::Info;

/// How long hops are waited for after the last one.
const QUIET: Duration = Duration::from_secs(3);
/// How long they are waited for at most.
const MOST: Duration = Duration::from_secs(60);
const BETWEEN: Duration = Duration::from_millis(50);

/// Shows the hops of objects that were just applied. `begun` is when the command began.
pub async fn follow(invocation: &mut Invocation, begun: jiff::Timestamp, applied: &[Info]) -> Outcome {
    let mut open: Vec<(String, String, BTreeSet<String>)> = applied
        .iter()
        .map(|info| (info.named(), text(&info.object, "metadata.uid").to_owned(), BTreeSet::new()))
        .collect();
    let sent = jiff::Timestamp::now();
    invocation.streams.error(&line(0.0, "", 1, "kubectl resolves config + builds REST", "", seconds(begun, sent)));
    let (start, mut last) = (Instant::now(), Instant::now());
    while !open.is_empty() && last.elapsed() < QUIET && start.elapsed() < MOST {
        let api = invocation.session.api()?;
        let mut done = Vec::new();
        for (at, (name, uid, seen)) in open.iter_mut().enumerate() {
            let found = match api.get(&format!("/debug/hops{}", query(&[("uid", uid)]))).await {
                Ok(found) => found,
                Err(error) => {
                    invocation.streams.error(&format!("{name}: this server tells no hops: {}", error.bare()));
                    done.push(at);
                    continue;
                }
            };
            for hop in list(&found, "hops").iter().filter(|hop| is_new(hop, begun)) {
                if seen.insert(hop.to_string()) {
                    last = Instant::now();
                    invocation.streams.error(&shown(hop, begun, name));
                }
            }
        }
        for at in done.into_iter().rev() {
            open.remove(at);
        }
        tokio::time::sleep(BETWEEN).await;
    }
    Ok(())
}

fn time(hop: &Value) -> Option<jiff::Timestamp> {
    text(hop, "start").parse().ok()
}

fn is_new(hop: &Value, begun: jiff::Timestamp) -> bool {
    time(hop).is_none_or(|time| time >= begun)
}

fn seconds(from: jiff::Timestamp, to: jiff::Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

fn shown(hop: &Value, begun: jiff::Timestamp, name: &str) -> String {
    let at = time(hop).map_or(0.0, |time| seconds(begun, time));
    let number = hop["hop"].as_u64().unwrap_or_default();
    let took = hop["seconds"].as_f64().unwrap_or_default();
    let stage = [text(hop, "stage"), text(hop, "verb")];
    let stage: Vec<&str> = stage.into_iter().filter(|word| !word.is_empty()).collect();
    line(at, name, number, text(hop, "name"), &stage.join(" "), took)
}

fn line(at: f64, object: &str, number: u64, name: &str, stage: &str, took: f64) -> String {
    let stage = if stage.is_empty() { String::new() } else { format!(" ({stage})") };
    let object = if object.is_empty() { String::new() } else { format!("  {object}") };
    format!("+{:9.1} ms  {number:>2}  {name}{stage}  {:.1} ms{object}", at * 1000.0, took * 1000.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hop_is_shown_with_when_and_how_long() {
        let begun: jiff::Timestamp = "2030-01-01T00:00:00Z".parse().expect("a time");
        let hop = json!({"hop": 7, "name": "etcd Txn", "stage": null, "verb": "create", "start": "2030-01-01T00:00:00.0125Z", "seconds": 0.0004});
        assert_eq!(shown(&hop, begun, "pod/a"), "+     12.5 ms   7  etcd Txn (create)  0.4 ms  pod/a");
        assert!(is_new(&hop, begun));
        let old = json!({"start": "2029-01-01T00:00:00Z"});
        assert!(!is_new(&old, begun));
    }
}
