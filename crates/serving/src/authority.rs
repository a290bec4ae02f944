//! Whose client certificates are believed: an authority given by the administrator, or the one that the API server publishes.

use client::Client;
use informer::{Change, Filter, Informers};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Error;

/// Where the API server says whose certificates it believes.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const KEY: &str = "client-ca-file";

/// Whose client certificates are believed.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Those of these authorities, in PEM; nobody's when empty.
    Given(String),
    /// Those that the API server believes, as it says in `kube-system/extension-apiserver-authentication`.
    Published,
}

/// The server's side of TLS, made anew when the published authority changes.
pub(crate) fn follow(
    trust: Trust,
    (certificate, handshake): (pki::Pair, pki::Handshake),
    client: &Client,
    stop: CancellationToken,
) -> Result<watch::Receiver<pki::Reception>, Error> {
    let given = match &trust {
        Trust::Given(authorities) => authorities.as_str(),
        Trust::Published => "",
    };
    let (current, seen) = watch::channel(pki::Reception::new(&certificate, given, &handshake)?);
    if matches!(trust, Trust::Published) {
        let filter = Filter {
            namespace: NAMESPACE.to_owned(),
            field_selector: format!("metadata.name={CONFIG_MAP}"),
            ..Filter::default()
        };
        let informers = Informers::new(client.clone());
        let informer = informers.filtered::<ConfigMap>(filter);
        informer.subscribe(move |change: &Change<ConfigMap>| {
            let published = change.after().and_then(|map| map.data.as_ref()?.get(KEY));
            match pki::Reception::new(&certificate, published.map_or("", String::as_str), &handshake) {
                Ok(reception) => drop(current.send_replace(reception)),
                // What was believed before may still be right.
                Err(error) => tracing::error!(%error, "the published authority of clients cannot be used"),
            }
        });
        tokio::spawn(async move {
            // The watch lives as long as its informers do.
            let _informers = informers;
            stop.cancelled().await;
        });
    }
    Ok(seen)
}
