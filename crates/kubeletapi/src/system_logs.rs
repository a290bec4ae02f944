//! `/logs/`: the machine's own log files, listed and shown as Go's file server does.
//!
//! Links are followed as long as they stay below the directory: whoever may put a link there, such as a pod with the directory as
//! a volume, cannot show other files of the node by it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue, LAST_MODIFIED, LOCATION};
use http::{HeaderName, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::sync::OwnedSemaphorePermit;

use super::answer::{self, Answer};

/// Entries of a directory that are listed at most.
const ENTRIES: usize = 10_000;
/// What is read of a file at once.
const PIECE: usize = 64 << 10;
/// What of a file decides about its type.
const SNIFFED: usize = 512;
/// What a path in a link must not hold as it is.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Answers for a decoded path below the directory; no directory is an endpoint that is switched off. The permit is held while a
/// file is being sent.
pub async fn answer(root: Option<&Path>, path: String, permit: OwnedSemaphorePermit) -> Answer {
    let Some(root) = root.map(Path::to_owned) else {
        return answer::text(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.\n");
    };
    let looked = tokio::task::spawn_blocking(move || look(&root, &path)).await;
    match looked.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
        Ok(Found::Page(html)) => serving_html(html),
        Ok(Found::Elsewhere(place)) => with(answer::text(StatusCode::MOVED_PERMANENTLY, ""), LOCATION, &place),
        Ok(Found::Content(content)) => send(content, permit),
        Err(error) => {
            let (status, text) = match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => (StatusCode::NOT_FOUND, "404 page not found\n"),
                ErrorKind::PermissionDenied => (StatusCode::FORBIDDEN, "403 Forbidden\n"),
                _ => (StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error\n"),
            };
            answer::text(status, text)
        }
    }
}

/// What a path leads to.
#[derive(Debug)]
enum Found {
    Page(String),
    /// The path that the client should have asked for.
    Elsewhere(String),
    Content(Content),
}

#[derive(Debug)]
struct Content {
    file: File,
    length: u64,
    modified: Option<SystemTime>,
    kind: &'static str,
}

fn look(root: &Path, path: &str) -> std::io::Result<Found> {
    if path == "index.html" || path.ends_with("/index.html") {
        return Ok(Found::Elsewhere("./".to_owned()));
    }
    let clean = clean(path);
    let open = |path: &str| node::mounts::open_inside(root, Path::new(path)).map_err(|error| error.source);
    let file = open(&clean)?;
    let last = clean.rsplit('/').next().unwrap_or_default();
    if file.metadata()?.is_dir() {
        if !path.is_empty() && !path.ends_with('/') {
            return Ok(Found::Elsewhere(format!("{}/", escape(last))));
        }
        return match open(&format!("{clean}/index.html")) {
            Ok(index) => content(index).map(Found::Content),
            Err(_) => listing(&file).map(Found::Page),
        };
    }
    if path.ends_with('/') {
        return Ok(Found::Elsewhere(format!("../{}", escape(last))));
    }
    content(file).map(Found::Content)
}

/// The path without empty parts, `.` and `..`; never above its beginning.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

fn content(mut file: File) -> std::io::Result<Content> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut head = Vec::new();
    (&mut file).take(SNIFFED as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(Content { file, length: about.len(), modified: about.modified().ok(), kind: kind(&head) })
}

/// The type of a file that begins so.
fn kind(head: &[u8]) -> &'static str {
    let binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if head.starts_with(&[0x1f, 0x8b, 0x08]) {
        "application/x-gzip"
    } else if head.iter().any(binary) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}

/// A page with a link to each entry, in the order of their names.
fn listing(dir: &File) -> std::io::Result<String> {
    let mut names: Vec<String> = node::mounts::list_dir(dir)?
        .take(ENTRIES)
        .map(|entry| {
            let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
            format!("{}{slash}", entry.file_name().to_string_lossy())
        })
        .collect();
    names.sort();
    let mut page = String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    for name in names {
        // A colon in the first part would make a scheme of it.
        let dot = if name.contains(':') { "./" } else { "" };
        let _ = writeln!(page, "<a href=\"{dot}{}\">{}</a>", escape(&name), html(&name));
    }
    page.push_str("</pre>\n");
    Ok(page)
}

fn escape(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

fn html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&#34;").replace('\'', "&#39;")
}

fn serving_html(page: String) -> Answer {
    serving::typed(StatusCode::OK, "text/html; charset=utf-8", answer::full(page))
}

/// Sends as much as the file had when it was opened: it may grow meanwhile.
fn send(content: Content, permit: OwnedSemaphorePermit) -> Answer {
    let Content { file, length, modified, kind } = content;
    let file = tokio::fs::File::from_std(file);
    let pieces = futures::stream::try_unfold((file, length, permit), async |(mut file, left, permit)| {
        use tokio::io::AsyncReadExt as _;
        if left == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
        let count = file.read(&mut piece).await?;
        if count == 0 {
            // It was cut short; the client sees that something is missing.
            return Err(ErrorKind::UnexpectedEof.into());
        }
        piece.truncate(count);
        Ok(Some((Frame::data(Bytes::from(piece)), (file, left - count as u64, permit))))
    });
    let answer = serving::typed(StatusCode::OK, kind, StreamBody::new(pieces).boxed_unsync());
    let answer = with(answer, CONTENT_LENGTH, &length.to_string());
    match modified.and_then(|time| Timestamp::try_from(time).ok()) {
        Some(time) => with(answer, LAST_MODIFIED, &time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()),
        None => answer,
    }
}

fn with(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    /// Status, type or place, and body.
    async fn get(root: Option<&Path>, path: &str) -> (u16, String, String) {
        let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let answer = answer(root, path.to_owned(), permit).await;
        let header = |name: &HeaderName| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let about = header(&LOCATION).or_else(|| header(&http::header::CONTENT_TYPE)).unwrap_or_default();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, about, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn logs_are_listed_and_shown_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let (root, text) = (dir.path().join("log"), "text/plain; charset=utf-8");
        std::fs::create_dir_all(root.join("apt")).unwrap();
        let long = "line\n".repeat(100_000);
        std::fs::write(root.join("a&b: 1.log"), &long).unwrap();
        std::fs::write(root.join("old.gz"), [0x1f, 0x8b, 0x08, 0]).unwrap();
        std::fs::write(root.join("apt/history"), "h").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("out")).unwrap();
        std::os::unix::fs::symlink("apt/history", root.join("in")).unwrap();
        let page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
            <a href=\"./a&b:%201.log\">a&amp;b: 1.log</a>\n<a href=\"apt/\">apt/</a>\n<a href=\"in\">in</a>\n\
            <a href=\"old.gz\">old.gz</a>\n<a href=\"out\">out</a>\n</pre>\n";
        for (path, status, about, body) in [
            ("", 200, "text/html; charset=utf-8", page),
            ("a&b: 1.log", 200, text, long.as_str()),
            ("old.gz", 200, "application/x-gzip", "\u{1f}\u{fffd}\u{8}\0"),
            ("apt", 301, "apt/", ""),
            ("apt/history", 200, text, "h"),
            ("apt/history/", 301, "../history", ""),
            ("apt/../in", 200, text, "h"),
            ("in", 200, text, "h"),
            ("out", 404, text, "404 page not found\n"),
            ("../secret", 404, text, "404 page not found\n"),
            ("absent", 404, text, "404 page not found\n"),
            ("apt/index.html", 301, "./", ""),
        ] {
            let answered = get(Some(&root), path).await;
            assert_eq!(answered, (status, about.to_owned(), body.to_owned()), "{path}");
        }
        assert_eq!(get(None, "").await, (405, text.to_owned(), "logs endpoint is disabled.\n".to_owned()));
    }
}
