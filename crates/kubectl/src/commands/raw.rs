//! `--raw`: a path of the server is asked as it is, with one file as it is, and its answer is shown as it is.

use std::io::Read as _;

use bytes::Bytes;
use machinery::status::go_quote;

use crate::api::JSON;
use crate::command::Invocation;
use crate::error::{Failure, Outcome, os_error};
use crate::flags::Given;

/// Flags that mean nothing beside it, as upstream names them, in the order in which it looks.
const EXCLUDED: [(&str, &str); 4] =
    [("edit", "--edit"), ("recursive", "--recursive"), ("selector", "--selector (-l)"), ("output", "--output")];

/// The path that is given, if one is.
pub fn wanted(flags: &Given) -> Outcome<Option<String>> {
    let Some(path) = flags.given("raw") else { return Ok(None) };
    let set = |flag: &str| flags.knows(flag) && !matches!(flags.text(flag), "" | "false");
    let refuse = |flag: &str, shown: &str| match set(flag) {
        true => Err(Failure::Message(format!("--raw and {shown} are mutually exclusive"))),
        false => Ok(()),
    };
    let (edit, others) = EXCLUDED.split_first().expect("the list is not empty");
    refuse(edit.0, edit.1)?;
    let files = flags.list("filename");
    if files.len() > 1 {
        return Err(Failure::message("--raw can only use a single local file or stdin"));
    }
    if files.iter().any(|file| file.starts_with("http://") || file.starts_with("https://")) {
        return Err(Failure::message("--raw cannot read from a url"));
    }
    for (flag, shown) in others {
        refuse(flag, shown)?;
    }
    checked(path).map(Some)
}

/// The path of what is given; a server that is named with it is not the one that is asked. Refuses what is no path.
pub fn checked(given: &str) -> Outcome<String> {
    let elsewhere = ["http://", "https://"].iter().find_map(|scheme| given.strip_prefix(scheme));
    if let Some(rest) = elsewhere {
        return Ok(rest.find('/').map_or("/", |path| &rest[path..]).to_owned());
    }
    if given.starts_with('/') {
        return Ok(given.to_owned());
    }
    let given = go_quote(given);
    Err(Failure::Message(format!("--raw must be a valid URL path: parse {given}: invalid URI for request")))
}

/// Sends the file, if one is given, and shows what the server answers.
pub async fn send(invocation: &mut Invocation, method: http::Method, path: &str) -> Outcome {
    let files = invocation.flags.list("filename");
    let body = match files.first().map(String::as_str) {
        None => None,
        Some("-") => {
            let mut text = Vec::new();
            invocation.streams.input.read_to_end(&mut text)?;
            Some(text)
        }
        Some(file) => Some(
            std::fs::read(invocation.session.environment.path(file))
                .map_err(|error| Failure::Message(os_error("open", file, &error)))?,
        ),
    };
    let api = invocation.session.api()?;
    let body = body.map(|text| (JSON, Bytes::from(text)));
    let (_, answer) = api.call(method, path, body, JSON).await?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    invocation.print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn a_server_that_is_named_is_not_asked() {
        for (given, expected) in [("/x", "/x"), ("https://a.example/x?y", "/x?y"), ("http://a", "/")] {
            assert_eq!(checked(given).expect(given), expected);
        }
    }

    #[test]
    fn what_has_no_meaning_beside_a_path_is_refused() {
        for (line, expected) in [
            ("--raw /x -f y", ""),
            ("--raw x", "error: --raw must be a valid URL path: parse \"x\": invalid URI for request"),
            ("--raw /x -o yaml", "error: --raw and --output are mutually exclusive"),
            ("--raw /x -f a -f b", "error: --raw can only use a single local file or stdin"),
            ("--raw /x -f https://a", "error: --raw cannot read from a url"),
            ("--raw /x -l a=b", "error: --raw and --selector (-l) are mutually exclusive"),
            ("--raw /x -f d -R", "error: --raw and --recursive are mutually exclusive"),
            ("--raw /x --edit -o yaml", "error: --raw and --edit are mutually exclusive"),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let flags = flags::parse(super::super::create::COMMAND.flags, &words).expect(line);
            let found = wanted(&flags).err().map(|error| error.render()).unwrap_or_default();
            assert_eq!(found, expected, "{line}");
        }
    }
}
