//! The page that people look at a cluster with: a handful of files, compiled in, that the API server hands out at `/ui/`.
//!
//! The files hold no datum. Everything that the page shows it asks of the API with the credentials of whoever looks, so it can do nothing
//! that they could not do with kubectl. They are plain ES modules: what is in `assets` is what the browser runs, without a build step; a
//! comment at the top of each says what it owns. Others' files are in `assets/vendor`, with their licences.
//!
//! Whatever users wrote, names, labels, logs, is put into the document as text. Should a file ever forget that, the policy in [`HEADERS`]
//! runs no script but these files, loads nothing from elsewhere and sends nothing anywhere else.

/// A file and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its path below `/ui/`.
    pub path: &'static str,
    pub content_type: &'static str,
    pub body: &'static [u8],
}

macro_rules! files {
    ($($path:literal)*) => {
        /// All files; the first is the page itself.
        pub const FILES: &[File] = &[$(File {
            path: $path,
            content_type: content_type($path),
            body: include_bytes!(concat!("../assets/", $path)),
        }),*];
    };
}

files! {
    "index.html" "base.css" "views.css" "mark.svg"
    "main.js" "api.js" "apply.js" "code.js" "diff.js" "dom.js" "edit.js" "events.js" "feed.js" "format.js" "frame.js" "frames.js"
    "graph.js" "health.js" "help.js" "history.js" "keyboard.js" "kinds.js" "logs.js" "managed.js" "metrics.js" "moment.js" "object.js"
    "overview.js" "palette.js" "past.js" "place.js" "policy.js" "route.js" "screen.js" "session.js" "signin.js" "slider.js" "story.js"
    "table.js" "terminal.js" "theme.js" "tree.js" "use.js" "waterfall.js" "widgets.js" "write.js" "yaml.js"
    "vendor/LICENSES" "vendor/hooks.js" "vendor/htm.js" "vendor/preact.js" "vendor/signals-core.js" "vendor/signals.js"
    "vendor/uplot.css" "vendor/uplot.js"
}

/// Headers of every file. `require-trusted-types-for` makes the browser refuse to read text as markup, whoever asks for it.
pub const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    // Asked again each time, and answered with 304 while it is the same server.
    ("cache-control", "no-cache"),
];

/// The file at a path below `/ui/`; an empty path is the page itself.
pub fn find(path: &str) -> Option<&'static File> {
    let path = if path.is_empty() { FILES[0].path } else { path };
    FILES.iter().find(|file| file.path == path)
}

/// By the end of the name; a licence is text.
const fn content_type(path: &str) -> &'static str {
    match path.as_bytes() {
        [.., b'.', b'h', b't', b'm', b'l'] => "text/html; charset=utf-8",
        [.., b'.', b'c', b's', b's'] => "text/css; charset=utf-8",
        [.., b'.', b'j', b's'] => "text/javascript; charset=utf-8",
        [.., b'.', b's', b'v', b'g'] => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let entry = entry.expect("an entry");
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                walk(&entry.path(), &format!("{name}/"), found);
            } else {
                found.push(name);
            }
        }
    }

    #[test]
    fn every_asset_is_served_and_all_of_them_are_small() {
        let mut found = Vec::new();
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets"), "", &mut found);
        found.sort();
        let mut listed: Vec<&str> = FILES.iter().map(|file| file.path).collect();
        listed.sort_unstable();
        assert_eq!(listed, found);
        let size: usize = FILES.iter().map(|file| file.body.len()).sum();
        assert!(size < 300_000, "{size} bytes");
        let page = find("").expect("the page");
        assert_eq!((page.path, page.content_type), ("index.html", "text/html; charset=utf-8"));
        assert_eq!(find("main.js").map(|file| file.content_type), Some("text/javascript; charset=utf-8"));
        assert_eq!((find("../src/lib.rs"), find("nothing")), (None, None));
    }

    /// Own files: what they own is said at the top, imports name files that are there, and nothing makes markup of text.
    #[test]
    fn modules_say_what_they_own_and_import_only_each_other() {
        for file in FILES.iter().filter(|file| file.path.ends_with(".js")) {
            let text = std::str::from_utf8(file.body).expect("text");
            let folder = file.path.rsplit_once('/').map(|(folder, _)| format!("{folder}/")).unwrap_or_default();
            for quote in ["from '", "from\""] {
                for (at, _) in text.match_indices(quote) {
                    let name = text[at + quote.len()..].split(['\'', '"']).next().expect("a name");
                    let path = format!("{folder}{}", name.trim_start_matches("./"));
                    assert!(name.starts_with("./") && find(&path).is_some(), "{}: {name}", file.path);
                }
            }
            if !folder.is_empty() {
                continue;
            }
            assert!(text.starts_with("// "), "{} begins with what it owns", file.path);
            for forbidden in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"]
            {
                assert!(!text.contains(forbidden), "{}: {forbidden}", file.path);
            }
        }
    }

    #[test]
    fn the_page_has_no_script_and_no_style_of_its_own() {
        let page = std::str::from_utf8(find("").expect("the page").body).expect("text");
        assert!(!page.contains("<style") && !page.contains("style=") && !page.contains("onload="), "{page}");
        for (at, _) in page.match_indices("<script") {
            assert!(page[at..].starts_with("<script type=\"module\" src=\""), "{page}");
        }
        // What modules import in turn is fetched with the first of them.
        let links: Vec<&str> = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(links.iter().all(|link| find(link).is_some()), "{links:?}");
        let loaded = |name: &str| links.contains(&name) || page.contains(&format!("src=\"{name}\""));
        let main = std::str::from_utf8(find("main.js").expect("a file").body).expect("text");
        for file in FILES.iter().filter(|file| file.path.ends_with(".js")) {
            assert!(loaded(file.path) || main.contains(&format!("'./{}'", file.path)), "{} is found late", file.path);
        }
        let policy = HEADERS.iter().find(|(name, _)| *name == "content-security-policy").expect("a policy").1;
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
    }
}
