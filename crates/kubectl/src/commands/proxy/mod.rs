//! `kubectl proxy`: the API at a port of this machine, for programs that bring no credentials.

mod files;
pub mod filter;
pub mod serve;

use std::path::PathBuf;

use crate::api::Api;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome, os_error};
use crate::flags::Flag;
use crate::remote::terminal;
use filter::Filter;
use serve::Server;

pub static COMMAND: Command = Command {
    name: "proxy",
    aliases: &[],
    usage: "[--port=PORT] [--www=static-dir] [--www-prefix=prefix] [--api-prefix=prefix]",
    short: "Run a proxy to the Kubernetes API server",
    flags: &[&[
        Flag::string("accept-hosts", "^localhost$,^127\\.0\\.0\\.1$,^\\[::1\\]$", "Hosts to accept, as patterns."),
        Flag::string("accept-paths", "^.*", "Paths to accept, as patterns."),
        Flag::string("address", "127.0.0.1", "Address to listen on."),
        Flag::string("api-prefix", "/", "Where the API begins."),
        Flag::bool("append-server-path", "Put the path of the server before each request's."),
        Flag::bool("disable-filter", "Accept everything; any page in a browser can then use the API."),
        Flag::duration("keepalive", "0s", "How often connections are tested; 0 is never."),
        Flag::int("port", "8001", "Port to listen on; 0 is any.").short('p'),
        Flag::string("reject-methods", "^$", "Methods to reject, as patterns."),
        Flag::string("reject-paths", "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach", "Paths to reject, as patterns."),
        Flag::string("unix-socket", "", "Unix socket to listen on.").short('u'),
        Flag::string("www", "", "Directory with files to serve.").short('w'),
        Flag::string("www-prefix", "/static/", "Where the files begin.").short('P'),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// With a slash at its end.
fn prefix(text: &str) -> String {
    if text.ends_with('/') { text.to_owned() } else { format!("{text}/") }
}

fn filter(invocation: &mut Invocation) -> Outcome<Option<Filter>> {
    let flags = &invocation.flags;
    if flags.is("disable-filter") {
        if flags.text("unix-socket").is_empty() {
            invocation.streams.log(
                'W',
                "proxy.go:177",
                "Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious",
            );
        }
        return Ok(None);
    }
    let made = Filter::new(
        flags.text("accept-paths"),
        flags.text("reject-paths"),
        flags.text("accept-hosts"),
        flags.text("reject-methods"),
    );
    if flags.text("reject-paths").is_empty() || flags.text("reject-methods").is_empty() {
        invocation.streams.log(
            'W',
            "proxy.go:182",
            "Request filter has been relaxed, your proxy may be vulnerable to attacks, please be cautious",
        );
    }
    made.map(Some).map_err(|error| {
        // Upstream's log ends the program here.
        invocation.streams.log('F', "proxy_server.go:83", &format!("Error compiling re: {error}"));
        Failure::Exit(255)
    })
}

async fn run(invocation: &mut Invocation) -> Outcome {
    invocation.session.api()?.matched().await?;
    let mut connection = invocation.session.connection()?.clone();
    if !invocation.flags.is("append-server-path") {
        // What the server's own address has behind its host is not asked for, unless that is wanted.
        let at = connection.client.server.find("://").map_or(0, |at| at + 3);
        let end = connection.client.server[at..].find('/').map_or(connection.client.server.len(), |end| at + end);
        let path = connection.client.server.split_off(end);
        if !matches!(&*path, "" | "/") {
            let text = format!(
                "Your kube context contains a server path {path}, use --append-server-path to automatically append the path to each request"
            );
            invocation.streams.log('W', "proxy.go:170", &text);
        }
    }
    let keepalive = invocation.flags.duration("keepalive");
    if !keepalive.is_zero() {
        connection.client.keepalive = keepalive;
    }
    let (client, headers) = Api::new(&connection, None)?.parts();
    let flags = &invocation.flags;
    if flags.int("port") != 8001 && !flags.text("unix-socket").is_empty() {
        return Err(Failure::message("cannot set --unix-socket and --port at the same time"));
    }
    if let Some(directory) = flags.given("www").map(str::to_owned) {
        let wrong = match std::fs::metadata(invocation.session.environment.path(&directory)) {
            Err(error) => {
                let why = os_error("stat", &directory, &error);
                Some(format!("Failed to stat static file directory {directory}: {why}"))
            }
            Ok(about) if !about.is_dir() => Some(format!("Static file directory {directory} is not a directory")),
            Ok(_) => None,
        };
        if let Some(wrong) = wrong {
            invocation.streams.log('W', "proxy.go:203", &wrong);
        }
    }
    let flags = &invocation.flags;
    let files = flags
        .given("www")
        .map(|directory| (prefix(flags.text("www-prefix")), invocation.session.environment.path(directory)));
    let api_prefix = prefix(flags.text("api-prefix"));
    let filter = filter(invocation)?;
    let server = Server::new(client, headers, api_prefix, files, filter);
    let flags = &invocation.flags;
    if let Some(path) = flags.given("unix-socket") {
        let listener = unix(&invocation.session.environment.path(path))?;
        invocation.say(&format!("Starting to serve on {}", invocation.flags.text("unix-socket")))?;
        std::io::Write::flush(&mut invocation.streams.out)?;
        tokio::spawn(server.serve_unix(listener));
        return terminal::interrupted().await;
    }
    let (address, port) = (flags.text("address").to_owned(), flags.int("port"));
    let listener = tokio::net::TcpListener::bind(format!("{address}:{port}")).await.map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "address already in use".to_owned(),
            _ => error.to_string(),
        };
        Failure::Message(format!("listen tcp {address}:{port}: bind: {why}"))
    })?;
    let at = listener.local_addr()?;
    invocation.say(&format!("Starting to serve on {at}"))?;
    std::io::Write::flush(&mut invocation.streams.out)?;
    tokio::spawn(server.serve(listener));
    terminal::interrupted().await
}

/// A socket that only this user may use, in place of one that was left behind.
fn unix(path: &PathBuf) -> Outcome<tokio::net::UnixListener> {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    if path.metadata().is_ok_and(|about| about.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let listener = tokio::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    Ok(listener)
}
