//! A bucket and what can be done with it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bytes::Bytes;
use http::Method;
use http::header::ETAG;

use crate::connection::{Ask, Connection};
use crate::{Error, Settings, sign, xml};

/// A file of more than that goes in parts of as much, so that memory holds one of them.
const PART: u64 = 16 << 20;
/// No upload has more parts; those of a larger file are larger.
const PARTS: u64 = 10_000;
/// No listing has more pages of a thousand names.
const PAGES: usize = 1_000;

/// What was found below a prefix.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Whole names of objects.
    pub keys: Vec<String>,
    /// Whole beginnings of names up to the next slash, with it, when these were asked for.
    pub folders: Vec<String>,
}

pub struct Bucket {
    name: String,
    connection: Connection,
}

impl Bucket {
    /// Connects to nothing yet.
    pub fn new(settings: Settings, name: &str) -> Self {
        Self { name: name.to_owned(), connection: Connection::new(settings) }
    }

    pub async fn put(&self, key: &str, body: Bytes) -> Result<(), Error> {
        let hash = sign::hash(&body);
        let ask = Ask { method: Method::PUT, path: &self.path(key), query: &[], body, hash: &hash };
        self.connection.document(&ask).await.map(drop)
    }

    /// An object that is not large.
    pub async fn get(&self, key: &str) -> Result<Bytes, Error> {
        let (_, text) = self.ask(Method::GET, key, &[]).await?;
        Ok(text.into())
    }

    /// Writes an object into a file, as it comes.
    pub async fn download(&self, key: &str, file: &mut File) -> Result<(), Error> {
        let hash = sign::hash(b"");
        let ask = Ask { method: Method::GET, path: &self.path(key), query: &[], body: Bytes::new(), hash: &hash };
        let mut body = self.connection.send(&ask).await?.into_body();
        while let Some(chunk) = self.connection.chunk(&mut body).await? {
            file.write_all(&chunk).map_err(|source| Error::File { path: key.to_owned(), source })?;
        }
        Ok(())
    }

    /// Sends a file, whole or in parts. What was sent of one that fails is given up again.
    pub async fn upload(&self, key: &str, file: &Path) -> Result<(), Error> {
        let failed = |source| Error::File { path: file.display().to_string(), source };
        let size = std::fs::metadata(file).map_err(failed)?.len();
        let opened = File::open(file).map_err(failed)?;
        let source = Source { file: opened, part: part_size(size) };
        let (first, hash, source) = source.read().await.map_err(failed)?;
        if size <= source.part {
            let ask = Ask { method: Method::PUT, path: &self.path(key), query: &[], body: first, hash: &hash };
            return self.connection.document(&ask).await.map(drop);
        }
        let (_, begun) = self.ask(Method::POST, key, &[("uploads", "")]).await?;
        let upload = xml::text(&begun, "UploadId").ok_or_else(|| self.odd(key, "it has no UploadId"))?;
        let sent = self.parts(key, &upload, (first, hash), source, file).await;
        if sent.is_err() {
            // The reason is what is told. What stays behind goes by the bucket's own rules.
            let _ = self.ask(Method::DELETE, key, &[("uploadId", &upload)]).await;
        }
        sent
    }

    async fn parts(
        &self,
        key: &str,
        upload: &str,
        first: (Bytes, String),
        mut source: Source,
        file: &Path,
    ) -> Result<(), Error> {
        let (mut body, mut hash) = first;
        let (mut number, mut list) = (1u64, String::new());
        while !body.is_empty() {
            let count = number.to_string();
            let query = [("partNumber", &*count), ("uploadId", upload)];
            let ask = Ask { method: Method::PUT, path: &self.path(key), query: &query, body, hash: &hash };
            let (parts, _) = self.connection.document(&ask).await?;
            let tag = parts.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
            let tag = xml::escape(tag.ok_or_else(|| self.odd(key, "a part has no ETag"))?);
            list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
            number += 1;
            let read = source.read().await;
            (body, hash, source) = read.map_err(|source| Error::File { path: file.display().to_string(), source })?;
        }
        let body = Bytes::from(format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>"));
        let hash = sign::hash(&body);
        let query = [("uploadId", upload)];
        let ask = Ask { method: Method::POST, path: &self.path(key), query: &query, body, hash: &hash };
        let (parts, said) = self.connection.document(&ask).await?;
        // It says so with a success when putting the parts together fails.
        if xml::text(&said, "ETag").is_none() {
            let part = |name| xml::text(&said, name).unwrap_or_default();
            let (what, status) = (self.path(key), parts.status.as_u16());
            return Err(Error::Refused { what, status, code: part("Code"), message: part("Message") });
        }
        Ok(())
    }

    /// Names that begin with `prefix`; with `folders`, those that go on after another slash are summed up.
    pub async fn list(&self, prefix: &str, folders: bool) -> Result<Listing, Error> {
        let (mut found, mut token) = (Listing::default(), None::<String>);
        for _ in 0..PAGES {
            let mut query = vec![("list-type", "2"), ("prefix", prefix)];
            if folders {
                query.push(("delimiter", "/"));
            }
            if let Some(token) = &token {
                query.push(("continuation-token", token));
            }
            let (_, page) = self.ask(Method::GET, "", &query).await?;
            let texts = |outer, inner| xml::elements(&page, outer).filter_map(move |one| xml::text(one, inner));
            found.keys.extend(texts("Contents", "Key"));
            found.folders.extend(texts("CommonPrefixes", "Prefix"));
            token = xml::text(&page, "NextContinuationToken").filter(|token| !token.is_empty());
            if token.is_none() || xml::text(&page, "IsTruncated").as_deref() != Some("true") {
                return Ok(found);
            }
        }
        Err(self.odd(prefix, "there are too many objects"))
    }

    /// Removes an object. One that is not there is removed already.
    pub async fn delete(&self, key: &str) -> Result<(), Error> {
        match self.ask(Method::DELETE, key, &[]).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn ask(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
    ) -> Result<(http::response::Parts, String), Error> {
        let hash = sign::hash(b"");
        let ask = Ask { method, path: &self.path(key), query, body: Bytes::new(), hash: &hash };
        self.connection.document(&ask).await
    }

    fn path(&self, key: &str) -> String {
        if key.is_empty() { format!("/{}", self.name) } else { format!("/{}/{key}", self.name) }
    }

    fn odd(&self, key: &str, why: &'static str) -> Error {
        Error::Answer { what: format!("s3:/{}", self.path(key)), why }
    }
}

/// How large the parts of a file are.
fn part_size(file: u64) -> u64 {
    PART.max(file.div_ceil(PARTS))
}

/// A file that is read part by part, where that holds up nobody else.
struct Source {
    file: File,
    part: u64,
}

impl Source {
    /// The next part, with its hash; it is empty at the end.
    async fn read(mut self) -> std::io::Result<(Bytes, String, Self)> {
        let read = move || {
            let mut part = Vec::new();
            (&mut self.file).take(self.part).read_to_end(&mut part)?;
            let hash = sign::hash(&part);
            Ok((Bytes::from(part), hash, self))
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_has_more_parts_than_there_may_be() {
        assert_eq!((part_size(0), part_size(PART), part_size(PART * PARTS)), (PART, PART, PART));
        let large = PART * PARTS + 1;
        assert!(part_size(large) > PART && large.div_ceil(part_size(large)) <= PARTS);
    }
}
