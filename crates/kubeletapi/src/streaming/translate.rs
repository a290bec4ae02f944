//! WebSocket channels on one side, SPDY streams on the other: what kubectl speaks and what runtimes serve.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

use websocket::Incoming as FromClient;
use websocket::channels::{END_OF, ERROR, RESIZE, STDERR, STDIN, STDOUT, Streams};
use websocket::spdy::{self, Incoming as FromRuntime, StreamId};

/// Longest outcome that is passed on.
const LONGEST_OUTCOME: usize = 64 << 10;

/// Carries everything both ways until the command has ended or the client has left.
pub async fn run<C, R>(client: C, runtime: R, streams: Streams) -> Result<(), websocket::Error>
where
    C: AsyncRead + AsyncWrite + Send,
    R: AsyncRead + AsyncWrite + Send,
{
    let (client_read, client_write) = tokio::io::split(client);
    let (runtime_read, runtime_write) = tokio::io::split(runtime);
    let (from_client, to_client) = (websocket::Reader::new(client_read), websocket::Writer::new(client_write));
    let to_client = Arc::new(Mutex::new(to_client));
    // An empty message tells the client that the connection works, before there is any output.
    let first = if streams.stdout {
        STDOUT
    } else if streams.stderr {
        STDERR
    } else {
        ERROR
    };
    to_client.lock().await.message(&[first], &[]).await?;
    let outcome = match open(runtime_read, runtime_write, streams).await {
        Err(error) => failure(&error),
        Ok((from_runtime, to_runtime, table)) => {
            let to_runtime = Arc::new(Mutex::new(to_runtime));
            tokio::select! {
                // The client left: dropping the runtime's connection ends what was going on there.
                left = upward(from_client, to_client.clone(), to_runtime.clone(), &table) => return left,
                outcome = downward(from_runtime, to_client.clone(), to_runtime, &table) => outcome?,
            }
        }
    };
    let mut to_client = to_client.lock().await;
    to_client.message(&[ERROR], &outcome).await?;
    Ok(to_client.close().await?)
}

/// Stream of each channel.
type Table = Vec<(u8, StreamId)>;

type Opened<R, W> = (spdy::Reader<R>, spdy::Writer<W>, Table);

async fn open<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    read: R,
    write: W,
    streams: Streams,
) -> Result<Opened<R, W>, spdy::Error> {
    let (mut reader, mut writer) = (spdy::Reader::new(read), spdy::Writer::new(write)?);
    let list = streams.list();
    let types: Vec<&str> = list.iter().map(|(_, kind)| *kind).collect();
    let ids = spdy::open_all(&mut reader, &mut writer, &types).await?;
    let table = list.into_iter().map(|(channel, _)| channel).zip(ids).collect();
    Ok((reader, writer, table))
}

/// From the client to the runtime. Returns when the client has left, or the runtime takes nothing more.
async fn upward<C: AsyncRead + Unpin, D: AsyncWrite + Unpin, W: AsyncWrite + Unpin>(
    mut from: websocket::Reader<C>,
    back: Arc<Mutex<websocket::Writer<D>>>,
    to: Arc<Mutex<spdy::Writer<W>>>,
    table: &Table,
) -> Result<(), websocket::Error> {
    let stream = |channel: u8| {
        let found = table.iter().find(|(known, _)| *known == channel);
        found.map(|(_, stream)| *stream).filter(|_| channel == STDIN || channel == RESIZE)
    };
    let mut channel = None;
    let mut deaf = false;
    loop {
        let (begins, data) = match from.next().await? {
            FromClient::Close => return Ok(()),
            FromClient::Ping(data) => {
                back.lock().await.pong(&data).await?;
                continue;
            }
            FromClient::Piece { begins, data, .. } => (begins, data),
        };
        let mut data = data.as_slice();
        if begins {
            channel = None;
        }
        if channel.is_none() {
            let Some((first, rest)) = data.split_first() else { continue };
            (channel, data) = (Some(*first), rest);
        }
        if deaf || data.is_empty() {
            continue;
        }
        let mut to = to.lock().await;
        let sent = match channel {
            Some(END_OF) => match data.first().and_then(|channel| stream(*channel)) {
                Some(stream) => to.end(stream).await,
                None => Ok(()),
            },
            Some(channel) => match stream(channel) {
                Some(stream) => to.data(stream, data).await,
                None => Ok(()),
            },
            None => Ok(()),
        };
        // A command that has ended takes no more input; its output is still on the way.
        deaf = sent.is_err();
    }
}

/// From the runtime to the client, until everything has ended. Returns the outcome.
async fn downward<R: AsyncRead + Unpin, D: AsyncWrite + Unpin, W: AsyncWrite + Unpin>(
    mut from: spdy::Reader<R>,
    to: Arc<Mutex<websocket::Writer<D>>>,
    back: Arc<Mutex<spdy::Writer<W>>>,
    table: &Table,
) -> Result<Vec<u8>, websocket::Error> {
    let channel = |stream: StreamId| table.iter().find(|(_, known)| *known == stream).map(|(channel, _)| *channel);
    let mut open: Vec<u8> = table
        .iter()
        .map(|(channel, _)| *channel)
        .filter(|channel| matches!(*channel, STDOUT | STDERR | ERROR))
        .collect();
    let mut outcome = Vec::new();
    while !open.is_empty() {
        match from.next().await {
            Ok(FromRuntime::Data(stream, data)) => match channel(stream) {
                Some(ERROR) => {
                    let room = LONGEST_OUTCOME.saturating_sub(outcome.len());
                    outcome.extend_from_slice(&data[..data.len().min(room)]);
                }
                Some(channel @ (STDOUT | STDERR)) => to.lock().await.message(&[channel], &data).await?,
                _ => {}
            },
            Ok(FromRuntime::End(stream) | FromRuntime::Cut(stream)) => {
                let ended = channel(stream);
                open.retain(|channel| Some(*channel) != ended);
            }
            Ok(FromRuntime::Ping(id)) => {
                if let Err(error) = back.lock().await.ping(id).await {
                    return Ok(failure(&error));
                }
            }
            Ok(FromRuntime::Accepted(_)) => {}
            Ok(FromRuntime::Over) if open.contains(&ERROR) && outcome.is_empty() => {
                return Ok(failure(&"the runtime ended the connection without an outcome"));
            }
            Ok(FromRuntime::Over) => break,
            Err(error) => return Ok(failure(&error)),
        }
    }
    Ok(if outcome.is_empty() { success() } else { outcome })
}

fn success() -> Vec<u8> {
    json!({"metadata": {}, "status": "Success"}).to_string().into_bytes()
}

fn failure(error: &dyn std::fmt::Display) -> Vec<u8> {
    let message = error.to_string();
    let status = json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {message}"),
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    });
    status.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use websocket::client;
    use websocket::spdy::testing::Server;

    const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };

    fn start(streams: Streams) -> (DuplexStream, Server, tokio::task::JoinHandle<Result<(), websocket::Error>>) {
        let (client, near) = tokio::io::duplex(1 << 20);
        let (far, runtime) = tokio::io::duplex(1 << 20);
        (client, Server::new(runtime), tokio::spawn(run(near, far, streams)))
    }

    async fn rest(mut client: DuplexStream) -> Vec<(u8, Vec<u8>)> {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        client::parse(&bytes)
    }

    #[tokio::test]
    async fn a_command_reads_writes_and_ends() {
        let (mut client, mut server, task) = start(ALL);
        let mut streams = Vec::new();
        for kind in ["error", "stdin", "stdout", "stderr"] {
            let (stream, opened) = server.accept().await;
            assert_eq!(opened, kind);
            streams.push(stream);
        }
        let [error, stdin, stdout, stderr] = streams.try_into().unwrap();
        client.write_all(&client::message(b"\x00hello ")).await.unwrap();
        client.write_all(&client::frame(false, 2, b"\x00wor")).await.unwrap();
        client.write_all(&client::frame(true, 9, b"?")).await.unwrap();
        client.write_all(&client::frame(true, 0, b"ld")).await.unwrap();
        client.write_all(&client::message(b"\x07nothing")).await.unwrap();
        client.write_all(&client::message(b"\xff\x00")).await.unwrap();
        assert_eq!(server.data().await, (stdin, b"hello ".to_vec(), false));
        assert_eq!(server.data().await, (stdin, b"wor".to_vec(), false));
        assert_eq!(server.data().await, (stdin, b"ld".to_vec(), false));
        assert_eq!(server.data().await, (stdin, vec![], true));
        server.send(stdout, b"out", false).await;
        server.send(stderr, b"err", true).await;
        server.send(error, br#"{"status":"Failure"}"#, true).await;
        // The outcome waits for the last of the output.
        server.send(stdout, b"put", true).await;
        task.await.unwrap().unwrap();
        let expect = [
            (2, b"\x01".to_vec()),
            (10, b"?".to_vec()),
            (2, b"\x01out".to_vec()),
            (2, b"\x02err".to_vec()),
            (2, b"\x01put".to_vec()),
            (2, b"\x03{\"status\":\"Failure\"}".to_vec()),
            (8, 1000u16.to_be_bytes().to_vec()),
        ];
        assert_eq!(rest(client).await, expect);
    }

    #[tokio::test]
    async fn a_terminal_has_a_size_and_no_second_output() {
        let (mut client, mut server, task) = start(Streams { stderr: false, tty: true, ..ALL });
        for kind in ["error", "stdin", "stdout", "resize"] {
            assert_eq!(server.accept().await.1, kind);
        }
        let size = br#"{"Width":80,"Height":24}"#;
        client.write_all(&client::message(&[&[RESIZE][..], size].concat())).await.unwrap();
        assert_eq!(server.data().await, (7, size.to_vec(), false));
        server.send(5, b"", true).await;
        server.send(1, b"", true).await;
        task.await.unwrap().unwrap();
        let frames = rest(client).await;
        assert_eq!(frames[1], (2, [&[ERROR][..], &success()].concat()));
    }

    #[tokio::test]
    async fn a_runtime_that_breaks_off_is_an_internal_error() {
        let (client, mut server, task) = start(Streams { stdin: false, ..ALL });
        for _ in 0..3 {
            server.accept().await;
        }
        drop(server);
        task.await.unwrap().unwrap();
        let frames = rest(client).await;
        let outcome: serde_json::Value = serde_json::from_slice(&frames[1].1[1..]).unwrap();
        assert_eq!((frames[1].1[0], &outcome["reason"]), (ERROR, &json!("InternalError")));
    }

    #[tokio::test]
    async fn a_client_that_leaves_takes_the_command_with_it() {
        let (client, mut server, task) = start(ALL);
        for _ in 0..4 {
            server.accept().await;
        }
        drop(client);
        task.await.unwrap().unwrap();
        assert_eq!(server.io.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
