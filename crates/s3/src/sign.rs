//! Signature Version 4 of AWS, as S3 has it. Pure: the time is handed in.
//!
//! A request becomes a text of which every byte is fixed (method, path, query, some headers, the hash of the body), and that is signed with a key that is good for
//! one day, one region and one service. The other side makes the same text of what it gets.

use std::fmt::Write as _;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};

use crate::Credentials;

const SERVICE: &str = "s3";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// What stands for itself in a query.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// In a path a slash does, too.
const PATH: &AsciiSet = &VALUE.remove(b'/');

/// What is signed of a request.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    /// As it is sent, see [`path`].
    pub(crate) path: &'a str,
    /// As it is sent, see [`query`].
    pub(crate) query: &'a str,
    /// Names in small letters, in order. The host has to be among them.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// Of the body, in hexadecimal digits.
    pub(crate) body: &'a str,
}

/// A path as it is sent and signed.
pub(crate) fn path(plain: &str) -> String {
    utf8_percent_encode(plain, PATH).to_string()
}

/// A query as it is sent and signed: in the order of its names.
pub(crate) fn query(parameters: &[(&str, &str)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, VALUE).to_string();
    let mut parameters: Vec<_> = parameters.iter().map(|(name, value)| (encode(name), encode(value))).collect();
    parameters.sort();
    let parameters: Vec<_> = parameters.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    parameters.join("&")
}

/// A time as the header `x-amz-date` has it.
pub(crate) fn date(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

/// The header `Authorization`.
pub(crate) fn authorization(request: &Signed<'_>, credentials: &Credentials, region: &str, time: Timestamp) -> String {
    let (date, day) = (date(time), time.strftime("%Y%m%d").to_string());
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, request.query);
    for (name, value) in request.headers {
        let _ = writeln!(canonical, "{name}:{}", value.trim());
    }
    let _ = write!(canonical, "\n{names}\n{}", request.body);
    let scope = format!("{day}/{region}/{SERVICE}/aws4_request");
    let text = format!("{ALGORITHM}\n{date}\n{scope}\n{}", hash(canonical.as_bytes()));
    let mut key = hmac(format!("AWS4{}", credentials.secret).as_bytes(), &day);
    for part in [region, SERVICE, "aws4_request"] {
        key = hmac(key.as_ref(), part);
    }
    let signature = hexadecimal(hmac(key.as_ref(), &text).as_ref());
    format!("{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", credentials.id)
}

fn hmac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text.as_bytes())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The credentials and the moment of AWS' own examples ("Signature Calculations for the Authorization Header").
    fn signature(method: &str, path: &str, query: &str, headers: &[(&str, &str)], body: &str) -> String {
        let credentials = Credentials {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        };
        let time = "2013-05-24T00:00:00Z".parse().expect("a time");
        let signed = Signed { method, path, query, headers, body };
        let header = authorization(&signed, &credentials, "us-east-1", time);
        let begin =
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=";
        assert!(header.starts_with(begin), "{header}");
        header.rsplit_once('=').expect("a signature").1.to_owned()
    }

    const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");
    const DATE: (&str, &str) = ("x-amz-date", "20130524T000000Z");

    #[test]
    fn the_examples_of_aws_have_the_signatures_that_it_publishes() {
        let empty = hash(b"");
        let content = ("x-amz-content-sha256", &*empty);
        assert_eq!(
            signature("GET", "/test.txt", "", &[HOST, ("range", "bytes=0-9"), content, DATE], &empty),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert_eq!(
            signature("GET", "/", &query(&[("prefix", "J"), ("max-keys", "2")]), &[HOST, content, DATE], &empty),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
        let body = hash(b"Welcome to Amazon S3.");
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            HOST,
            ("x-amz-content-sha256", &body),
            DATE,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        assert_eq!(
            signature("PUT", &path("/test$file.text"), "", &headers, &body),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
    }

    #[test]
    fn what_is_sent_is_what_is_signed() {
        assert_eq!(path("/a b/ü~-_.+"), "/a%20b/%C3%BC~-_.%2B");
        assert_eq!(query(&[("uploadId", "a/b="), ("partNumber", "2"), ("x", "")]), "partNumber=2&uploadId=a%2Fb%3D&x=");
        assert_eq!(hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
