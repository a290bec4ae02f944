//! The endpoints of parts that run as processes of their own.

use std::ffi::OsString;
use std::net::SocketAddr;

use client::config::{Credentials, Trust};
use client::{Client, Config};
use testkit::Server;

/// What makes a part serve at this address, with the API server's certificate, which tests can verify.
pub fn arguments(server: &Server, address: SocketAddr) -> [OsString; 8] {
    let pki = server.data_dir().join("pki");
    [
        "--bind-address".into(),
        address.ip().to_string().into(),
        "--secure-port".into(),
        address.port().to_string().into(),
        "--tls-cert-file".into(),
        pki.join("apiserver.crt").into(),
        "--tls-private-key-file".into(),
        pki.join("apiserver.key").into(),
    ]
}

/// Somebody who knows the authority, with a certificate of the server's or without.
pub fn somebody(server: &Server, address: SocketAddr, identity: Option<&str>) -> Client {
    let pki = server.data_dir().join("pki");
    let bytes = |name: &str| std::fs::read(pki.join(name)).expect("the server's own file");
    let mut config = Config::new(format!("https://{address}"));
    config.trust = Trust::bundle(&bytes("ca.crt")).expect("an authority");
    if let Some(name) = identity {
        let (chain, key) = (bytes(&format!("{name}.crt")), bytes(&format!("{name}.key")));
        config.credentials = Credentials::certificate(&chain, &key).expect("a certificate");
    }
    Client::https(config).expect("a client")
}

/// A page, or the code of its refusal.
pub async fn page(client: &Client, path: &str) -> Result<String, Option<u16>> {
    let bytes = client.raw(path).await.map_err(|error| error.code())?;
    Ok(String::from_utf8(bytes.to_vec()).expect("text"))
}

/// Waits until the part says that it is ready.
pub async fn ready(client: &Client) {
    testkit::eventually("the part is ready", async {
        while page(client, "/readyz").await.is_err() {
            // Nothing announces that a process listens.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}
