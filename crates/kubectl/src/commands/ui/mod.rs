//! `kubectl ui`, and `trireme ui`: the page of the cluster in a browser, with the credentials of the kubeconfig. Upstream has no such
//! command; the server has to be this one.
//!
//! A proxy on this machine's loopback does what `kubectl proxy` does, below a path that is a secret of this run. Who does not know it,
//! another user of the machine or another page in the browser, gets nothing. The proxy ends with the command, and can do nothing that
//! its user could not do with kubectl. What pods and Services serve is not passed on: their pages would have the secret, and with it
//! the user's rights.

use std::io::Write as _;

use super::proxy::filter::Filter;
use super::proxy::serve::Server;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::program;
use crate::remote::terminal;

pub static COMMAND: Command = Command {
    name: "ui",
    aliases: &[],
    usage: "[--port=PORT] [--print-only]",
    short: "Open the page of the cluster in a browser, with your credentials",
    flags: &[&[
        Flag::int("port", "0", "Port of this machine to listen on; 0 is any.").short('p'),
        Flag::bool("print-only", "Print the link and open no browser."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

const HOSTS: &str = "^localhost$,^127\\.0\\.0\\.1$";
/// Of nodes only what they remember of hops.
const NOT_PASSED_ON: &str = "^/api/v1/namespaces/[^/]+/(pods|services)/[^/]+/proxy(/|$),^/api/v1/nodes/[^/]+/proxy(/([^d].*)?)?$,^/api/v1/proxy(/|$)";
/// What opens a link, where there is a desktop.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

fn filter() -> Outcome<Filter> {
    Filter::new("^.*", NOT_PASSED_ON, HOSTS, "^$").map_err(|error| Failure::Message(error.to_string()))
}

/// A word that nobody guesses.
fn secret() -> Outcome<String> {
    let random = ring::rand::generate::<[u8; 24]>(&ring::rand::SystemRandom::new());
    let random = random.map_err(|_| Failure::message("this machine has no random numbers"))?;
    Ok(random.expose().iter().map(|byte| format!("{byte:02x}")).collect())
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let api = invocation.session.api()?;
    api.matched().await?;
    let (client, headers) = api.parts();
    let prefix = format!("/{}/", secret()?);
    let server = Server::new(client, headers, prefix.clone(), None, Some(filter()?));
    let port = invocation.flags.int("port");
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .map_err(|error| Failure::Message(format!("listen tcp 127.0.0.1:{port}: {error}")))?;
    let link = format!("http://{}{prefix}ui/", listener.local_addr()?);
    tokio::spawn(server.serve(listener));
    invocation.say(&link)?;
    invocation.streams.out.flush()?;
    if !invocation.flags.is("print-only") {
        open(invocation, &link);
    }
    terminal::interrupted().await
}

/// Shows the link in the user's browser, if there is one; the link was printed for where there is none.
fn open(invocation: &Invocation, link: &str) {
    let environment = &invocation.session.environment;
    let desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| environment.variable(name).is_some());
    if !desktop && !cfg!(target_os = "macos") {
        return;
    }
    if let Some(opener) = OPENERS.iter().find_map(|name| program::find(environment, name)) {
        program::start(environment, &opener, &[link.to_owned()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_pods_and_requests_of_other_sites_are_not_passed_on() {
        let filter = filter().expect("patterns");
        for (path, host, expected) in [
            ("/ui/", "127.0.0.1:1234", true),
            ("/api/v1/namespaces/a/pods/proxy/log", "127.0.0.1:1234", true),
            ("/api/v1/namespaces/proxy/pods/b/exec", "localhost:1234", true),
            ("/api/v1/nodes/n/proxy/debug/hops", "localhost", true),
            ("/api/v1/nodes/n/proxy/logs/", "localhost", false),
            ("/api/v1/nodes/n/proxy/", "localhost", false),
            ("/api/v1/nodes/n/proxy", "localhost", false),
            ("/api/v1/namespaces/a/pods/b/proxy/", "localhost", false),
            ("/api/v1/namespaces/a/pods/b:80/proxy/x", "localhost", false),
            ("/api/v1/namespaces/a/services/b/proxy", "localhost", false),
            ("/ui/", "evil.example:1234", false),
        ] {
            assert_eq!(filter.accepts("GET", path, host), expected, "{path} at {host}");
        }
    }

    #[test]
    fn every_run_has_a_secret_of_its_own() {
        let (one, other) = (secret().expect("a secret"), secret().expect("a secret"));
        assert!(one != other && one.len() == 48, "{one} {other}");
    }
}
