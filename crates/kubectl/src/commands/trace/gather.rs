//! What the server and the nodes remember of an object and of what it owns.
//!
//! Every process has a clock of its own. Each answer says what that clock shows, so the difference to the clock here is known to within
//! the time that the question took, and everything is told by the clock here.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinery::value::{list, text};
use serde_json::Value;

use crate::api::Api;
use crate::command::Invocation;
use crate::commands::pods;
use crate::discovery::{query, segment};
use crate::error::Outcome;

/// An object of the family: what was asked about, and what it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub uid: String,
    /// `deployment/web`.
    pub name: String,
    /// The uid of its controller, if that is of the family too.
    pub owner: String,
    /// Where it runs, if it is a pod that does.
    pub node: String,
}

/// One hop, or a part of one, by the clock here.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub hop: u8,
    pub name: String,
    pub stage: String,
    pub verb: String,
    pub by: String,
    pub uid: String,
    /// The request that it was a part of, as the process that answered counts; 0 for none.
    pub request: u64,
    pub process: String,
    pub revision: u64,
    /// What was decided, in words; empty where nobody said.
    pub decided: String,
    /// Bytes of an image, writes of a commit's group, nodes that were looked at; 0 where nobody counted.
    pub amounts: Amounts,
    pub start: Timestamp,
    pub took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    pub bytes: u64,
    pub writes: u64,
    pub nodes: u64,
}

#[derive(Debug, Default)]
pub struct Gathered {
    /// What was asked about comes first.
    pub members: Vec<Member>,
    pub spans: Vec<Span>,
    /// Nodes that said nothing, and why.
    pub silent: Vec<(String, String)>,
}

/// Asks everybody.
pub async fn gather(invocation: &Invocation, object: &Value) -> Outcome<Gathered> {
    let mut members = vec![member(object)];
    // A kind without pods has a story all the same.
    for pod in pods::of(invocation, object).await.unwrap_or_default() {
        if let Some(between) = between(invocation, object, &pod, &members).await? {
            members.push(between);
        }
        if members.iter().all(|known| known.uid != text(&pod, "metadata.uid")) {
            members.push(member(&pod));
        }
    }
    let api = invocation.session.api()?;
    let mut gathered = Gathered { members, ..Gathered::default() };
    let root = gathered.members[0].uid.clone();
    let (spans, server) = ask(&api, &format!("/debug/hops{}", query(&[("uid", &root)]))).await?;
    gathered.spans = spans;
    let pods: Vec<Member> = gathered.members.iter().filter(|member| !member.node.is_empty()).cloned().collect();
    for pod in pods {
        let path = format!("/api/v1/nodes/{}/proxy/debug/hops{}", segment(&pod.node), query(&[("uid", &pod.uid)]));
        match ask(&api, &path).await {
            // A node in the server's own process: it has answered.
            Ok((_, process)) if process == server => {}
            Ok((spans, _)) => gathered.spans.extend(spans),
            Err(error) if gathered.silent.iter().all(|(node, _)| *node != pod.node) => {
                gathered.silent.push((pod.node, error.bare()));
            }
            Err(_) => {}
        }
    }
    Ok(gathered)
}

fn member(object: &Value) -> Member {
    let owner = list(object, "metadata.ownerReferences").iter().find(|owner| owner["controller"] == true);
    Member {
        uid: text(object, "metadata.uid").to_owned(),
        name: format!("{}/{}", text(object, "kind").to_lowercase(), text(object, "metadata.name")),
        owner: owner.map(|owner| text(owner, "uid").to_owned()).unwrap_or_default(),
        node: text(object, "spec.nodeName").to_owned(),
    }
}

/// The owner of a pod that is between it and what was asked about, unless it is known.
async fn between(invocation: &Invocation, object: &Value, pod: &Value, known: &[Member]) -> Outcome<Option<Member>> {
    let Some(owner) = list(pod, "metadata.ownerReferences").iter().find(|owner| owner["controller"] == true) else {
        return Ok(None);
    };
    let uid = text(owner, "uid");
    if uid == text(object, "metadata.uid") || known.iter().any(|member| member.uid == uid) {
        return Ok(None);
    }
    let mapping = invocation.session.mapping_of_kind(text(owner, "apiVersion"), text(owner, "kind")).await?;
    let Some(mapping) = mapping else { return Ok(None) };
    let path = mapping.path(text(pod, "metadata.namespace"), text(owner, "name"), "");
    let found = invocation.session.api()?.get(&path).await;
    Ok(found.ok().filter(|found| text(found, "metadata.uid") == uid).map(|found| member(&found)))
}

/// The spans of one process, and which process that is.
async fn ask(api: &Api, path: &str) -> Outcome<(Vec<Span>, String)> {
    let asked = Timestamp::now();
    let answer = api.get(path).await?;
    let ahead = ahead(&answer, asked, Timestamp::now());
    let process = text(&answer, "process").to_owned();
    let spans = list(&answer, "hops").iter().filter_map(|hop| span(hop, &process, ahead)).collect();
    Ok((spans, process))
}

/// How far a clock is ahead of the one here: it was read about halfway between question and answer.
fn ahead(answer: &Value, asked: Timestamp, answered: Timestamp) -> SignedDuration {
    let Ok(theirs) = text(answer, "now").parse::<Timestamp>() else { return SignedDuration::ZERO };
    theirs.duration_since(asked) - answered.duration_since(asked) / 2
}

fn span(hop: &Value, process: &str, ahead: SignedDuration) -> Option<Span> {
    let start: Timestamp = text(hop, "start").parse().ok()?;
    let number = |field: &str| hop[field].as_u64().unwrap_or_default();
    Some(Span {
        hop: u8::try_from(number("hop")).ok()?,
        name: text(hop, "name").to_owned(),
        stage: text(hop, "stage").to_owned(),
        verb: text(hop, "verb").to_owned(),
        by: text(hop, "by").to_owned(),
        uid: text(hop, "uid").to_owned(),
        request: number("request"),
        process: process.to_owned(),
        revision: number("revision"),
        decided: text(hop, "decided").to_owned(),
        amounts: Amounts { bytes: number("bytes"), writes: number("writes"), nodes: number("nodes") },
        start: start.checked_sub(ahead).ok()?,
        took: Duration::try_from_secs_f64(hop["seconds"].as_f64()?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn spans_of_a_clock_that_is_ahead_are_told_by_the_clock_here() {
        let (asked, answered) = (time("2030-01-01T00:00:10Z"), time("2030-01-01T00:00:10.02Z"));
        let answer = json!({"now": "2030-01-01T00:00:15.01Z"});
        let ahead = ahead(&answer, asked, answered);
        assert_eq!(ahead, SignedDuration::from_secs(5));
        let hop = json!({"hop": 11, "stage": "pull", "start": "2030-01-01T00:00:14Z", "seconds": 0.25, "bytes": 7, "decided": "pulled"});
        let span = span(&hop, "p", ahead).expect("a span");
        assert_eq!((span.start, span.took), (time("2030-01-01T00:00:09Z"), Duration::from_millis(250)));
        assert_eq!((span.amounts.bytes, span.decided.as_str()), (7, "pulled"));
    }

    #[test]
    fn what_is_no_span_is_left_out() {
        for hop in [
            json!({}),
            json!({"hop": 7, "start": "then", "seconds": 1}),
            json!({"hop": 7000, "start": "2030-01-01T00:00:00Z", "seconds": 1}),
            json!({"hop": 7, "start": "2030-01-01T00:00:00Z", "seconds": -1}),
        ] {
            assert_eq!(span(&hop, "p", SignedDuration::ZERO), None, "{hop}");
        }
    }
}
