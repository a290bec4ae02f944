//! From a configuration and the flags that override it to a connection: where the server is, whom to trust, who we are.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::config::{Credentials, Plugin, Trust};
use http::{HeaderMap, HeaderName, HeaderValue};
use machinery::status::go_quote;
use serde_json::Value;

use super::file::{Config, Entry};
use super::inside::Inside;
use super::plugin::plugin;
use super::proxy;
use crate::error::{Failure, Outcome};
use crate::flags::Given;

/// Where kubectl looks when nothing says where the server is.
const NOWHERE: &str = "http://localhost:8080";
/// A request without a limit is given this long: longer than any server lets one take.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// All that a session needs to know about its server.
#[derive(Debug, Clone)]
pub struct Connection {
    pub client: client::Config,
    /// What goes with every request besides the credentials: impersonation, a password.
    pub headers: HeaderMap,
    pub namespace: String,
    /// Whether the namespace was said by a flag.
    pub namespace_given: bool,
    /// Whether requests carry a token that is known without a plug-in.
    pub has_token: bool,
    /// The program that gives credentials.
    pub plugin: Option<String>,
    /// `--request-timeout`, as it is told to the server.
    pub limit: Option<String>,
    /// `--match-server-version`.
    pub must_match: bool,
    /// What of it is the pod's own, as the log tells it: where, and what.
    pub of_pod: Vec<(&'static str, &'static str)>,
}

/// Flags that say something of a cluster, with the field that they override.
const CLUSTER: [(&str, &str); 5] = [
    ("server", "server"),
    ("proxy-url", "proxy-url"),
    ("tls-server-name", "tls-server-name"),
    ("certificate-authority", "certificate-authority"),
    ("insecure-skip-tls-verify", "insecure-skip-tls-verify"),
];
/// The same for a user.
const USER: [(&str, &str); 7] = [
    ("client-certificate", "client-certificate"),
    ("client-key", "client-key"),
    ("token", "token"),
    ("username", "username"),
    ("password", "password"),
    ("as", "as"),
    ("as-uid", "as-uid"),
];

impl Connection {
    pub fn new(config: &Config, inside: Option<&Inside>, flags: &Given) -> Outcome<Self> {
        let context = context(config, flags)?;
        let cluster_name = flags.given("cluster").unwrap_or(context.text("cluster"));
        let mut cluster = match config.clusters.get(cluster_name) {
            Some(cluster) => cluster.clone(),
            None if flags.given("cluster").is_none() => Entry::default(),
            // Who asks for the namespace first looks at the whole configuration first.
            None if flags.given("namespace").is_none() && !flags.changed("server") => {
                return Err(Failure::Message(format!("no server found for cluster {}", go_quote(cluster_name))));
            }
            None => return Err(Failure::Message(format!("cluster {} does not exist", go_quote(cluster_name)))),
        };
        let mut user =
            match (config.users.get(flags.given("user").unwrap_or(context.text("user"))), flags.given("user")) {
                (Some(user), _) => user.clone(),
                (None, None) => Entry::default(),
                (None, Some(name)) => {
                    return Err(Failure::Message(format!("auth info {} does not exist", go_quote(name))));
                }
            };
        let (namespace, of_pod) = namespace(&context, inside, flags);
        let mut of_pod =
            if of_pod { vec![("merged_client_builder.go:165", "Using in-cluster namespace")] } else { vec![] };
        if let Some(inside) = inside.filter(|_| in_cluster_wanted(config, flags)) {
            of_pod.push(("merged_client_builder.go:122", "Using in-cluster configuration"));
            (cluster, user) = (inside.cluster.clone(), inside.user.clone());
        }
        override_cluster(&mut cluster, flags);
        override_user(&mut user, flags);
        if flags.is("insecure-skip-tls-verify") && flags.given("certificate-authority").is_some() {
            return Err(Failure::message("specifying a root certificates file with the insecure flag is not allowed"));
        }
        let wrong = wrong(&cluster, context.text("cluster"), &user, context.text("user"));
        match &wrong[..] {
            [] => {}
            [one] if flags.given("namespace").is_none() => return Err(Failure::Message(one.clone())),
            _ => return Err(Failure::Configuration(wrong)),
        }
        let server = match cluster.text("server") {
            "" => NOWHERE.to_owned(),
            server if !server.contains("://") => format!("http://{server}"),
            server => server.trim_end_matches('/').to_owned(),
        };
        let mut made = client::Config::new(server);
        made.server_name = Some(cluster.text("tls-server-name").to_owned()).filter(|name| !name.is_empty());
        made.trust = trust(&cluster)?;
        made.credentials = credentials(&user, &cluster, config.reads_input)?;
        made.timeout = timeout(flags)?;
        made.proxy = Some(cluster.text("proxy-url").to_owned()).filter(|proxy| !proxy.is_empty());
        made.allows_plain = true;
        Ok(Self {
            client: made,
            headers: headers(&user)?,
            namespace,
            of_pod,
            has_token: !user.text("token").is_empty() || !user.text("tokenFile").is_empty(),
            namespace_given: flags.given("namespace").is_some(),
            plugin: user.fields.get("exec").and_then(|exec| exec["command"].as_str()).map(str::to_owned),
            limit: limit(flags)?,
            must_match: flags.is("match-server-version"),
        })
    }

    /// `host:port` of the server, for messages.
    pub fn host(&self) -> String {
        let rest = self.client.server.split_once("://").map_or(&*self.client.server, |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default().to_owned()
    }
}

fn context(config: &Config, flags: &Given) -> Outcome<Entry> {
    let name = flags.given("context").unwrap_or(&config.current);
    match config.contexts.get(name) {
        Some(context) => Ok(context.clone()),
        None if flags.given("context").is_some() && flags.given("namespace").is_some() => {
            Err(Failure::Message(format!("context {} does not exist", go_quote(name))))
        }
        None if !name.is_empty() => {
            Err(Failure::Configuration(vec![format!("context was not found for specified context: {name}")]))
        }
        None => Ok(Entry::default()),
    }
}

/// The namespace that is meant, and whether it is the pod's own.
fn namespace(context: &Entry, inside: Option<&Inside>, flags: &Given) -> (String, bool) {
    match (flags.given("namespace"), context.text("namespace"), inside) {
        (Some(given), ..) => (given.to_owned(), false),
        (None, "", Some(inside)) => (inside.namespace.clone(), true),
        (None, "", None) => ("default".to_owned(), false),
        (None, named, _) => (named.to_owned(), false),
    }
}

/// In a pod without any configuration, the pod's own account is used.
fn in_cluster_wanted(config: &Config, flags: &Given) -> bool {
    config.clusters.is_empty() && config.contexts.is_empty() && flags.given("server").is_none()
}

fn override_cluster(cluster: &mut Entry, flags: &Given) {
    for (flag, field) in CLUSTER {
        // An empty value overrides nothing.
        if flags.given(flag).is_none() {
            continue;
        }
        match field {
            // What the file says of it is taken back by an authority that is given, not by this flag.
            "insecure-skip-tls-verify" => {
                if flags.is(flag) {
                    cluster.set(field, true);
                    cluster.set("certificate-authority", "");
                    cluster.set("certificate-authority-data", "");
                }
            }
            _ => cluster.set(field, flags.text(flag)),
        }
    }
    // Another server has another name, unless that was given too.
    if flags.given("server").is_some() {
        cluster.set("tls-server-name", flags.text("tls-server-name"));
    }
    // An authority that was given is believed alone.
    if flags.given("certificate-authority").is_some() {
        cluster.set("certificate-authority-data", "");
        cluster.set("insecure-skip-tls-verify", flags.is("insecure-skip-tls-verify"));
    }
}

fn override_user(user: &mut Entry, flags: &Given) {
    for (flag, field) in USER {
        if flags.given(flag).is_some() {
            user.set(field, flags.text(flag));
            if matches!(field, "client-certificate" | "client-key") {
                user.set(&format!("{field}-data"), "");
            }
        }
    }
    if flags.given("token").is_some() {
        user.set("tokenFile", "");
        user.set("exec", Value::Null);
    }
    if flags.changed("as-group") {
        user.set("as-groups", flags.list("as-group").into_iter().map(Value::from).collect::<Vec<_>>());
    }
    if flags.changed("as-user-extra") {
        let mut extra = serde_json::Map::new();
        for pair in flags.list("as-user-extra") {
            let (key, value) = pair.split_once('=').unwrap_or((&pair, ""));
            let slot = extra.entry(key).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(values) = slot {
                values.push(value.into());
            }
        }
        user.set("as-user-extra", Value::Object(extra));
    }
}

/// What upstream checks before it asks anybody.
fn wrong(cluster: &Entry, cluster_name: &str, user: &Entry, user_name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let unreadable = |what: &str, entry: &Entry, field: &str, name: &str| {
        let path = entry.text(field);
        if path.is_empty() || !entry.text(&format!("{field}-data")).is_empty() {
            return None;
        }
        let error = std::fs::File::open(path).err()?;
        let why = crate::error::os_error("open", path, &error);
        Some(format!("unable to read {what} {path} for {name} due to {why}"))
    };
    if !user.text("client-certificate").is_empty() || !user.text("client-certificate-data").is_empty() {
        if user.text("client-key").is_empty() && user.text("client-key-data").is_empty() {
            wrong.push(format!(
                "client-key-data or client-key must be specified for {user_name} to use the clientCert authentication method."
            ));
        }
        wrong.extend(unreadable("client-cert", user, "client-certificate", user_name));
        wrong.extend(unreadable("client-key", user, "client-key", user_name));
    }
    let methods: Vec<&str> = [
        ("token", !user.text("token").is_empty()),
        ("basicAuth", !user.text("username").is_empty() || !user.text("password").is_empty()),
    ]
    .into_iter()
    .filter_map(|(method, used)| used.then_some(method))
    .collect();
    if methods.len() > 1 {
        let methods = methods.join(" ");
        wrong.push(format!(
            "more than one authentication method found for {user_name}; found [{methods}], only one is allowed"
        ));
    }
    if let Some(exec) = user.fields.get("exec").filter(|exec| exec.is_object())
        && exec["interactiveMode"].as_str().unwrap_or_default().is_empty()
        && exec["apiVersion"] == "client.authentication.k8s.io/v1"
    {
        wrong.push(format!("interactiveMode must be specified for {user_name} to use exec authentication plugin"));
    }
    let impersonates_more =
        ["as-uid", "as-groups", "as-user-extra"].iter().any(|field| user.fields.contains_key(*field));
    if impersonates_more && user.text("as").is_empty() {
        wrong.push(format!("requesting uid, groups or user-extra for {user_name} without impersonating a user"));
    }
    if let Some(why) = proxy::wrong(cluster.text("proxy-url")) {
        wrong.push(format!(
            "invalid 'proxy-url' {} for cluster {}: {why}",
            go_quote(cluster.text("proxy-url")),
            go_quote(cluster_name)
        ));
    }
    wrong.extend(unreadable("certificate-authority", cluster, "certificate-authority", cluster_name));
    wrong
}

pub(super) fn content(entry: &Entry, field: &str) -> Outcome<Option<Vec<u8>>> {
    let data: String = entry.text(&format!("{field}-data")).split_ascii_whitespace().collect();
    if !data.is_empty() {
        let decoded = STANDARD.decode(data).map_err(|error| Failure::Message(format!("{field}-data: {error}")))?;
        return Ok(Some(decoded));
    }
    let path = entry.text(field);
    if path.is_empty() {
        return Ok(None);
    }
    let read = std::fs::read(path).map_err(|error| Failure::Message(crate::error::os_error("open", path, &error)))?;
    Ok(Some(read))
}

fn trust(cluster: &Entry) -> Outcome<Trust> {
    if cluster.flag("insecure-skip-tls-verify") {
        return Ok(Trust::Insecure);
    }
    match content(cluster, "certificate-authority")? {
        None => Ok(Trust::System),
        Some(pem) => Trust::bundle(&pem).map_err(|_| {
            Failure::Message("unable to load root certificates: unable to parse bytes as PEM block".to_owned())
        }),
    }
}

fn credentials(user: &Entry, cluster: &Entry, reads_input: bool) -> Outcome<Credentials> {
    let failed = |error: client::config::Error| Failure::Message(error.to_string());
    let credentials = if !user.text("token").is_empty() {
        Credentials::token(user.text("token")).map_err(failed)?
    } else if !user.text("tokenFile").is_empty() {
        Credentials::token_file(user.text("tokenFile"))
    } else if let Some(exec) = user.fields.get("exec").filter(|exec| exec.is_object() && !says_who(user)) {
        let plugin = plugin(exec, &user.origin, cluster)?;
        let input_taken = reads_input.then_some("used by stdin resource manifest reader");
        Credentials::plugin(Plugin { input_taken, ..plugin })
    } else if user.fields.contains_key("auth-provider") {
        let name = user.fields["auth-provider"].get("name").and_then(Value::as_str).unwrap_or_default();
        return Err(Failure::Message(match name {
            "gcp" => "The gcp auth plugin has been removed.\nPlease use the \"gke-gcloud-auth-plugin\" kubectl/client-go credential plugin instead.\nSee https://cloud.google.com/blog/products/containers-kubernetes/kubectl-auth-changes-in-gke for further details".to_owned(),
            "azure" => "The azure auth plugin has been removed.\nPlease use the https://github.com/Azure/kubelogin kubectl/client-go credential plugin instead.\nSee https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins for further details".to_owned(),
            name => format!("no Auth Provider found for name {}", go_quote(name)),
        }));
    } else {
        Credentials::default()
    };
    match (content(user, "client-certificate")?, content(user, "client-key")?) {
        (Some(chain), Some(key)) => credentials.and_certificate(&chain, &key).map_err(failed),
        _ => Ok(credentials),
    }
}

/// Whether a password or a certificate says who it is, so that no plug-in is asked.
fn says_who(user: &Entry) -> bool {
    let any = |names: &[&str]| names.iter().any(|name| !user.text(name).is_empty());
    any(&["username", "password"])
        || any(&["client-certificate", "client-certificate-data"]) && any(&["client-key", "client-key-data"])
}

fn headers(user: &Entry) -> Outcome<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &str| -> Outcome {
        let odd = || Failure::Message(format!("{} cannot be sent as a header", go_quote(value)));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| odd())?;
        headers.append(name, HeaderValue::from_str(value).map_err(|_| odd())?);
        Ok(())
    };
    if !user.text("as").is_empty() {
        add("impersonate-user", user.text("as"))?;
    }
    if !user.text("as-uid").is_empty() {
        add("impersonate-uid", user.text("as-uid"))?;
    }
    for group in user.fields.get("as-groups").and_then(Value::as_array).into_iter().flatten() {
        add("impersonate-group", group.as_str().unwrap_or_default())?;
    }
    for (key, values) in user.fields.get("as-user-extra").and_then(Value::as_object).into_iter().flatten() {
        let key = percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string();
        let key = key.replace("%2D", "-").replace("%2E", ".").replace("%5F", "_");
        for value in values.as_array().into_iter().flatten() {
            add(&format!("impersonate-extra-{key}"), value.as_str().unwrap_or_default())?;
        }
    }
    if !user.text("username").is_empty() && user.text("token").is_empty() {
        let pair = STANDARD.encode(format!("{}:{}", user.text("username"), user.text("password")));
        add("authorization", &format!("Basic {pair}"))?;
        if let Some(value) = headers.get_mut("authorization") {
            value.set_sensitive(true);
        }
    }
    Ok(headers)
}

fn timeout(flags: &Given) -> Outcome<Duration> {
    let nanos = timeout_nanos(flags)?;
    Ok(if nanos <= 0 { FOREVER } else { Duration::from_nanos(nanos.unsigned_abs()) })
}

fn limit(flags: &Given) -> Outcome<Option<String>> {
    let nanos = timeout_nanos(flags)?;
    Ok((nanos != 0).then(|| machinery::duration::format_nanos(nanos)))
}

fn timeout_nanos(flags: &Given) -> Outcome<i64> {
    let text = flags.text("request-timeout");
    Ok(match text.parse::<i64>() {
        Ok(seconds) => seconds.saturating_mul(1_000_000_000),
        Err(_) => machinery::duration::parse_nanos(text).map_err(|_| {
            Failure::message(
                "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a corresponding time unit (e.g. 1s | 2m | 3h)",
            )
        })?,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::flags::{self, sets};

    const TEXT: &str = "
current-context: x
clusters:
- {name: c, cluster: {server: 'https://a:1/base/', insecure-skip-tls-verify: true}}
- {name: d, cluster: {server: 'https://d'}}
contexts:
- {name: x, context: {cluster: c, user: u, namespace: team}}
- {name: other, context: {cluster: missing, user: u}}
users:
- {name: u, user: {token: t}}
- {name: e, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: c, interactiveMode: Never}}}
";

    fn connection(line: &str) -> Outcome<Connection> {
        let config = Config::parse(TEXT.as_bytes(), Path::new("/f")).expect("a kubeconfig");
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Connection::new(&config, None, &flags::parse(sets::GLOBAL, &words).expect("flags"))
    }

    #[test]
    fn flags_win_over_the_file() {
        let plain = connection("").expect("a connection");
        assert_eq!((plain.client.server.as_str(), plain.namespace.as_str()), ("https://a:1/base", "team"));
        assert_eq!((plain.host().as_str(), plain.namespace_given), ("a:1", false));
        assert!(matches!(plain.client.trust, Trust::Insecure), "what the file says of certificates holds");
        let other = connection("--cluster d -n m --as me --as-group g --as-group h").expect("a connection");
        assert_eq!((other.client.server.as_str(), other.namespace.as_str()), ("https://d", "m"));
        assert_eq!(other.headers.get_all("impersonate-group").iter().count(), 2);
        let server = connection("-s https://else:2").expect("a connection");
        assert_eq!(server.client.server, "https://else:2");
        let through = connection("--proxy-url=http://p:3").expect("a connection");
        assert_eq!(through.client.proxy.as_deref(), Some("http://p:3"));
    }

    #[test]
    fn in_a_pod_what_no_file_says_is_the_pods_own() {
        let mut inside = Inside { cluster: Entry::default(), user: Entry::default(), namespace: "pods".to_owned() };
        inside.cluster.set("server", "https://10.0.0.1:443");
        inside.user.set("tokenFile", "/nowhere/token");
        let made = |text: &str, line: &str| {
            let config = Config::parse(text.as_bytes(), Path::new("/f")).expect("a kubeconfig");
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let flags = flags::parse(sets::GLOBAL, &words).expect("flags");
            let made = Connection::new(&config, Some(&inside), &flags).expect("a connection");
            let told: Vec<&str> = made.of_pod.iter().map(|(_, text)| *text).collect();
            (
                made.client.server.clone(),
                made.namespace.clone(),
                told.join(", "),
                format!("{:?}", made.client.credentials),
            )
        };
        let (server, namespace, told, _) = made("", "");
        assert_eq!((server.as_str(), namespace.as_str()), ("https://10.0.0.1:443", "pods"));
        assert_eq!(told, "Using in-cluster namespace, Using in-cluster configuration");
        assert_eq!(made("", "-n m").2, "Using in-cluster configuration");
        assert_eq!(
            (made("", "-s invalid").0, made("", "-s invalid").2),
            ("http://invalid".to_owned(), "Using in-cluster namespace".to_owned())
        );
        assert_ne!(made("", "--token t").3, made("", "").3, "a token that is given is sent");
        let (server, namespace, told, _) = made(TEXT, "");
        assert_eq!((server.as_str(), namespace.as_str(), told.as_str()), ("https://a:1/base", "team", ""));
    }

    #[test]
    fn a_password_leaves_no_question_to_a_plugin() {
        let asked = |line: &str| format!("{:?}", connection(line).expect("one").client.credentials).contains("lugin");
        assert!(asked("--user e"));
        assert!(!asked("--user e --username a --password b"));
        let error = connection("--insecure-skip-tls-verify --certificate-authority f").expect_err("refused").render();
        assert_eq!(error, "error: specifying a root certificates file with the insecure flag is not allowed");
    }

    #[test]
    fn what_is_named_must_be_there() {
        for (line, expected) in [
            ("--context z", "Error in configuration: context was not found for specified context: z\n"),
            ("--cluster z", "error: no server found for cluster \"z\""),
            ("--context z -n m", "error: context \"z\" does not exist"),
            ("--cluster z -n m", "error: cluster \"z\" does not exist"),
            ("--user z", "error: auth info \"z\" does not exist"),
        ] {
            assert_eq!(connection(line).err().map(|error| error.render()).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn impersonating_details_without_a_user_is_refused() {
        let error = connection("--as-group g").expect_err("refused").render();
        assert_eq!(error, "error: requesting uid, groups or user-extra for u without impersonating a user");
        let error = connection("--as-group g -n m").expect_err("refused").render();
        assert!(error.starts_with("Error in configuration: requesting uid"), "{error}");
        // A cluster that the context names and nobody knows is no cluster.
        assert_eq!(connection("--context other").expect("a connection").client.server, NOWHERE);
    }
}
