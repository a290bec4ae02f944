//! Tables for people.

use futures::future::join_all;

use crate::api::TABLE;
use crate::command::Invocation;
use crate::discovery::{Mapping, query};
use crate::error::{Failure, Outcome};
use crate::print::jsonpath::relaxed;
use crate::print::sort::{self, Unsorted};
use crate::print::table::{Options, Row, Table};
use crate::print::tabs::Tabs;
use crate::resource::{self, Builder, Target, arguments, unselectable};

/// What the flags ask for.
pub(super) fn options(invocation: &Invocation, wide: bool) -> Options {
    let flags = &invocation.flags;
    Options {
        wide,
        no_headers: flags.is("no-headers"),
        namespace: false,
        kind: flags.is("show-kind"),
        labels: flags.is("show-labels"),
        columns: flags.list("label-columns"),
    }
}

/// What is to be read: what the arguments mean, or what is in files.
pub(super) async fn targets(invocation: &mut Invocation, builder: &Builder) -> Outcome<(Vec<Target>, Vec<Failure>)> {
    if builder.has_no_files() {
        return Ok((arguments::targets(builder, &invocation.session).await?, Vec::new()));
    }
    let found = match builder.infos(&invocation.session, &mut invocation.streams).await {
        Err(error) if !builder.kustomize.is_empty() => return Err(Failure::Many(vec![error])),
        found => found?,
    };
    let target = |info: crate::resource::Info| Target {
        mapping: info.mapping,
        namespace: info.namespace,
        name: Some(info.name),
    };
    Ok((found.infos.into_iter().map(target).collect(), found.errors))
}

pub(super) async fn run(invocation: &mut Invocation, builder: &Builder, wide: bool) -> Outcome {
    let (targets, unread) = targets(invocation, builder).await?;
    let sort_by = invocation.flags.text("sort-by").to_owned();
    let mut options = options(invocation, wide);
    // What is sorted, and what may need its kind before its name, is made lines of when all of it is there.
    let one_kind = targets.iter().all(|target| target.mapping == targets[0].mapping);
    let shown = (one_kind && sort_by.is_empty()).then_some(&options);
    let fetches = targets.iter().map(|target| fetch(invocation, builder, target, !sort_by.is_empty(), shown));
    let fetched = join_all(fetches).await;
    let tables = fetched.iter().filter(|answer| answer.is_ok()).count();
    if !sort_by.is_empty() && tables > 1 {
        // Several tables are not sorted with each other: none of them has such a field.
        let field = relaxed(&sort_by).unwrap_or(sort_by);
        return Err(Failure::Message(format!(
            "couldn't find any field with path {} in the list of objects",
            machinery::status::go_quote(&field)
        )));
    }
    // What cannot be read of some files hides nothing of the others.
    let mut errors = Vec::new();
    let mut groups: Vec<(Mapping, Table)> = Vec::new();
    for (target, answer) in targets.iter().zip(fetched) {
        match answer {
            Ok(table) => match groups.iter_mut().find(|(mapping, _)| *mapping == target.mapping) {
                Some((_, known)) => known.extend(table),
                None => groups.push((target.mapping.clone(), table)),
            },
            Err(error) if error.is_not_found() && invocation.flags.is("ignore-not-found") => {}
            Err(error) => errors.push(error),
        }
    }
    errors.extend(unread);
    options.kind |= groups.len() > 1;
    let mut text = String::new();
    for (mapping, table) in &mut groups {
        if !sort_by.is_empty() {
            order(invocation, table, &sort_by)?;
        }
        let local = options.of(builder.all_namespaces && mapping.namespaced);
        let lines = table.lines(Some(mapping), &local);
        if !text.is_empty() && !lines.is_empty() && !options.no_headers {
            text.push('\n');
        }
        text += &Tabs::new().align(&lines);
    }
    invocation.print(&text)?;
    if text.is_empty() && errors.is_empty() && !invocation.flags.is("ignore-not-found") {
        invocation.warn();
        let namespaced = !builder.all_namespaces && groups.iter().all(|(mapping, _)| mapping.namespaced);
        let nothing = if namespaced {
            format!("No resources found in {} namespace.", builder.namespace)
        } else {
            "No resources found".to_owned()
        };
        invocation.streams.error(&nothing);
    }
    Failure::each(errors)
}

/// Sorts the rows. A table that cannot be sorted is not shown.
pub(super) fn order(invocation: &mut Invocation, table: &mut Table, sort_by: &str) -> Outcome {
    match sort::sort(&mut table.rows, sort_by, |row: &Row| &row.object) {
        Ok(()) => Ok(()),
        Err(Unsorted::Path(_)) => {
            table.rows.clear();
            Ok(())
        }
        Err(kind) => {
            invocation.streams.log('F', "sorter.go:375", &kind.message("[][][]reflect.Value"));
            Err(Failure::Exit(1))
        }
    }
}

/// One object or a whole collection as a table, chunk by chunk; with its lines instead of its rows where it is known how it is shown.
async fn fetch(
    invocation: &Invocation,
    builder: &Builder,
    target: &Target,
    whole: bool,
    shown: Option<&Options>,
) -> Outcome<Table> {
    let api = invocation.session.api()?;
    let accept = if invocation.flags.is("server-print") { TABLE } else { crate::api::JSON };
    let include = if whole { "Object" } else { "" };
    let now = jiff::Timestamp::now();
    if let Some(name) = &target.name {
        let path = target.path(name, &builder.subresource)?;
        let path = path + &query(&[("at", &builder.at), ("includeObject", include)]);
        let answer = resource::named(&api, &target.namespace, &path, accept).await?;
        return Ok(Table::from_value(answer, now));
    }
    let mut all = Table::default();
    let mut next = String::new();
    loop {
        let path = target.mapping.path(&target.namespace, "", &builder.subresource) + &builder.query(&next);
        let separator = if path.contains('?') { "&" } else { "?" };
        let path = if whole { format!("{path}{separator}includeObject=Object") } else { path };
        let answer = api.call(http::Method::GET, &path, None, accept).await;
        let (_, answer) = answer.map_err(|error| unselectable(error, target, builder))?;
        if whole {
            let answer = crate::api::decode(&answer)?;
            machinery::value::text(&answer, "metadata.continue").clone_into(&mut next);
            all.extend(Table::from_value(answer, now));
        } else {
            let table;
            (table, next) = Table::slim(&answer, now)?;
            all.extend(table);
        }
        // With the columns of the first chunk, which others need not repeat.
        if let Some(options) = shown {
            all.shrink(&target.mapping, &options.of(builder.all_namespaces && target.mapping.namespaced));
        }
        if next.is_empty() {
            return Ok(all);
        }
    }
}
