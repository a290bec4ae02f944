//! Paths as `cp` reads them: a container's have slashes, whatever the machine here has.

/// A file here, or in a pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Spec {
    pub namespace: String,
    /// Empty for a file here.
    pub pod: String,
    pub path: String,
}

impl Spec {
    /// `[[namespace/]pod:]path`.
    pub fn parse(text: &str) -> Result<Self, String> {
        const ODD: &str = "filespec must match the canonical format: [[namespace/]pod:]file/path";
        let Some((place, path)) = text.split_once(':') else {
            return Ok(Self { namespace: String::new(), pod: String::new(), path: without_slash(text) });
        };
        let (namespace, pod) = match place.split('/').collect::<Vec<_>>()[..] {
            [""] => return Err(ODD.to_owned()),
            [pod] => ("", pod),
            [namespace, pod] => (namespace, pod),
            _ => return Err(ODD.to_owned()),
        };
        let path = without_slash(&path.replace('\\', "/"));
        Ok(Self { namespace: namespace.to_owned(), pod: pod.to_owned(), path })
    }

    pub fn is_remote(&self) -> bool {
        !self.pod.is_empty()
    }
}

fn without_slash(path: &str) -> String {
    match path.strip_suffix('/') {
        Some(shorter) if !shorter.is_empty() => shorter.to_owned(),
        _ => path.to_owned(),
    }
}

/// The shortest name of the same path: without dots, double slashes and `..` that can be resolved.
pub fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&"..") | None if rooted => {}
                Some(&"..") | None => parts.push(".."),
                Some(_) => {
                    parts.pop();
                }
            },
            part => parts.push(part),
        }
    }
    match (rooted, parts.join("/")) {
        (true, rest) => format!("/{rest}"),
        (false, rest) if rest.is_empty() => ".".to_owned(),
        (false, rest) => rest,
    }
}

pub fn join(directory: &str, name: &str) -> String {
    clean(&if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") })
}

/// The last part of a clean path.
pub fn base(path: &str) -> &str {
    if path == "/" { "/" } else { path.rsplit('/').next().unwrap_or(path) }
}

/// What stands before the last part of a clean path.
pub fn directory(path: &str) -> &str {
    match path.rsplit_once('/') {
        None => ".",
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
    }
}

/// Without what leads out of a directory.
pub fn without_shortcuts(path: &str) -> String {
    let mut rest = path;
    while let Some(shorter) = rest.strip_prefix("../") {
        rest = shorter;
    }
    while let Some(shorter) = rest.strip_prefix("..\\") {
        rest = shorter;
    }
    if matches!(rest, "." | "..") {
        return String::new();
    }
    rest.strip_prefix(['/', '\\']).unwrap_or(rest).to_owned()
}

/// Where a file of an archive belongs below the destination; nothing if it would be outside.
pub fn below(rest: &str) -> Option<String> {
    // Slashes of the other kind are slashes, too: one at the beginning would lead to the root.
    let relative = clean(rest.replace('\\', "/").trim_start_matches('/'));
    let leads_out = relative == ".." || relative.starts_with("../");
    (!leads_out).then_some(relative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_name_files_here_and_there() {
        let spec = |namespace: &str, pod: &str, path: &str| {
            Ok(Spec { namespace: namespace.to_owned(), pod: pod.to_owned(), path: path.to_owned() })
        };
        assert_eq!(Spec::parse("/tmp/a/"), spec("", "", "/tmp/a"));
        assert_eq!(Spec::parse("p:/tmp/a"), spec("", "p", "/tmp/a"));
        assert_eq!(Spec::parse("n/p:tmp\\a/"), spec("n", "p", "tmp/a"));
        assert_eq!(Spec::parse("p:/"), spec("", "p", "/"));
        assert_eq!(Spec::parse("p:a:b"), spec("", "p", "a:b"));
        assert!(Spec::parse(":a").is_err());
        assert!(Spec::parse("a/b/c:d").is_err());
    }

    #[test]
    fn paths_are_cleaned_as_go_cleans_them() {
        for (path, expected) in [
            ("", "."),
            ("/", "/"),
            ("a//b/./c", "a/b/c"),
            ("a/../b", "b"),
            ("../a", "../a"),
            ("/../a", "/a"),
            ("a/../..", ".."),
            ("/a/..", "/"),
            ("./a/", "a"),
            ("../../a/../b", "../../b"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
        assert_eq!((base("/a/b"), directory("/a/b"), directory("b"), directory("/b")), ("b", "/a", ".", "/"));
        assert_eq!(join("/a", "b"), "/a/b");
    }

    #[test]
    fn nothing_leads_out_of_the_destination() {
        for (rest, expected) in [
            ("", Some(".")),
            ("/a/b", Some("a/b")),
            ("/../../etc/x", None),
            ("/a/../../x", None),
            ("/a/../x", Some("x")),
            ("\\..\\..\\x", None),
            ("..", None),
            ("/..a", Some("..a")),
            ("//etc/x", Some("etc/x")),
        ] {
            assert_eq!(below(rest).as_deref(), expected, "{rest}");
        }
        assert_eq!(without_shortcuts("../../a/b"), "a/b");
        assert_eq!(without_shortcuts(".."), "");
    }
}
