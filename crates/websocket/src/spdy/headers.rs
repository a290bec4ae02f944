//! Header blocks of SPDY/3: names and values with their lengths, compressed with a dictionary that both sides know.

use flate2::{Compress, Compression, FlushCompress};

/// Words that open the dictionary, each behind its length in four bytes.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";

/// What follows them, as it is.
const REST: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
    Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov \
    Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
    application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8\
    charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary of SPDY/3.
pub fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1423);
    for word in WORDS.split(' ') {
        // One of them has a blank of its own.
        put(&mut bytes, &word.replace('_', " "));
    }
    bytes.extend_from_slice(REST.as_bytes());
    bytes
}

fn put(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Compresses the header blocks of one direction of a connection. They share one context: their order matters.
pub struct Encoder {
    zlib: Compress,
}

impl Encoder {
    /// One for a new connection.
    pub fn new() -> std::io::Result<Self> {
        let mut zlib = Compress::new(Compression::best(), true);
        zlib.set_dictionary(&dictionary()).map_err(std::io::Error::other)?;
        Ok(Self { zlib })
    }

    /// The block of these headers.
    pub fn encode(&mut self, headers: &[(&str, &str)]) -> std::io::Result<Vec<u8>> {
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for (name, value) in headers {
            put(&mut plain, name);
            put(&mut plain, value);
        }
        let mut block = Vec::with_capacity(plain.len() + 64);
        let start = self.zlib.total_in();
        loop {
            let used = usize::try_from(self.zlib.total_in() - start).expect("a block fits in memory");
            let before = block.len();
            self.zlib.compress_vec(&plain[used..], &mut block, FlushCompress::Sync).map_err(std::io::Error::other)?;
            // Room left over means that everything is out.
            if block.len() < block.capacity() || block.len() == before {
                return Ok(block);
            }
            block.reserve(64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Decoder;
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_everybody_has() {
        let dictionary = dictionary();
        let (mut a, mut b) = (1u32, 0u32);
        for byte in &dictionary {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((dictionary.len(), b << 16 | a), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn blocks_survive_the_round_trip_in_their_order() {
        let (mut encoder, mut decoder) = (Encoder::new().unwrap(), Decoder::default());
        let long = "x".repeat(5000);
        let blocks: [&[(&str, &str)]; 5] =
            [&[("streamtype", "error")], &[], &[("streamtype", "stdin")], &[("a", &long), ("b", "")], &[("a", &long)]];
        for headers in blocks {
            let block = encoder.encode(headers).unwrap();
            let expect: Vec<(String, String)> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(decoder.decode(&block), expect);
        }
    }
}
