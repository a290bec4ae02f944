//! Files that a proxy serves beside the API.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{Response, StatusCode};

/// What is below a directory under a path; nothing leads out of it.
pub fn answer(directory: &Path, path: &str) -> Response<Bytes> {
    let Some(file) = below(directory, path) else { return missing() };
    let Ok(about) = file.metadata() else { return missing() };
    if !about.is_dir() {
        return whole(&file);
    }
    if !path.is_empty() && !path.ends_with('/') {
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut answer = Response::new(Bytes::new());
        *answer.status_mut() = StatusCode::MOVED_PERMANENTLY;
        if let Ok(location) = format!("{name}/").parse() {
            answer.headers_mut().insert(LOCATION, location);
        }
        return answer;
    }
    let index = file.join("index.html");
    if index.is_file() { whole(&index) } else { listing(&file) }
}

fn below(directory: &Path, path: &str) -> Option<PathBuf> {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
    let mut file = directory.to_owned();
    for part in decoded.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." || part.contains('\0') {
            return None;
        }
        file.push(part);
    }
    Some(file)
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    answer
}

pub fn missing() -> Response<Bytes> {
    text(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n")
}

pub fn moved(to: &str) -> Response<Bytes> {
    let mut answer = text(
        StatusCode::MOVED_PERMANENTLY,
        "text/html; charset=utf-8",
        format!("<a href=\"{to}\">Moved Permanently</a>.\n\n"),
    );
    if let Ok(place) = to.parse() {
        answer.headers_mut().insert(http::header::LOCATION, place);
    }
    answer
}

pub fn forbidden() -> Response<Bytes> {
    text(StatusCode::FORBIDDEN, "text/plain; charset=utf-8", "Forbidden\n")
}

pub fn failed(why: &str) -> Response<Bytes> {
    text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", format!("{why}\n"))
}

fn whole(file: &Path) -> Response<Bytes> {
    let kind = match file.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "txt" => "text/plain; charset=utf-8",
        "xml" => "text/xml; charset=utf-8",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    };
    match std::fs::read(file) {
        Ok(bytes) => text(StatusCode::OK, kind, bytes),
        Err(_) => missing(),
    }
}

fn listing(directory: &Path) -> Response<Bytes> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| {
            let slash = if entry.path().is_dir() { "/" } else { "" };
            format!("{}{slash}", entry.file_name().to_string_lossy())
        })
        .collect();
    names.sort();
    let mut page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in names {
        let link = percent_encoding::utf8_percent_encode(&name, percent_encoding::CONTROLS).to_string();
        let shown = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
        page += &format!("<a href=\"{}\">{shown}</a>\n", link.replace('"', "%22"));
    }
    page += "</pre>\n";
    text(StatusCode::OK, "text/html; charset=utf-8", page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_served() {
        let directory = tempfile::tempdir().expect("a directory");
        let www = directory.path().join("www");
        std::fs::create_dir_all(www.join("sub")).expect("directories");
        std::fs::write(directory.path().join("secret"), "s").expect("a file");
        std::fs::write(www.join("a.txt"), "a").expect("a file");
        assert_eq!(answer(&www, "a.txt").body(), "a");
        for path in ["../secret", "%2e%2e/secret", "sub/../../secret", "nope"] {
            assert_eq!(answer(&www, path).status(), 404, "{path}");
        }
        assert_eq!(answer(&www, "sub").headers()["location"], "sub/");
        let page = answer(&www, "");
        assert!(
            String::from_utf8_lossy(page.body()).contains("<a href=\"a.txt\">a.txt</a>\n<a href=\"sub/\">sub/</a>")
        );
    }
}
