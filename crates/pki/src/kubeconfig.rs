//! Writes a kubeconfig that carries its certificates inside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cluster::Pair;

/// A kubeconfig with one cluster, one user and one context. Secret, as it holds the key. The user's name has neither quotes nor
/// backslashes nor control characters.
pub fn kubeconfig(server: &str, authority_pem: &str, user: &str, pair: &Pair) -> String {
    let (authority, chain, key) =
        (STANDARD.encode(authority_pem), STANDARD.encode(&pair.chain_pem), STANDARD.encode(&pair.key_pem));
    format!(
        r#"apiVersion: v1
kind: Config
preferences: {{}}
clusters:
- name: trireme
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: "{user}"
  user:
    client-certificate-data: {chain}
    client-key-data: {key}
contexts:
- name: "{user}@trireme"
  context:
    cluster: trireme
    user: "{user}"
current-context: "{user}@trireme"
"#
    )
}
