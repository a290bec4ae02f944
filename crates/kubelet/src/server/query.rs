//! A request's path segments and query parameters, decoded.

use percent_encoding::percent_decode_str;

/// The parameters in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Reads a raw query string.
    pub fn parse(raw: &str) -> Self {
        // In a query a plus is a blank.
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = raw
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (decode(key), decode(value)))
            .collect();
        Self { pairs }
    }

    /// The first value of this name, if the parameter is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Every value of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A truth value as API objects read it from a query: there and neither `false` nor `0`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// A truth value of the streaming requests, which only know `1`.
    pub fn one(&self, name: &str) -> bool {
        self.get(name) == Some("1")
    }
}

/// The segments of a path, decoded. An empty last one, as of `/pods/`, does not count.
pub fn segments(path: &str) -> Vec<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/').map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_segments_are_decoded() {
        let query = Query::parse("command=sh&command=-c&command=echo+a%26b&input=1&tty=0&follow&x");
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "echo a&b"]);
        assert!(query.one("input") && !query.one("tty") && !query.one("follow"));
        assert!(query.flag("follow") && !query.flag("tty") && !query.flag("absent"));
        assert_eq!(segments("/exec/ns/a%2Fb/c/"), ["exec", "ns", "a/b", "c"]);
        assert_eq!(segments("/"), [""]);
    }
}
