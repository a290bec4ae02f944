//! One kubeconfig, or several merged ones: named clusters, users and contexts, each with the file that it came from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use machinery::codec::{Limits, yaml};
use serde_json::{Map, Value, json};

use super::types::{typed, unfit};
use crate::error::os_error;

/// The three lists of a kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Clusters,
    Users,
    Contexts,
}

impl Section {
    pub const ALL: [Section; 3] = [Section::Clusters, Section::Users, Section::Contexts];

    /// The list's name in the file.
    pub fn list(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Users => "users",
            Self::Contexts => "contexts",
        }
    }

    /// The name of one entry's content.
    pub fn one(self) -> &'static str {
        match self {
            Self::Clusters => "cluster",
            Self::Users => "user",
            Self::Contexts => "context",
        }
    }

    /// What Go calls an entry.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Clusters => "Cluster",
            Self::Users => "AuthInfo",
            Self::Contexts => "Context",
        }
    }

    /// What an entry may say; everything else is not kept, as upstream keeps it nowhere.
    pub fn fields(self) -> &'static [(&'static str, Field)] {
        use Field::{Bool, Bytes, Other, Path, Text};
        match self {
            Self::Clusters => &[
                ("server", Text),
                ("tls-server-name", Text),
                ("insecure-skip-tls-verify", Bool),
                ("certificate-authority", Path),
                ("certificate-authority-data", Bytes),
                ("proxy-url", Text),
                ("disable-compression", Bool),
                ("extensions", Other),
            ],
            Self::Users => &[
                ("client-certificate", Path),
                ("client-certificate-data", Bytes),
                ("client-key", Path),
                ("client-key-data", Bytes),
                ("token", Text),
                ("tokenFile", Path),
                ("as", Text),
                ("as-uid", Text),
                ("as-groups", Other),
                ("as-user-extra", Other),
                ("username", Text),
                ("password", Text),
                ("auth-provider", Other),
                ("exec", Other),
                ("extensions", Other),
            ],
            Self::Contexts => &[("cluster", Text), ("user", Text), ("namespace", Text), ("extensions", Other)],
        }
    }
}

/// What a field of an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Text,
    Bool,
    Bytes,
    /// A file, meant from where the kubeconfig lies.
    Path,
    Other,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    pub fields: Map<String, Value>,
    /// The file that it came from; empty for a new one.
    pub origin: PathBuf,
}

impl Entry {
    pub fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn flag(&self, field: &str) -> bool {
        self.fields.get(field).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Sets a field; an empty text takes it away, as upstream leaves empty fields out.
    pub fn set(&mut self, field: &str, value: impl Into<Value>) {
        let value = value.into();
        if value.as_str() == Some("") || value == Value::Bool(false) || value.is_null() {
            self.fields.remove(field);
        } else {
            self.fields.insert(field.to_owned(), value);
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    pub clusters: BTreeMap<String, Entry>,
    pub users: BTreeMap<String, Entry>,
    pub contexts: BTreeMap<String, Entry>,
    pub current: String,
    pub extensions: Vec<Value>,
    /// Whether the command itself reads standard input, so that no credential plug-in can.
    pub reads_input: bool,
}

impl Config {
    pub fn section(&self, section: Section) -> &BTreeMap<String, Entry> {
        match section {
            Section::Clusters => &self.clusters,
            Section::Users => &self.users,
            Section::Contexts => &self.contexts,
        }
    }

    pub fn section_mut(&mut self, section: Section) -> &mut BTreeMap<String, Entry> {
        match section {
            Section::Clusters => &mut self.clusters,
            Section::Users => &mut self.users,
            Section::Contexts => &mut self.contexts,
        }
    }

    /// Reads a file. Paths in it stay as they are.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let text = std::fs::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ReadError::Missing,
            std::io::ErrorKind::IsADirectory => ReadError::Other(format!(
                "error loading config file \"{0}\": {1}",
                path.display(),
                os_error("read", &path.display().to_string(), &error)
            )),
            _ => ReadError::Other(os_error("open", &path.display().to_string(), &error)),
        })?;
        Self::parse(&text, path)
            .map_err(|why| ReadError::Other(format!("error loading config file \"{}\": {why}", path.display())))
    }

    /// Reads text. Messages never quote it: it holds keys and tokens.
    pub fn parse(text: &[u8], origin: &Path) -> Result<Self, String> {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let tree = yaml::decode(text, Limits::default()).map_err(|error| {
            let words = error.message.trim_start_matches("error converting YAML to JSON: ").to_owned();
            if words.contains('`') { "yaml: not a kubeconfig".to_owned() } else { words }
        })?;
        Self::from_value(&tree.value, origin)
    }

    fn from_value(tree: &Value, origin: &Path) -> Result<Self, String> {
        let text = |name: &str| tree.get(name).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if !tree.is_object() {
            return Err("couldn't get version/kind; json parse error: json: cannot unmarshal the document".to_owned());
        }
        if !(kind.is_empty() || kind == "Config") || !(version.is_empty() || version == "v1") {
            return Err(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"k8s.io/client-go/tools/clientcmd/api/latest/latest.go:50\""
            ));
        }
        let mut config = Self { current: text("current-context").to_owned(), ..Self::default() };
        if let Some(extensions) = tree.get("extensions").and_then(Value::as_array) {
            config.extensions.clone_from(extensions);
        }
        for section in Section::ALL {
            let entries = tree.get(section.list()).filter(|entries| !entries.is_null());
            let of = format!("[]v1.Named{}", section.kind());
            let entries = match entries {
                None => &[][..],
                Some(Value::Array(entries)) => entries,
                Some(other) => return Err(unfit(other, &format!("Config.{}", section.list()), &of)),
            };
            for entry in entries {
                let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                let content = entry.get(section.one()).and_then(Value::as_object).cloned().unwrap_or_default();
                typed(section, &content)?;
                let known = |key: &String| section.fields().iter().any(|(name, _)| name == key);
                let fields = content.into_iter().filter(|(key, value)| known(key) && !value.is_null()).collect();
                let entry = Entry { fields, origin: origin.to_owned() };
                config.section_mut(section).entry(name).or_insert(entry);
            }
        }
        Ok(config)
    }

    /// The tree that is shown and written.
    pub fn to_value(&self) -> Value {
        let mut tree = json!({"apiVersion": "v1", "kind": "Config", "current-context": self.current});
        if !self.extensions.is_empty() {
            tree["extensions"] = Value::Array(self.extensions.clone());
        }
        for section in Section::ALL {
            let entries: Vec<Value> = self
                .section(section)
                .iter()
                .map(|(name, entry)| json!({"name": name, section.one(): shown(section, entry)}))
                .collect();
            tree[section.list()] = if entries.is_empty() { Value::Null } else { Value::Array(entries) };
        }
        tree
    }

    /// Keeps what the current context needs.
    pub fn minify(&mut self) -> Result<(), String> {
        if self.current.is_empty() {
            return Err("current-context must exist in order to minify".to_owned());
        }
        let Some(context) = self.contexts.get(&self.current).cloned() else {
            return Err("cannot locate context ".to_owned() + &self.current);
        };
        let current = self.current.clone();
        self.contexts.retain(|name, _| *name == current);
        let (cluster, user) = (context.text("cluster"), context.text("user"));
        if !cluster.is_empty() && !self.clusters.contains_key(cluster) {
            return Err(format!("cannot locate cluster {cluster}"));
        }
        if !user.is_empty() && !self.users.contains_key(user) {
            return Err(format!("cannot locate user {user}"));
        }
        self.users.retain(|name, _| name == user);
        self.clusters.retain(|name, _| name == cluster);
        Ok(())
    }

    /// Hides what nobody should read over a shoulder.
    pub fn redact(&mut self) {
        for section in Section::ALL {
            for entry in self.section_mut(section).values_mut() {
                for (name, field) in section.fields() {
                    if *field == Field::Bytes && entry.fields.contains_key(*name) {
                        entry.set(name, "DATA+OMITTED");
                    }
                }
                for secret in ["token", "password"] {
                    if section == Section::Users && !entry.text(secret).is_empty() {
                        entry.set(secret, "REDACTED");
                    }
                }
            }
        }
    }

    /// Puts the content of files in their place.
    pub fn flatten(&mut self) -> Result<(), String> {
        use base64::Engine as _;
        for section in Section::ALL {
            for entry in self.section_mut(section).values_mut() {
                for (name, field) in section.fields() {
                    let data = format!("{name}-data");
                    let path = entry.text(name).to_owned();
                    let embeds = section.fields().iter().any(|(other, _)| *other == data);
                    if *field != Field::Path || !embeds || path.is_empty() {
                        continue;
                    }
                    if entry.text(&data).is_empty() {
                        let base = entry.origin.parent().map(Path::to_owned).unwrap_or_default();
                        let bytes = std::fs::read(base.join(&path)).map_err(|error| os_error("open", &path, &error))?;
                        entry.set(&data, base64::engine::general_purpose::STANDARD.encode(bytes));
                    }
                    entry.set(name, "");
                }
            }
        }
        Ok(())
    }
}

/// An entry as it is shown. Fields that upstream writes even when they are empty are added.
fn shown(section: Section, entry: &Entry) -> Value {
    let mut fields = entry.fields.clone();
    let always: &[&str] = match section {
        Section::Clusters => &["server"],
        Section::Contexts => &["cluster", "user"],
        Section::Users => &[],
    };
    for name in always {
        fields.entry(*name).or_insert_with(|| "".into());
    }
    if let Some(Value::Object(exec)) = fields.get_mut("exec") {
        exec.entry("provideClusterInfo").or_insert(Value::Bool(false));
        for list in ["args", "env"] {
            exec.entry(list).or_insert(Value::Null);
        }
    }
    Value::Object(fields)
}

/// The order in which upstream writes these fields as JSON.
pub const ORDER: &[&str] = &[
    "kind",
    "apiVersion",
    "preferences",
    "name",
    "clusters",
    "users",
    "contexts",
    "current-context",
    "cluster",
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
    "username",
    "password",
    "auth-provider",
    "user",
    "context",
    "namespace",
    "command",
    "args",
    "env",
    "exec",
    "installHint",
    "provideClusterInfo",
    "interactiveMode",
    "extensions",
];

/// Why a file cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadError {
    Missing,
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
apiVersion: v1
kind: Config
preferences: {}
current-context: x
clusters:
- name: c
  cluster: {server: 'https://a', certificate-authority-data: QQ==, odd: 1}
contexts:
- name: x
  context: {cluster: c, user: u, namespace: team}
- name: other
  context: {cluster: c, user: u}
users:
- name: u
  user: {token: secret}
";

    #[test]
    fn fields_of_another_type_are_refused_and_never_quoted() {
        for (from, to, expected) in [
            (
                "namespace: team",
                "namespace: 3",
                "json: cannot unmarshal number into Go struct field Context.contexts.context.namespace of type string",
            ),
            ("QQ==", "'@@'", "illegal base64 data at input byte 0"),
            ("QQ==", "abc", "illegal base64 data at input byte 0"),
            (
                "token: secret",
                "token: [secret]",
                "json: cannot unmarshal array into Go struct field AuthInfo.users.user.token of type string",
            ),
        ] {
            let text = TEXT.replace(from, to);
            assert_eq!(Config::parse(text.as_bytes(), Path::new("/f")), Err(expected.to_owned()));
        }
        let list = Config::parse(b"clusters: 3", Path::new("/f"));
        assert_eq!(
            list,
            Err("json: cannot unmarshal number into Go struct field Config.clusters of type []v1.NamedCluster"
                .to_owned())
        );
    }

    fn config() -> Config {
        Config::parse(TEXT.as_bytes(), Path::new("/f")).expect("a kubeconfig")
    }

    #[test]
    fn what_is_shown_holds_no_secret_and_nothing_unknown() {
        let mut config = config();
        config.redact();
        let text = yaml::encode(&config.to_value());
        assert!(!text.contains("secret") && !text.contains("QQ==") && !text.contains("odd"), "{text}");
        assert!(
            text.contains("token: REDACTED") && text.contains("certificate-authority-data: DATA+OMITTED"),
            "{text}"
        );
    }

    #[test]
    fn minified_it_has_what_the_current_context_needs() {
        let mut config = config();
        config.minify().expect("a current context");
        assert_eq!(config.contexts.keys().collect::<Vec<_>>(), ["x"]);
        config.current = "other".to_owned();
        assert!(config.minify().is_err());
    }

    #[test]
    fn an_empty_one_shows_its_lists_as_null() {
        let text = yaml::encode(&Config::default().to_value());
        assert_eq!(
            text,
            "apiVersion: v1\nclusters: null\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n"
        );
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused() {
        assert!(Config::parse(b"kind: Pod\napiVersion: v1\n", Path::new("/f")).is_err());
        assert!(Config::parse(b"[1", Path::new("/f")).is_err());
        assert!(Config::parse(b" \n", Path::new("/f")).is_ok());
    }
}
