//! A request's query parameters, for every server that reads them.

use std::num::IntErrorKind;

use percent_encoding::percent_decode_str;

use crate::status::ApiError;

/// The parameters in their order; the first of a name counts, as in Go's `url.Values.Get`.
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

    /// The first value of this name; absent is empty.
    pub fn get(&self, name: &str) -> &str {
        self.pairs.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// Every parameter, in order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    pub fn push(&mut self, name: &str, value: &str) {
        self.pairs.push((name.to_owned(), value.to_owned()));
    }

    /// The parameters as a query string.
    pub fn to_text(&self) -> String {
        let encode =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        let pairs: Vec<String> =
            self.pairs.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
        pairs.join("&")
    }

    /// Every value of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether the parameter is there at all.
    pub fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(key, _)| key == name)
    }

    /// A truth value of the streaming requests, which only know `1`.
    pub fn one(&self, name: &str) -> bool {
        self.get(name) == "1"
    }

    /// A truth value as upstream's conversion reads it: present and empty is true, `false` and `0` are false, anything else is true.
    pub fn flag(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.get(name).to_ascii_lowercase().as_str(), "false" | "0")
    }

    /// A whole number, or upstream's complaint.
    pub fn int(&self, name: &str) -> Result<Option<i64>, ApiError> {
        if !self.has(name) {
            return Ok(None);
        }
        let text = self.get(name);
        text.parse::<i64>().map(Some).map_err(|error| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_the_first_counts() {
        let query = Query::parse("a=1&a=2&b=x%3Dy+z&watch&no=false&limit=q");
        assert_eq!(query.get("a"), "1");
        assert_eq!(query.all("a").count(), 2);
        assert_eq!(query.get("b"), "x=y z");
        assert!(query.flag("watch") && !query.flag("no") && !query.flag("absent"));
        assert!(query.int("limit").is_err());
        let message = |raw: &str| Query::parse(raw).int("n").map_err(|error| error.message);
        assert_eq!(message("m=1"), Ok(None));
        assert_eq!(message("n="), Err("strconv.ParseInt: parsing \"\": invalid syntax".to_owned()));
        assert_eq!(
            message("n=99999999999999999999"),
            Err("strconv.ParseInt: parsing \"99999999999999999999\": value out of range".to_owned())
        );
        let query = Query::parse("command=sh&command=-c&command=echo+a%26b&input=1&tty=0&follow");
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "echo a&b"]);
        assert!(query.one("input") && !query.one("tty") && !query.one("follow"));
    }
}
