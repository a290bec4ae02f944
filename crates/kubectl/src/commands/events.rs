//! `kubectl events`.

use machinery::value::{int, list, text};
use serde_json::{Value, json};

use crate::command::{Command, Invocation};
use crate::discovery::query;
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::tabs::Tabs;
use crate::print::{OBJECTS, Printer, Request, table};

pub static COMMAND: Command = Command {
    name: "events",
    aliases: &[],
    usage: "[(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file] [--for TYPE/NAME] [--watch] [--types=Normal,Warning]",
    short: "List events",
    flags: &[
        sets::PRINT,
        sets::ALL_NAMESPACES,
        sets::CHUNK_SIZE,
        &[
            Flag::string("for", "", "Only events of this object, as TYPE/NAME."),
            Flag::bool("no-headers", "Print no headers."),
            Flag::slice("types", "Only events of these types: Normal, Warning."),
            Flag::bool("watch", "Show further events as they come.").short('w'),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// Events, no more at once than upstream asks for.
async fn chunk(invocation: &Invocation, collection: &str, fields: &str, next: &str) -> Outcome<Value> {
    let limit = invocation.flags.int("chunk-size");
    let limit = if limit == 0 { String::new() } else { limit.to_string() };
    let query = query(&[("continue", next), ("fieldSelector", fields), ("limit", &limit)]);
    invocation.session.api()?.get(&format!("{collection}{query}")).await
}

/// All events, however many chunks that takes.
async fn all(invocation: &Invocation, collection: &str, fields: &str) -> Outcome<Value> {
    let mut answer = chunk(invocation, collection, fields, "").await?;
    while !text(&answer, "metadata.continue").is_empty() {
        let mut next = chunk(invocation, collection, fields, text(&answer, "metadata.continue")).await?;
        let mut items = list(&answer, "items").to_vec();
        items.extend(list(&next, "items").iter().cloned());
        next["items"] = items.into();
        answer = next;
    }
    Ok(answer)
}

/// A type and a name. Either may be empty; then nothing is found.
fn kind_and_name(word: &str) -> Outcome<(&str, &str)> {
    match word.split_once('/') {
        None => Err(Failure::message("--for must be in resource/name form")),
        Some((_, name)) if name.contains('/') => {
            Err(Failure::message("arguments in resource/name form may not have more than one slash"))
        }
        Some(pair) => Ok(pair),
    }
}

/// What selects the events of the object that `--for` names.
async fn about(invocation: &Invocation) -> Outcome<String> {
    let word = invocation.flags.text("for").to_owned();
    if word.is_empty() {
        return Ok(String::new());
    }
    let (kind, name) = kind_and_name(&word)?;
    let mapping = invocation.session.mapping(&kind.to_lowercase()).await.map_err(Failure::without_prefix)?;
    Ok(format!(
        "involvedObject.kind={},involvedObject.name={name},involvedObject.apiVersion={}",
        mapping.kind,
        mapping.api_version()
    ))
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let types = invocation.flags.list("types");
    if let Some(odd) = types.iter().find(|kind| !matches!(kind.to_lowercase().as_str(), "normal" | "warning")) {
        let _ = odd;
        return Err(Failure::message("valid --types are Normal or Warning"));
    }
    let fields = about(invocation).await?;
    let everywhere = invocation.flags.is("all-namespaces");
    let namespace = invocation.session.namespace()?;
    let collection =
        if everywhere { "/api/v1/events".to_owned() } else { format!("/api/v1/namespaces/{namespace}/events") };
    let answer = all(invocation, &collection, &fields).await?;
    let wanted =
        |event: &Value| types.is_empty() || types.iter().any(|kind| kind.eq_ignore_ascii_case(text(event, "type")));
    let mut events: Vec<Value> = list(&answer, "items").iter().filter(|event| wanted(event)).cloned().collect();
    events.sort_by_key(|event| seen(event).map_or(i64::MIN, |time| time.as_second()));
    if events.is_empty() && !invocation.flags.is("watch") {
        let nothing = if everywhere {
            "No events found.".to_owned()
        } else {
            format!("No events found in {namespace} namespace.")
        };
        invocation.streams.error(&nothing);
        return Ok(());
    }
    let request = Request { allowed: OBJECTS, typed: true };
    if let Some(mut printer) = Printer::from_output(&invocation.flags, &invocation.session.environment, &request)? {
        let omits = printer.omits_managed_fields() && !invocation.flags.is("show-managed-fields");
        for event in &mut events {
            event["kind"] = "Event".into();
            event["apiVersion"] = "v1".into();
            if omits {
                machinery::value::remove(event, "metadata.managedFields");
            }
        }
        let all = json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": events});
        let text = printer.print(&all)?;
        return invocation.print(&text);
    }
    let mut tabs = Tabs::remembering();
    let mut head = String::new();
    if !invocation.flags.is("no-headers") {
        head += if everywhere { "NAMESPACE\t" } else { "" };
        head += "LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n";
    }
    // Where nothing is known yet, the first that comes has the headers.
    let mut lines = if events.is_empty() { String::new() } else { std::mem::take(&mut head) };
    lines.extend(events.iter().map(|event| line(event, everywhere)));
    let shown = tabs.align(&lines);
    invocation.print(&shown)?;
    if !invocation.flags.is("watch") {
        return Ok(());
    }
    std::io::Write::flush(&mut invocation.streams.out)?;
    let limit = invocation.session.connection()?.client.timeout;
    let version = text(&answer, "metadata.resourceVersion");
    let path = format!(
        "{collection}{}",
        query(&[("fieldSelector", &fields), ("resourceVersion", version), ("watch", "true")])
    );
    let follow = async {
        let mut watch = invocation.session.api()?.watch(&path, crate::api::JSON).await?;
        while let Some((what, event)) = watch.next().await? {
            if what != "DELETED" && wanted(&event) {
                let shown = tabs.align(&(std::mem::take(&mut head) + &line(&event, everywhere)));
                invocation.print(&shown)?;
                std::io::Write::flush(&mut invocation.streams.out)?;
            }
        }
        Ok::<(), Failure>(())
    };
    // Whoever set a limit for requests wanted that end.
    tokio::time::timeout(limit, follow).await.unwrap_or(Ok(()))
}

fn time(event: &Value, path: &str) -> Option<jiff::Timestamp> {
    machinery::time::parse(text(event, path))
}

/// When it was seen last.
fn seen(event: &Value) -> Option<jiff::Timestamp> {
    time(event, "series.lastObservedTime").or_else(|| time(event, "lastTimestamp")).or_else(|| time(event, "eventTime"))
}

fn line(event: &Value, everywhere: bool) -> String {
    let now = jiff::Timestamp::now();
    let age = |at: Option<jiff::Timestamp>| at.map_or("<unknown>".to_owned(), |at| table::age(at, now));
    let first = age(time(event, "eventTime").or_else(|| time(event, "firstTimestamp")));
    let interval = match (int(event, "series.count"), int(event, "count")) {
        (Some(count), _) => format!("{} (x{count} over {first})", age(time(event, "series.lastObservedTime"))),
        (None, Some(count)) if count > 1 => format!("{} (x{count} over {first})", age(time(event, "lastTimestamp"))),
        _ => first,
    };
    let escape = |path: &str| text(event, path).trim().replace('\x1b', "^[").replace('\r', "\\r").replace('\n', "\\n");
    let namespace = if everywhere { format!("{}\t", text(event, "metadata.namespace")) } else { String::new() };
    format!(
        "{namespace}{interval}\t{}\t{}\t{}/{}\t{}\n",
        escape("type"),
        escape("reason"),
        escape("involvedObject.kind"),
        escape("involvedObject.name"),
        text(event, "message").trim().replace('\x1b', "^[")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_its_type_and_name() {
        assert_eq!(kind_and_name("pod/a").expect("a pair"), ("pod", "a"));
        for (word, expected) in [
            ("pod", "error: --for must be in resource/name form"),
            ("pod/a/b", "error: arguments in resource/name form may not have more than one slash"),
        ] {
            assert_eq!(kind_and_name(word).expect_err(word).render(), expected);
        }
    }
}
