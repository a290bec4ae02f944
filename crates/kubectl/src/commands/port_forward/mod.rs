//! `kubectl port-forward`: ports here that lead into a pod.

mod connection;
mod ports;

use std::net::IpAddr;

use machinery::value::text;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::pods;
use crate::command::{Command, Invocation};
use crate::discovery::segment;
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::remote::{Protocols, terminal};
use connection::{Connection, News};
use ports::{Address, Port};

pub static COMMAND: Command = Command {
    name: "port-forward",
    aliases: &[],
    usage: "TYPE/NAME [options] [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    short: "Forward one or more local ports to a pod",
    flags: &[&[
        Flag::slice("address", "Addresses to listen on: IP addresses, or localhost.").default("localhost"),
        Flag::duration("pod-running-timeout", "1m0s", "How long to wait for a pod that runs."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let Some((word, wanted)) = invocation.flags.arguments.split_first().filter(|(_, ports)| !ports.is_empty()) else {
        return Err(invocation.usage("TYPE/NAME and list of ports are required for port-forward"));
    };
    let (word, wanted) = (word.clone(), wanted.to_vec());
    let patience = super::patience(invocation)?;
    let object = pods::object(invocation, &word).await?;
    let pod = pods::one_of(invocation, &object, patience).await?;
    let translated = if text(&object, "kind") == "Service" {
        ports::refuse_udp_of_service(&wanted, &object).and_then(|()| ports::of_service(&wanted, &object, &pod))
    } else {
        ports::refuse_udp_of_pod(&wanted, &pod).and_then(|()| ports::of_pod(&wanted, &pod))
    };
    let translated = translated.map_err(Failure::Message)?;
    let (namespace, name) = (text(&pod, "metadata.namespace").to_owned(), text(&pod, "metadata.name").to_owned());
    let path = format!("/api/v1/namespaces/{}/pods/{}", segment(&namespace), segment(&name));
    let api = invocation.session.api()?;
    let pod: Value = api.get(&path).await?;
    match text(&pod, "status.phase") {
        "Running" => {}
        phase => {
            return Err(Failure::Message(format!(
                "unable to forward port because pod is not running. Current status={phase}"
            )));
        }
    }
    let addresses = Address::parse_all(&invocation.flags.list("address")).map_err(Failure::Message)?;
    let forwarded = Port::parse_all(&translated).map_err(Failure::Message)?;
    let protocols = Protocols::by(&invocation.session.environment, "KUBECTL_PORT_FORWARD_WEBSOCKETS");
    let opened = Connection::open(&api, protocols, &format!("{path}/portforward")).await;
    let (connection, news) =
        opened.map_err(|error| Failure::Message(format!("error upgrading connection: {}", error.bare())))?;
    forward(invocation, connection, news, &addresses, forwarded).await
}

async fn forward(
    invocation: &mut Invocation,
    connection: Connection,
    mut news: mpsc::Receiver<News>,
    addresses: &[Address],
    mut ports: Vec<Port>,
) -> Outcome {
    let mut listening = false;
    for port in &mut ports {
        match listen(invocation, &connection, addresses, port).await {
            Ok(()) => listening = true,
            Err(error) => {
                invocation.streams.error(&format!("Unable to listen on port {}: {error}", port.local));
            }
        }
    }
    if !listening {
        let all: Vec<String> = ports.iter().map(|port| format!("{{{} {}}}", port.local, port.remote)).collect();
        return Err(Failure::Message(format!("unable to listen on any of the requested ports: [{}]", all.join(" "))));
    }
    let interrupted = terminal::interrupted();
    tokio::pin!(interrupted);
    loop {
        std::io::Write::flush(&mut invocation.streams.out)?;
        tokio::select! {
            signalled = &mut interrupted => return signalled,
            event = news.recv() => match event {
                Some(News::Begun { local }) => invocation.say(&format!("Handling connection for {local}"))?,
                Some(News::Failed { local, remote, why }) => {
                    let why = machinery::status::go_quote(&why);
                    let line = format!("\"An error occurred forwarding\" err={why} logger=\"UnhandledError\" localPort={local} remotePort={remote}");
                    invocation.streams.log('E', "portforward.go:548", &line);
                }
                Some(News::Lost) | None => return Err(Failure::message("lost connection to pod")),
            },
        }
    }
}

/// Listens for one port on every address; fails as `localhost` and other addresses want it.
async fn listen(
    invocation: &mut Invocation,
    connection: &Connection,
    addresses: &[Address],
    port: &mut Port,
) -> Result<(), String> {
    let (mut errors, mut found) = (Vec::new(), 0);
    for address in addresses {
        match listen_at(invocation, connection, address.ip, port).await {
            Ok(()) => found += usize::from(address.any_will_do),
            Err(error) => errors.push((address.any_will_do, error)),
        }
    }
    let strict = errors.iter().any(|(any_will_do, _)| !any_will_do);
    if errors.is_empty() || (!strict && found > 0) {
        return Ok(());
    }
    let all: Vec<String> = errors.into_iter().map(|(_, error)| error).collect();
    Err(format!("Listeners failed to create with the following errors: [{}]", all.join(" ")))
}

async fn listen_at(
    invocation: &mut Invocation,
    connection: &Connection,
    ip: IpAddr,
    port: &mut Port,
) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "address already in use".to_owned(),
            std::io::ErrorKind::AddrNotAvailable => "cannot assign requested address".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        let family = if ip.is_ipv4() { "tcp4" } else { "tcp6" };
        let at = std::net::SocketAddr::new(ip, port.local);
        format!("unable to create listener: Error listen {family} {at}: bind: {why}")
    };
    let listener = TcpListener::bind((ip, port.local)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    port.local = address.port();
    invocation.say(&format!("Forwarding from {address} -> {}", port.remote)).map_err(|failure| failure.bare())?;
    tokio::spawn(connection.clone().serve(listener, *port));
    Ok(())
}
