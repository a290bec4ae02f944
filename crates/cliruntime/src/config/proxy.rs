//! Which proxy is between us and a server.

use machinery::status::go_quote;

use crate::command::Environment;

/// The proxy that the environment names for a server. This machine is never behind one.
pub fn of(environment: &Environment, server: &str) -> Option<String> {
    let (scheme, rest) = server.split_once("://")?;
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    let variable = |name: &str| environment.variable(name).or_else(|| environment.variable(&name.to_lowercase()));
    let own = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let spared = |entry: &str| {
        let entry = entry.trim();
        let suffix = entry.strip_prefix("*.").or(entry.strip_prefix('.')).unwrap_or(entry);
        entry == "*" || (!entry.is_empty() && (host == suffix || host.ends_with(&format!(".{suffix}"))))
    };
    if own || variable("NO_PROXY").is_some_and(|list| list.split(',').any(spared)) {
        return None;
    }
    let proxy = variable(if scheme == "http" { "HTTP_PROXY" } else { "HTTPS_PROXY" })?;
    Some(if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") })
}

/// Why this cannot be a proxy.
pub fn wrong(url: &str) -> Option<String> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let fits = url.is_empty() || matches!(scheme, "http" | "https" | "socks5");
    (!fits).then(|| format!("unsupported scheme {}, must be http, https, or socks5", go_quote(scheme)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_the_clusters_or_the_environments() {
        let variables = [("HTTPS_PROXY", "p:3128"), ("NO_PROXY", "b.example, .c.example")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let environment = Environment { variables, ..Environment::default() };
        for (server, expected) in [
            ("https://a.example:6443/base", Some("http://p:3128")),
            ("https://b.example", None),
            ("https://x.c.example:1", None),
            ("https://127.0.0.1:6443", None),
            ("https://[::1]:6443", None),
            ("http://a.example", None),
        ] {
            assert_eq!(of(&environment, server).as_deref(), expected, "{server}");
        }
    }
}
