//! `s3://BUCKET/PREFIX`.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A bucket, and what the names of all objects of interest in it begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub bucket: String,
    /// Without slashes at either end; it may be empty.
    pub prefix: String,
}

impl Address {
    /// Whether a text is meant to be one.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("s3://")
    }

    /// The name of an object below it.
    pub fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    /// What is above it, and its own last name.
    pub fn split(&self) -> Option<(Self, &str)> {
        let (above, name) = self.prefix.rsplit_once('/').unwrap_or(("", &self.prefix));
        let above = Self { bucket: self.bucket.clone(), prefix: above.to_owned() };
        (!name.is_empty()).then_some((above, name))
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Address(text.to_owned());
        let rest = text.strip_prefix("s3://").ok_or_else(wrong)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let sane = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
        let prefix = prefix.trim_matches('/');
        let empty = !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | ".."));
        if bucket.is_empty() || !bucket.chars().all(sane) || empty {
            return Err(wrong());
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "s3://{}{slash}{}", self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_and_a_prefix() {
        let read = |text: &str| text.parse::<Address>().map(|address| (address.bucket, address.prefix)).ok();
        let is = |bucket: &str, prefix: &str| Some((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(read("s3://backups"), is("backups", ""));
        assert_eq!(read("s3://backups/"), is("backups", ""));
        assert_eq!(read("s3://backups/one/two/"), is("backups", "one/two"));
        for wrong in ["", "s3://", "s3:///a", "https://a/b", "s3://a?b", "s3://a/b/../c", "s3://a/b//c"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_are_below_the_prefix() {
        let address: Address = "s3://b/p/q".parse().expect("an address");
        assert_eq!((address.key("x"), address.to_string()), ("p/q/x".to_owned(), "s3://b/p/q".to_owned()));
        let (above, name) = address.split().expect("a name");
        assert_eq!((above.to_string(), name), ("s3://b/p".to_owned(), "q"));
        let bare: Address = "s3://b".parse().expect("an address");
        assert_eq!((bare.key("x"), bare.split()), ("x".to_owned(), None));
    }
}
