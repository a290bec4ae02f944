//! `get --contexts a,b`: the same question to several clusters at once. Upstream has no such flag.

use futures::future::join_all;

use crate::command::Invocation;
use crate::error::{Failure, Outcome};
use crate::print::tabs::Tabs;
use crate::session::Session;
use crate::streams::Streams;

/// Asks every context, and shows the answers as one table with a column more.
pub async fn run(invocation: &mut Invocation, contexts: &[String]) -> Outcome {
    if !matches!(invocation.flags.text("output"), "" | "wide" | "name") {
        return Err(Failure::message("--contexts can only be used with tables and with -o name"));
    }
    if invocation.flags.is("watch") || invocation.flags.is("watch-only") {
        return Err(Failure::message("--contexts cannot be used with --watch"));
    }
    let asked = contexts.iter().map(|context| ask(invocation, context));
    let answers: Vec<(String, String, Outcome)> = join_all(asked).await;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut failures = Vec::new();
    for (context, (out, err, outcome)) in contexts.iter().zip(answers) {
        for line in err.lines() {
            invocation.streams.error(&format!("{context}: {line}"));
        }
        if let Err(failure) = outcome {
            failures.push(Failure::Message(format!("{context}: {}", failure.bare())));
        }
        let headers = !invocation.flags.is("no-headers") && invocation.flags.text("output") != "name";
        let skip = usize::from(headers && !rows.is_empty());
        for (at, cells) in cells(&out, headers).into_iter().enumerate().skip(skip) {
            let first = if headers && at == 0 { "CONTEXT" } else { context };
            rows.push([vec![first.to_owned()], cells].concat());
        }
    }
    let lines: String = rows.iter().map(|cells| cells.join("\t") + "\n").collect();
    let table = Tabs::new().align(&lines);
    invocation.print(&table)?;
    Failure::all(failures)
}

async fn ask(invocation: &Invocation, context: &str) -> (String, String, Outcome) {
    let mut flags = invocation.flags.clone();
    flags.set("context", context);
    flags.forget("contexts");
    let (streams, out, err) = Streams::memory(b"");
    let session = Session::new(invocation.session.environment.clone(), &flags.global());
    let mut own = Invocation { path: invocation.path.clone(), command: invocation.command, flags, streams, session };
    let outcome = Box::pin(super::run(&mut own)).await;
    own.warn();
    (out.text(), err.text(), outcome)
}

/// The cells of a table that was brought into columns: a column begins where its header does.
fn cells(table: &str, headers: bool) -> Vec<Vec<String>> {
    let lines: Vec<&str> = table.lines().filter(|line| !line.is_empty()).collect();
    let Some(first) = lines.first().filter(|_| headers) else {
        return lines.into_iter().map(|line| vec![line.to_owned()]).collect();
    };
    let letters: Vec<char> = first.chars().collect();
    // Headers of several words have one space between them; columns are three apart.
    let begins = |at: usize| letters[at] != ' ' && (at < 2 || (letters[at - 1] == ' ' && letters[at - 2] == ' '));
    let starts: Vec<usize> = (0..letters.len()).filter(|at| begins(*at) && (*at != 1)).collect();
    let cut = |line: &str| {
        let letters: Vec<char> = line.chars().collect();
        (0..starts.len())
            .map(|column| {
                let from = starts[column].min(letters.len());
                let to = starts.get(column + 1).copied().unwrap_or(letters.len()).min(letters.len());
                letters[from..to.max(from)].iter().collect::<String>().trim_end().to_owned()
            })
            .collect()
    };
    lines.into_iter().map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_cut_where_their_headers_begin() {
        let table = "NAME   LAST SEEN   AGE\na                  5d\nlong   x y         1s\n";
        assert_eq!(cells(table, true), [["NAME", "LAST SEEN", "AGE"], ["a", "", "5d"], ["long", "x y", "1s"]]);
        assert_eq!(cells("pod/a\n", false), [["pod/a"]]);
    }
}
