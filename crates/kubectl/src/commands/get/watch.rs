//! `get -w`: what is there, and then what happens.

use std::io::Write as _;

use machinery::status::go_quote;
use serde_json::{Value, json};

use super::human;
use crate::api::{Api, JSON, TABLE};
use crate::command::Invocation;
use crate::discovery::query;
use crate::error::{Failure, Outcome};
use crate::print::table::{Options, Table};
use crate::print::tabs::Tabs;
use crate::print::{self, Printer};
use crate::resource::{self, Builder, Target, unselectable};

/// Prints events, one after the other.
struct Output {
    printer: Option<Printer>,
    options: Options,
    tabs: Tabs,
    columns: Vec<print::table::Column>,
    events: bool,
    managed: bool,
}

pub(super) async fn run(
    invocation: &mut Invocation,
    builder: &Builder,
    printer: Option<Printer>,
    wide: bool,
) -> Outcome {
    if !builder.has_no_files() {
        let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
        if found.infos.len() + found.errors.len() > 1 {
            return Err(Failure::message(
                "watch is only supported on individual resources and resource collections - more than 1 resource was found",
            ));
        }
    }
    let human = printer.is_none();
    let (targets, unread) = human::targets(invocation, builder).await?;
    Failure::each(unread)?;
    let [target] = &targets[..] else {
        // Objects that are not there are told first.
        for Target { mapping, namespace, name } in targets.iter().filter(|target| target.name.is_some()) {
            let path = mapping.path(namespace, name.as_deref().unwrap_or_default(), "");
            resource::named(&*invocation.session.api()?, namespace, &path, JSON).await?;
        }
        if human && targets.iter().all(|target| target.mapping == targets[0].mapping) {
            human::run(invocation, builder, wide).await?;
            return Err(Failure::message("you may only watch a single resource or type of resource at a time"));
        }
        return Err(Failure::message("you may only specify a single resource type"));
    };
    let mut options = human::options(invocation, wide);
    options.namespace = builder.all_namespaces && target.mapping.namespaced;
    let mut output = Output {
        printer,
        options,
        tabs: Tabs::remembering(),
        columns: Vec::new(),
        events: invocation.flags.is("output-watch-events"),
        managed: invocation.flags.is("show-managed-fields"),
    };
    let asked = Asked {
        accept: if human { TABLE } else { JSON },
        sort_by: invocation.flags.text("sort-by").to_owned(),
        whole: human && !invocation.flags.text("sort-by").is_empty(),
    };
    if !asked.sort_by.is_empty() {
        invocation.streams.error("warning: --watch requested, --sort-by will be ignored for watch events received");
    }
    // Whoever set a limit for requests wanted that end; without one it is a day.
    let limit = invocation.session.connection()?.client.timeout;
    let watched = tokio::time::timeout(limit, follow(invocation, builder, target, &asked, &mut output)).await;
    watched.unwrap_or_else(|_| {
        if invocation.flags.int("v") >= 5 {
            let why = "net/http: request canceled (Client.Timeout or context cancellation while reading body)";
            let text = format!("\"Unable to decode an event from the watch stream\" err={}", go_quote(why));
            invocation.streams.log('I', "streamwatcher.go:123", &text);
        }
        Ok(())
    })
}

/// How objects are asked for.
struct Asked {
    accept: &'static str,
    sort_by: String,
    /// Whether rows come with their objects, to be sorted by them.
    whole: bool,
}

impl Asked {
    fn query(&self, pairs: &[(&str, &str)]) -> String {
        let include = if self.whole { "Object" } else { "" };
        query(&[pairs, &[("includeObject", include)]].concat())
    }
}

/// Shows what is there, and then what happens.
async fn follow(
    invocation: &mut Invocation,
    builder: &Builder,
    target: &Target,
    asked: &Asked,
    output: &mut Output,
) -> Outcome {
    let field = match &target.name {
        Some(name) => format!("metadata.name={name}"),
        None => builder.field_selector.clone(),
    };
    let pairs = [("fieldSelector", field.as_str()), ("labelSelector", builder.selector.as_str())];
    let path = target.mapping.path(&target.namespace, "", "");
    let mut version = first(invocation, builder, target, asked, output).await?;
    // A watch of one object from now on begins with what was just shown.
    let mut shown_already = target.name.is_some();
    loop {
        let query = asked.query(&[pairs[0], pairs[1], ("resourceVersion", &version), ("watch", "true")]);
        let mut watch = invocation.session.api()?.watch(&format!("{path}{query}"), asked.accept).await?;
        while let Some((event, object)) = watch.next().await? {
            if event == "BOOKMARK" {
                continue;
            }
            if let Some(newer) = newest(&object) {
                version = newer;
            }
            if std::mem::take(&mut shown_already) {
                continue;
            }
            let text = output.text(target, &event, object)?;
            invocation.print(&text)?;
            invocation.streams.out.flush()?;
        }
        // A server ends a watch after a while: it goes on where it ended.
    }
}

/// What is there already; the version from which to watch.
async fn first(
    invocation: &mut Invocation,
    builder: &Builder,
    target: &Target,
    asked: &Asked,
    output: &mut Output,
) -> Outcome<String> {
    let api = invocation.session.api()?;
    let (answers, version) = if let Some(name) = &target.name {
        let path = target.mapping.path(&target.namespace, name, "") + &asked.query(&[]);
        (vec![resource::named(&api, &target.namespace, &path, asked.accept).await?], "0".to_owned())
    } else {
        pages(&api, builder, target, asked).await?
    };
    if invocation.flags.is("watch-only") {
        return Ok(version);
    }
    for answer in answers {
        let text = output.what_is_there(invocation, target, asked, answer)?;
        invocation.print(&text)?;
    }
    invocation.streams.out.flush()?;
    Ok(version)
}

/// A whole collection, chunk by chunk, and its version.
async fn pages(api: &Api, builder: &Builder, target: &Target, asked: &Asked) -> Outcome<(Vec<Value>, String)> {
    let path = target.mapping.path(&target.namespace, "", "");
    let (mut answers, mut next) = (Vec::new(), String::new());
    loop {
        let query = builder.query(&next);
        let include = asked.query(&[]).replace('?', if query.is_empty() { "?" } else { "&" });
        let answer = api.get_as(&format!("{path}{query}{include}"), asked.accept).await;
        let answer = answer.map_err(|error| unselectable(error, target, builder))?;
        machinery::value::text(&answer, "metadata.continue").clone_into(&mut next);
        let version = machinery::value::text(&answer, "metadata.resourceVersion").to_owned();
        answers.push(answer);
        if next.is_empty() {
            return Ok((answers, version));
        }
    }
}

/// The version of an event's object, also where that is the row of a table.
fn newest(object: &Value) -> Option<String> {
    let row = object.get("rows").and_then(|rows| rows.get(0)).and_then(|row| row.get("object"));
    let version = machinery::value::text(row.unwrap_or(object), "metadata.resourceVersion");
    (!version.is_empty()).then(|| version.to_owned())
}

impl Output {
    /// What is there already, of one answer.
    fn what_is_there(
        &mut self,
        invocation: &mut Invocation,
        target: &Target,
        asked: &Asked,
        answer: Value,
    ) -> Outcome<String> {
        if self.printer.is_none() {
            let mut table = Table::from_value(answer, jiff::Timestamp::now());
            if !asked.sort_by.is_empty() {
                human::order(invocation, &mut table, &asked.sort_by)?;
            }
            return Ok(self.table(target, "ADDED", table));
        }
        let kind = answer["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
        let api_version = answer["apiVersion"].clone();
        let Some(items) = print::items(&answer).cloned() else { return self.text(target, "ADDED", answer) };
        let mut text = String::new();
        for mut item in items {
            item["kind"] = kind.as_str().into();
            item["apiVersion"] = api_version.clone();
            text += &self.text(target, "ADDED", item)?;
        }
        Ok(text)
    }

    fn text(&mut self, target: &Target, event: &str, mut object: Value) -> Outcome<String> {
        let Some(printer) = &mut self.printer else {
            return Ok(self.table(target, event, Table::from_value(object, jiff::Timestamp::now())));
        };
        // An event is no object: what is in it is shown as it is.
        if printer.omits_managed_fields() && !self.managed && !self.events {
            print::without_managed_fields(&mut object);
        }
        if self.events {
            if matches!(printer, Printer::Json { .. }) {
                // An event is one line.
                return Ok(format!("{{\"type\":{},\"object\":{object}}}\n", go_quote(event)));
            }
            object = json!({"type": event, "object": object});
        }
        printer.print(&object)
    }

    fn table(&mut self, target: &Target, event: &str, mut table: Table) -> String {
        // Columns are said once.
        let first = self.columns.is_empty() && !table.rows.is_empty();
        if table.columns.is_empty() {
            table.columns.clone_from(&self.columns);
        } else if !table.rows.is_empty() {
            self.columns.clone_from(&table.columns);
        }
        if self.events {
            for row in &mut table.rows {
                // As wide as the longest of them, whichever come.
                row.cells.insert(0, format!("{event:8}").into());
            }
            let column = print::table::Column { name: "Event".to_owned(), ..Default::default() };
            table.columns.insert(0, column);
        }
        let options = Options { no_headers: self.options.no_headers || !first, ..self.options.clone() };
        self.tabs.align(&table.lines(Some(&target.mapping), &options))
    }
}
