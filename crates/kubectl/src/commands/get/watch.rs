//! `get -w`: what is there, and then what happens.

use std::io::Write as _;

use serde_json::{Value, json};

use super::human;
use crate::api::{JSON, TABLE};
use crate::command::Invocation;
use crate::discovery::query;
use crate::error::{Failure, Outcome};
use crate::print::table::{Options, Table};
use crate::print::tabs::Tabs;
use crate::print::{self, Printer};
use crate::resource::{Builder, Target};

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
    let targets = human::targets(invocation, builder).await?;
    let [target] = &targets[..] else {
        return Err(Failure::message("you may only specify a single resource type"));
    };
    let mut options = human::options(invocation, wide);
    options.namespace = builder.all_namespaces && target.mapping.namespaced;
    let human = printer.is_none();
    let mut output = Output {
        printer,
        options,
        tabs: Tabs::remembering(),
        columns: Vec::new(),
        events: invocation.flags.is("output-watch-events"),
        managed: invocation.flags.is("show-managed-fields"),
    };
    let accept = if human { TABLE } else { JSON };
    let field = match &target.name {
        Some(name) => format!("metadata.name={name}"),
        None => builder.field_selector.clone(),
    };
    let pairs = [("fieldSelector", field.as_str()), ("labelSelector", builder.selector.as_str())];
    let path = target.mapping.path(&target.namespace, "", "");
    let mut version = first(invocation, target, &path, &pairs, accept, &mut output).await?;
    loop {
        let query = query(&[pairs[0], pairs[1], ("resourceVersion", &version), ("watch", "true")]);
        let mut watch = invocation.session.api()?.watch(&format!("{path}{query}"), accept).await?;
        while let Some((event, object)) = watch.next().await? {
            if event == "BOOKMARK" {
                continue;
            }
            if let Some(newer) = newest(&object) {
                version = newer;
            }
            let text = output.text(target, &event, object)?;
            invocation.print(&text)?;
            invocation.streams.out.flush()?;
        }
        // A server ends a watch after a while: it goes on where it ended. Whoever set a limit for requests wanted that end.
        if invocation.flags.text("request-timeout") != "0" {
            return Ok(());
        }
    }
}

/// What is there already; the version from which to watch.
async fn first(
    invocation: &mut Invocation,
    target: &Target,
    path: &str,
    pairs: &[(&str, &str)],
    accept: &str,
    output: &mut Output,
) -> Outcome<String> {
    // An object that was named must be there.
    if let Some(name) = &target.name {
        invocation.session.api()?.get(&target.mapping.path(&target.namespace, name, "")).await?;
    }
    let answer = invocation.session.api()?.get_as(&format!("{path}{}", query(pairs)), accept).await?;
    let version = machinery::value::text(&answer, "metadata.resourceVersion").to_owned();
    if invocation.flags.is("watch-only") {
        return Ok(version);
    }
    let text = if output.printer.is_none() {
        output.text(target, "ADDED", answer)?
    } else {
        let kind = answer["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
        let api_version = answer["apiVersion"].clone();
        let mut text = String::new();
        for mut item in print::items(&answer).cloned().unwrap_or_default() {
            item["kind"] = kind.as_str().into();
            item["apiVersion"] = api_version.clone();
            text += &output.text(target, "ADDED", item)?;
        }
        text
    };
    invocation.print(&text)?;
    invocation.streams.out.flush()?;
    Ok(version)
}

/// The version of an event's object, also where that is the row of a table.
fn newest(object: &Value) -> Option<String> {
    let row = object.get("rows").and_then(|rows| rows.get(0)).and_then(|row| row.get("object"));
    let version = machinery::value::text(row.unwrap_or(object), "metadata.resourceVersion");
    (!version.is_empty()).then(|| version.to_owned())
}

impl Output {
    fn text(&mut self, target: &Target, event: &str, mut object: Value) -> Outcome<String> {
        let Some(printer) = &mut self.printer else {
            return Ok(self.table(target, event, object));
        };
        if printer.omits_managed_fields() && !self.managed {
            print::without_managed_fields(&mut object);
        }
        if self.events {
            object = json!({"type": event, "object": object});
        }
        printer.print(&object)
    }

    fn table(&mut self, target: &Target, event: &str, object: Value) -> String {
        let mut table = Table::from_value(object, jiff::Timestamp::now());
        // Columns are said once.
        let first = self.columns.is_empty() && !table.rows.is_empty();
        if table.columns.is_empty() {
            table.columns.clone_from(&self.columns);
        } else if !table.rows.is_empty() {
            self.columns.clone_from(&table.columns);
        }
        if self.events {
            for row in &mut table.rows {
                row.cells.insert(0, event.into());
            }
            let column = print::table::Column { name: "Event".to_owned(), ..Default::default() };
            table.columns.insert(0, column);
        }
        let options = Options { no_headers: self.options.no_headers || !first, ..self.options.clone() };
        self.tabs.align(&table.lines(Some(&target.mapping), &options))
    }
}
