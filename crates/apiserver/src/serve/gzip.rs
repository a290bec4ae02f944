//! Large answers for clients that read gzip: upstream's threshold, upstream's effort.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};
use threads::heavy;

use super::body::Answer;

/// Answers of more bytes than this are worth it: on a fast network the small ones are not.
const THRESHOLD: usize = 128 * 1024;
/// The least effort, which is several times as fast as the usual one.
const EFFORT: Compression = Compression::new(1);

/// Compresses an answer that is large enough. Streams here are lists, which are streamed only if they are large.
pub fn compress(answer: Answer, headers: &mut HeaderMap) -> Answer {
    let compressed = match answer {
        Answer::Full(Some(bytes)) if bytes.len() > THRESHOLD => match whole(&bytes) {
            Ok(bytes) => Answer::from(bytes),
            Err(_) => return Answer::Full(Some(bytes)),
        },
        Answer::Stream(pieces) => Answer::Stream(piecewise(pieces)),
        small @ Answer::Full(_) => return small,
    };
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    compressed
}

fn whole(bytes: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), EFFORT);
    encoder.write_all(bytes)?;
    encoder.finish().map(Bytes::from)
}

type Pieces = BoxStream<'static, Result<Bytes, std::io::Error>>;

/// Piece by piece, so that a long list is never whole in memory, compressed or not.
fn piecewise(pieces: Pieces) -> Pieces {
    let start = Some((pieces, GzEncoder::new(Vec::new(), EFFORT)));
    stream::unfold(start, |state| async move {
        let (mut pieces, mut encoder) = state?;
        loop {
            match pieces.next().await {
                Some(Ok(piece)) => {
                    let packed = heavy::run(piece.len(), || encoder.write_all(&piece)).await;
                    if let Err(error) = packed {
                        return Some((Err(error), None));
                    }
                    // What the encoder still holds back comes with a later piece.
                    if !encoder.get_ref().is_empty() {
                        let out = std::mem::take(encoder.get_mut());
                        return Some((Ok(Bytes::from(out)), Some((pieces, encoder))));
                    }
                }
                Some(Err(error)) => return Some((Err(error), None)),
                None => return Some((encoder.finish().map(Bytes::from), None)),
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn unpacked(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).expect("gzip");
        out
    }

    #[test]
    fn only_large_answers_are_compressed() {
        let mut headers = HeaderMap::new();
        let small = Bytes::from(vec![b'a'; THRESHOLD]);
        assert!(matches!(compress(small.clone().into(), &mut headers), Answer::Full(Some(bytes)) if bytes == small));
        assert!(headers.is_empty());
        let large = Bytes::from(vec![b'a'; THRESHOLD + 1]);
        let Answer::Full(Some(bytes)) = compress(large.clone().into(), &mut headers) else { panic!("bytes") };
        assert!(bytes.len() < 10_000);
        assert_eq!(unpacked(&bytes), large);
        assert_eq!(
            (&headers["content-encoding"], &headers["vary"]),
            (&"gzip".parse().expect("a header"), &"Accept-Encoding".parse().expect("a header"))
        );
    }

    #[tokio::test]
    async fn a_stream_stays_a_stream() {
        let pieces: Vec<Bytes> = (0..8u8).map(|n| Bytes::from(vec![n; 100_000])).collect();
        let all: Vec<u8> = pieces.concat();
        let stream = stream::iter(pieces.into_iter().map(Ok)).boxed();
        let packed: Vec<Bytes> = piecewise(stream).map(|piece| piece.expect("a piece")).collect().await;
        assert_eq!(unpacked(&packed.concat()), all);
    }
}
