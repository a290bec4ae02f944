//! The pages of a pod, a Service or a node, seen through the API server: their links must lead back through it.
//!
//! A page that links to `/style.css` means its own server's. Behind the proxy that is another place, so links that begin
//! with a slash get the proxy's path in front of them, in the `Location` of an answer and in the tags of HTML. Which tags
//! and attributes hold links is what HTML says; upstream's proxy looks at the same ones. All else of a page goes through
//! as it is, piece by piece: a page is never held as a whole.

use std::io::Write as _;

use bytes::Bytes;
use flate2::write::{DeflateDecoder, GzDecoder};

/// Which attributes of which tags are links.
const LINKS: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];
/// Tags whose content is text up to their own end.
const RAW: [&str; 9] = ["iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "title", "xmp"];
/// A tag that is longer is not looked into, nor is anything after it.
const MAX_TAG: usize = 16 << 10;
/// How much of a packed page is unpacked at once: it may become a thousand times as much.
const STEP: usize = 1 << 10;

/// How the links of one answer change.
#[derive(Debug, Clone)]
pub struct Links {
    /// The path that leads to the other side's root, without a slash at its end.
    pub prefix: String,
    /// The other side, as `address:port`.
    pub backend: String,
    /// The name that the client calls this server by.
    pub host: String,
}

impl Links {
    /// The link as the client must follow it; `None` if it stays as it is.
    pub fn rewrite(&self, link: &str) -> Option<String> {
        if link.chars().any(char::is_control) {
            return None;
        }
        let end = link.find(['?', '#']).unwrap_or(link.len());
        let (place, rest) = link.split_at(end);
        let (before, place) = split_scheme(place);
        let (host, path) = match place.strip_prefix("//") {
            Some(place) => place.split_at(place.find('/').unwrap_or(place.len())),
            None => ("", place),
        };
        let elsewhere = !host.is_empty() && host != self.backend && host != self.host;
        if elsewhere || !path.starts_with('/') {
            return None;
        }
        // A link that names the server it came by is right about that; one that names the other side is not.
        let origin = if !host.is_empty() && host == self.host { format!("{before}//{host}") } else { String::new() };
        if path.starts_with(&self.prefix) {
            return (!host.is_empty() || !before.is_empty()).then(|| format!("{origin}{path}{rest}"));
        }
        let slash = if path.ends_with('/') { "/" } else { "" };
        Some(format!("{origin}{}{slash}{rest}", joined(&self.prefix, path)))
    }
}

/// `http:` and what follows; nothing and everything where there is no scheme.
fn split_scheme(text: &str) -> (&str, &str) {
    match text.find([':', '/']) {
        Some(at) if text.as_bytes()[at] == b':' && at > 0 => {
            let mut scheme = text[..at].chars();
            let first = scheme.next().is_some_and(|letter| letter.is_ascii_alphabetic());
            let rest = scheme.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'));
            if first && rest { text.split_at(at + 1) } else { ("", text) }
        }
        _ => ("", text),
    }
}

/// Two paths as one, without `.` and `..`, which must not lead out of the root.
pub fn joined(prefix: &str, path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in prefix.split('/').chain(path.split('/')) {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// What is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Text, in which tags begin.
    Text,
    /// The content of a tag that has only text in it.
    Raw(&'static str),
    /// Something that ends with these bytes.
    Until(&'static [u8]),
    /// What is not looked into.
    Rest,
}

/// A page on its way.
pub struct Page {
    links: Links,
    unpacker: Unpacker,
    state: State,
    /// What came and is not settled yet: at most the beginning of a tag.
    pending: Vec<u8>,
}

enum Unpacker {
    None,
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Deflate(Box<DeflateDecoder<Vec<u8>>>),
}

impl Page {
    /// Before its first piece, by its `Content-Encoding`. `None` for one that is not understood: such a page goes through as
    /// it is. A packed page comes out unpacked.
    pub fn new(links: Links, encoding: &str) -> Option<Self> {
        let unpacker = match encoding {
            "" => Unpacker::None,
            "gzip" => Unpacker::Gzip(Box::new(GzDecoder::new(Vec::new()))),
            "deflate" => Unpacker::Deflate(Box::new(DeflateDecoder::new(Vec::new()))),
            _ => return None,
        };
        Some(Self { links, unpacker, state: State::Text, pending: Vec::new() })
    }

    /// Takes a piece in, and gives out what is settled.
    pub fn push(&mut self, piece: &[u8]) -> std::io::Result<Bytes> {
        let mut out = Vec::with_capacity(piece.len());
        for part in piece.chunks(STEP) {
            match &mut self.unpacker {
                Unpacker::None => self.plain(part, &mut out),
                Unpacker::Gzip(unpacker) => {
                    unpacker.write_all(part)?;
                    let part = std::mem::take(unpacker.get_mut());
                    self.plain(&part, &mut out);
                }
                Unpacker::Deflate(unpacker) => {
                    unpacker.write_all(part)?;
                    let part = std::mem::take(unpacker.get_mut());
                    self.plain(&part, &mut out);
                }
            }
        }
        Ok(Bytes::from(out))
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self) -> std::io::Result<Bytes> {
        let mut out = Vec::new();
        let last = match &mut self.unpacker {
            Unpacker::None => Vec::new(),
            Unpacker::Gzip(unpacker) => {
                unpacker.try_finish()?;
                std::mem::take(unpacker.get_mut())
            }
            Unpacker::Deflate(unpacker) => {
                unpacker.try_finish()?;
                std::mem::take(unpacker.get_mut())
            }
        };
        self.plain(&last, &mut out);
        out.append(&mut self.pending);
        Ok(Bytes::from(out))
    }

    fn plain(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(piece);
        let mut rest = bytes.as_slice();
        while self.step(&mut rest, out) {}
        self.pending = rest.to_vec();
    }

    /// Whether there is more to do with what has come so far.
    fn step(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> bool {
        // Where what is read now ends, or how much of it certainly belongs to it.
        let (end, kept) = match self.state {
            State::Text => return self.text(rest, out),
            State::Rest => (None, 0),
            State::Until(end) => (find(rest, end).map(|at| at + end.len()), end.len() - 1),
            State::Raw(tag) => (end_of_raw(rest, tag), tag.len() + 1),
        };
        match end {
            Some(end) => {
                self.state = State::Text;
                give(rest, end, out)
            }
            None => {
                give(rest, rest.len().saturating_sub(kept), out);
                false
            }
        }
    }

    fn text(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> bool {
        let Some(at) = rest.iter().position(|byte| *byte == b'<') else {
            give(rest, rest.len(), out);
            return false;
        };
        give(rest, at, out);
        match rest.get(1) {
            None => false,
            Some(b'!') if rest.len() < 4 => false,
            Some(b'!') => {
                self.state = State::Until(if rest.starts_with(b"<!--") { b"-->" } else { b">" });
                give(rest, 2, out)
            }
            Some(b'/' | b'?') => {
                self.state = State::Until(b">");
                give(rest, 2, out)
            }
            Some(letter) if letter.is_ascii_alphabetic() => match Tag::read(rest) {
                Some(tag) => {
                    self.state = RAW.iter().find(|raw| **raw == tag.name).map_or(State::Text, |raw| State::Raw(raw));
                    out.extend(self.written(&tag, rest));
                    *rest = &rest[tag.end..];
                    true
                }
                None if rest.len() > MAX_TAG => {
                    self.state = State::Rest;
                    true
                }
                None => false,
            },
            Some(_) => give(rest, 1, out),
        }
    }

    /// A tag with its links as they must be.
    fn written(&self, tag: &Tag, bytes: &[u8]) -> Vec<u8> {
        let links = LINKS.iter().find(|(name, _)| *name == tag.name).map_or(&[][..], |(_, links)| links);
        let mut out = Vec::with_capacity(tag.end);
        let mut written = 0;
        for (_, value) in tag.attributes.iter().filter(|(name, _)| links.contains(&name.as_str())) {
            let link = std::str::from_utf8(&bytes[value.clone()]).ok().and_then(|link| self.links.rewrite(link));
            if let Some(link) = link {
                out.extend_from_slice(&bytes[written..value.start]);
                out.extend_from_slice(link.as_bytes());
                written = value.end;
            }
        }
        out.extend_from_slice(&bytes[written..tag.end]);
        out
    }
}

/// Gives out so many bytes as they are. Always true: there may be more to do.
fn give(rest: &mut &[u8], bytes: usize, out: &mut Vec<u8>) -> bool {
    let (given, left) = rest.split_at(bytes);
    out.extend_from_slice(given);
    *rest = left;
    true
}

/// Where the end tag of a raw text begins.
fn end_of_raw(bytes: &[u8], tag: &str) -> Option<usize> {
    let is_end = |window: &[u8]| window.starts_with(b"</") && window[2..].eq_ignore_ascii_case(tag.as_bytes());
    // Nothing ends plain text.
    bytes.windows(tag.len() + 2).position(is_end).filter(|_| tag != "plaintext")
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A start tag: its name, where it ends, and where the values of its attributes are.
struct Tag {
    name: String,
    end: usize,
    attributes: Vec<(String, std::ops::Range<usize>)>,
}

impl Tag {
    /// From its `<`. `None` while its end has not come.
    fn read(bytes: &[u8]) -> Option<Self> {
        let until = |from: usize, ends: &dyn Fn(u8) -> bool| {
            bytes[from..].iter().position(|byte| ends(*byte)).map(|length| from + length)
        };
        let space = |byte: u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0c);
        let lower = |range: std::ops::Range<usize>| String::from_utf8_lossy(&bytes[range]).to_ascii_lowercase();
        let mut at = until(1, &|byte| space(byte) || matches!(byte, b'/' | b'>'))?;
        let name = lower(1..at);
        let mut attributes = Vec::new();
        loop {
            at = until(at, &|byte| !space(byte) && byte != b'/')?;
            if bytes[at] == b'>' {
                return Some(Self { name, end: at + 1, attributes });
            }
            // A name may begin with what ends one.
            let end = until(at + 1, &|byte| space(byte) || matches!(byte, b'/' | b'>' | b'='))?;
            let key = lower(at..end);
            at = until(end, &|byte| !space(byte))?;
            if bytes[at] != b'=' {
                continue;
            }
            at = until(at + 1, &|byte| !space(byte))?;
            let (value, next) = match bytes[at] {
                quote @ (b'"' | b'\'') => {
                    let end = until(at + 1, &|byte| byte == quote)?;
                    (at + 1..end, end + 1)
                }
                _ => {
                    let end = until(at, &|byte| space(byte) || byte == b'>')?;
                    (at..end, end)
                }
            };
            attributes.push((key, value));
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        Links { prefix: "/api/p/proxy".to_owned(), backend: "10.0.0.1:80".to_owned(), host: "api:6443".to_owned() }
    }

    #[test]
    fn links_lead_back_through_the_proxy() {
        for (link, expect) in [
            ("/", Some("/api/p/proxy/")),
            ("/a", Some("/api/p/proxy/a")),
            ("/a/b/?x=/y#z", Some("/api/p/proxy/a/b/?x=/y#z")),
            ("/a/../../../etc", Some("/api/etc")),
            ("/api/p/proxy/a", None),
            ("a", None),
            ("../a", None),
            ("#a", None),
            ("?a=/b", None),
            ("mailto:a@example.com", None),
            ("http://example.com/a", None),
            ("//example.com/a", None),
            ("http://10.0.0.1:80/a", Some("/api/p/proxy/a")),
            ("//10.0.0.1:80/a", Some("/api/p/proxy/a")),
            ("http://10.0.0.1:80/api/p/proxy/a", Some("/api/p/proxy/a")),
            ("https://api:6443/a", Some("https://api:6443/api/p/proxy/a")),
            ("http://10.0.0.1:80", None),
            ("/a\nb", None),
        ] {
            assert_eq!(links().rewrite(link).as_deref(), expect, "{link}");
        }
    }

    /// Whatever pieces it comes in.
    fn check(page: &str, expect: &str) {
        for size in [1, 2, 3, 7, page.len().max(1)] {
            let mut read = Page::new(links(), "").expect("a page");
            let mut out = Vec::new();
            for piece in page.as_bytes().chunks(size) {
                out.extend(read.push(piece).expect("plain"));
            }
            out.extend(read.finish().expect("plain"));
            assert_eq!(String::from_utf8_lossy(&out), expect, "in pieces of {size}");
        }
    }

    #[test]
    fn pages_keep_everything_but_their_links() {
        check("<a href=\"/rewriteme\">test</a>", "<a href=\"/api/p/proxy/rewriteme\">test</a>");
        check(
            "<A class='x' HREF = '/a' ><img src=/i.png><br/>",
            "<A class='x' HREF = '/api/p/proxy/a' ><img src=/api/p/proxy/i.png><br/>",
        );
        for same in [
            "",
            "1 < 2 and <",
            "<a href=\"b\" title=\"/x\">",
            "<!-- <a href=\"/x\"> --><!doctype html><?php <a ?>",
            "<div href=\"/x\"></a href=\"/x\">",
            "<script>if (a<b) '<a href=\"/x\">'</script >",
            "<plaintext></plaintext><a href=\"/x\">",
            "<a href=\"/never closed",
        ] {
            check(same, same);
        }
        check("<textarea></TEXTAREA><a href=\"/x\">", "<textarea></TEXTAREA><a href=\"/api/p/proxy/x\">");
        check("<script src=\"/x\"></script>", "<script src=\"/api/p/proxy/x\"></script>");
    }

    #[test]
    fn a_tag_without_an_end_is_not_collected_for_ever() {
        let mut page = Page::new(links(), "").expect("a page");
        let given: usize =
            (0..1000).map(|_| page.push(&[b"<a title=\"", &[b'x'; 1000][..]].concat()).expect("plain").len()).sum();
        assert!(given > 900_000 && page.pending.len() <= MAX_TAG + STEP, "{given}");
    }

    #[test]
    fn packed_pages_are_unpacked() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"<a href=\"/x\">").expect("packed");
        let packed = gzip.finish().expect("packed");
        let mut page = Page::new(links(), "gzip").expect("a page");
        let mut out: Vec<u8> = Vec::new();
        for piece in packed.chunks(5) {
            out.extend(page.push(piece).expect("a piece"));
        }
        out.extend(page.finish().expect("the end"));
        assert_eq!(out, b"<a href=\"/api/p/proxy/x\">");
        assert!(Page::new(links(), "br").is_none());
        assert!(Page::new(links(), "gzip").expect("a page").push(b"not packed at all").is_err());
    }
}
