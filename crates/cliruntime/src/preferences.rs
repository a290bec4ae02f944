//! kuberc: what a user prefers. Defaults of flags, other names for commands, and which credential plug-ins may run.

use std::path::{Path, PathBuf};

use machinery::codec::{Limits, yaml};
use machinery::value::{list, text};
use serde_json::Value;

use crate::command::Environment;
use crate::error::os_error;
use crate::flags::Given;

/// What a file says.
#[derive(Debug, Default, Clone)]
pub struct Preferences {
    tree: Value,
}

/// An alias in place of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Alias {
    /// The command line that it stands for.
    pub arguments: Vec<String>,
    /// Flags that it sets where the user does not.
    pub options: Vec<(String, String)>,
}

/// The file, and whether it was asked for; nothing where preferences are turned off.
pub fn place(environment: &Environment, flag: &str) -> Result<Option<(PathBuf, bool)>, String> {
    let variable = environment.variable("KUBERC");
    if variable == Some("off") {
        if !flag.is_empty() {
            return Err("disabling kuberc via KUBERC=off and passing kuberc flag are mutually exclusive".to_owned());
        }
        return Ok(None);
    }
    if !flag.is_empty() {
        return Ok(Some((environment.path(flag), true)));
    }
    if let Some(file) = variable {
        return Ok(Some((environment.path(file), true)));
    }
    Ok(Some((environment.home().join(".kube/kuberc"), false)))
}

/// `--kuberc` on a command line that was not read yet.
pub fn given_place(arguments: &[String]) -> String {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if let Some(file) = word.strip_prefix("--kuberc=") {
            return file.to_owned();
        }
        if word == "--kuberc" {
            return words.next().cloned().unwrap_or_default();
        }
    }
    String::new()
}

/// How much is to be logged, as far as it can be seen before flags are known.
fn given_level(arguments: &[String]) -> i64 {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    let mut level = "0";
    while let Some(word) = words.next() {
        if let "-v" | "--v" = word.as_str() {
            level = words.next().map_or("0", String::as_str);
        } else if let Some(given) = word.strip_prefix("--v=").or_else(|| word.strip_prefix("-v=")) {
            level = given;
        }
    }
    level.parse().unwrap_or_default()
}

impl Preferences {
    /// As the command line says, which may want to hear of a file that says nothing.
    pub fn of(environment: &Environment, arguments: &[String]) -> Result<(Self, Option<String>), String> {
        let place = given_place(arguments);
        let (preferences, complaint) = Self::load(environment, &place)?;
        let told = complaint.is_none() && preferences.tree.is_null() && !matches!(&*place, "" | "off");
        if told && given_level(arguments) >= 5 {
            let text = format!("kuberc: no preferences found in {place}");
            return Ok((preferences, Some(crate::streams::log_line('I', "marshal.go:103", &text))));
        }
        Ok((preferences, complaint))
    }

    /// What the user's file says, if there is one; and what is wrong with it, where that does not matter.
    pub fn load(environment: &Environment, flag: &str) -> Result<(Self, Option<String>), String> {
        if environment.variable("KUBECTL_KUBERC") == Some("false") {
            return Ok((Self::default(), None));
        }
        let found = place(environment, flag).map_err(|error| format!("kuberc error {error}"))?;
        let Some((file, wanted)) = found else { return Ok((Self::default(), None)) };
        match read(&file) {
            Ok(Some(tree)) => {
                let odd = unknown(&tree).map(|field| {
                    let why = format!("strict decoding error: unknown field {field:?}");
                    format!("kuberc: ignoring strict decoding error in {}: {why}", file.display())
                });
                Ok((Self { tree }, odd))
            }
            Ok(None) if wanted => {
                let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
                Err(format!("kuberc error kuberc: {}", os_error("open", &file.display().to_string(), &missing)))
            }
            Ok(None) => Ok((Self::default(), None)),
            Err(error) if wanted => Err(format!("kuberc error kuberc: {error}")),
            Err(error) => {
                Ok((Self::default(), Some(format!("kuberc: no preferences loaded from {}: {error}", file.display()))))
            }
        }
    }

    /// Whether every alias could be typed.
    pub fn check(&self) -> Result<(), String> {
        let odd = |alias: &Value| {
            let name = text(alias, "name");
            name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphabetic())
        };
        if list(&self.tree, "aliases").iter().any(odd) {
            return Err("invalid alias name, can only include alphabetical characters".to_owned());
        }
        Ok(())
    }

    fn options(entry: &Value) -> Vec<(String, String)> {
        // Earlier versions of the file called them flags.
        let named = if entry.get("options").is_some() { "options" } else { "flags" };
        let pair = |option: &Value| (text(option, "name").to_owned(), text(option, "default").to_owned());
        list(entry, named).iter().map(pair).collect()
    }

    /// The alias of this name. `arguments` is the whole command line, and `at` is where the name stands in it.
    pub fn alias(&self, arguments: &[String], at: usize) -> Option<Alias> {
        let alias = list(&self.tree, "aliases").iter().find(|alias| text(alias, "name") == arguments[at])?;
        let words = |name: &str| list(alias, name).iter().filter_map(Value::as_str).map(str::to_owned);
        let mut line: Vec<String> = arguments[..at].to_vec();
        line.extend(text(alias, "command").split_whitespace().map(str::to_owned));
        line.extend(words("prependArgs"));
        line.extend(arguments[at + 1..].iter().cloned());
        line.extend(words("appendArgs"));
        Some(Alias { arguments: line, options: Self::options(alias) })
    }

    /// The names of aliases, each with the command that it stands for.
    pub fn aliases(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let pair = |alias: &Value| (text(alias, "name").to_owned(), format!("alias for {}", text(alias, "command")));
        list(&self.tree, "aliases").iter().map(pair)
    }

    /// What a command's flags are where the user does not say.
    pub fn defaults(&self, command: &str) -> Vec<(String, String)> {
        let fits = |entry: &&Value| text(entry, "command").split_whitespace().eq(command.split_whitespace());
        // Earlier versions of the file called them overrides.
        let all = list(&self.tree, "defaults").iter().chain(list(&self.tree, "overrides"));
        all.filter(fits).flat_map(Self::options).collect()
    }

    /// What is wrong with the rules for credential plug-ins. They are a safety catch: who mistypes them must hear of it.
    fn check_plugin_policy(&self) -> Result<(), String> {
        let allowed = self.tree.get("credentialPluginAllowlist").filter(|list| !list.is_null());
        let policy = text(&self.tree, "credentialPluginPolicy");
        if policy != "Allowlist" {
            return match allowed {
                Some(_) if matches!(policy, "" | "AllowAll" | "DenyAll") => Err(format!(
                    "misconfigured credential plugin allowlist: plugin policy is {policy:?} but allowlist is non-nil"
                )),
                _ => Ok(()),
            };
        }
        let set = "credential plugin policy set to \"Allowlist\", but allowlist is";
        let entries = match allowed.map(|list| list.as_array().map(Vec::as_slice).unwrap_or_default()) {
            None => return Err(format!("{set} unspecified")),
            Some([]) => return Err(format!("{set} empty; use \"DenyAll\" policy instead")),
            Some(entries) => entries,
        };
        for (at, entry) in entries.iter().enumerate() {
            let command = allowed_command(entry);
            if command.is_empty() {
                return Err(format!("misconfigured credential plugin allowlist: empty allowlist entry #{}", at + 1));
            }
            let cleaned = crate::config::load::clean(Path::new(command));
            if cleaned != command {
                return Err(format!("non-normalized file path: {command:?} vs {cleaned:?}"));
            }
        }
        Ok(())
    }

    /// Whether a credential plug-in may run.
    pub fn allows_plugin(&self, environment: &Environment, command: &str) -> Result<(), String> {
        self.check_plugin_policy()?;
        match text(&self.tree, "credentialPluginPolicy") {
            "" | "AllowAll" => Ok(()),
            "DenyAll" => Err(format!("plugin {command:?} not allowed: policy set to \"DenyAll\"")),
            "Allowlist" => {
                let found = |name: &str| match name.contains('/') {
                    true => Some(PathBuf::from(name)),
                    false => crate::program::find(environment, name),
                };
                let own = found(command);
                let allowed = list(&self.tree, "credentialPluginAllowlist");
                if own.is_some() && allowed.iter().any(|entry| found(allowed_command(entry)) == own) {
                    return Ok(());
                }
                let path = own.map_or_else(|| command.to_owned(), |path| path.display().to_string());
                Err(format!("plugin path {path:?} is not permitted by the credential plugin allowlist"))
            }
            other => Err(format!("unknown plugin policy: {other:?}")),
        }
    }
}

/// The program that an entry of the list allows; earlier versions of the file called it a name.
fn allowed_command(entry: &Value) -> &str {
    match text(entry, "command") {
        "" => text(entry, "name"),
        command => command,
    }
}

/// A file of preferences; nothing where there is none.
pub fn read(file: &Path) -> Result<Option<Value>, String> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(os_error("open", &file.display().to_string(), &error)),
    };
    let text_of = String::from_utf8_lossy(&bytes);
    let mut attempted = false;
    // The first document that can be used counts.
    for document in text_of.split("\n---").filter(|document| !document.trim_matches(['-', '\n', ' ']).is_empty()) {
        attempted = true;
        let Ok(decoded) = yaml::decode(document.as_bytes(), Limits::default()) else { continue };
        let known = ["kubectl.config.k8s.io/v1beta1", "kubectl.config.k8s.io/v1alpha1"];
        let tree = decoded.value;
        if text(&tree, "kind") == "Preference" && known.contains(&text(&tree, "apiVersion")) {
            return Ok(Some(tree));
        }
    }
    if attempted {
        return Err(format!("no valid preferences found in {}, use --v=5 to see details", file.display()));
    }
    // There are no preferences in an empty file.
    Ok(Some(Value::Null))
}

/// A field that preferences do not have.
fn unknown(tree: &Value) -> Option<&str> {
    const KNOWN: [&str; 7] = [
        "apiVersion",
        "kind",
        "aliases",
        "defaults",
        "overrides",
        "credentialPluginPolicy",
        "credentialPluginAllowlist",
    ];
    tree.as_object()?.keys().map(String::as_str).find(|field| !KNOWN.contains(field))
}

/// Sets flags that were not given.
pub fn fill(given: &mut Given, options: &[(String, String)], of: &str) -> Result<(), String> {
    for (name, value) in options {
        if !given.knows(name) {
            return Err(format!("invalid flag {name} for command {of}"));
        }
        if !given.changed(name) {
            given.set_checked(name, value).map_err(|why| {
                format!("could not apply override value {value} to flag {name} in command {of} err: {why}")
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn aliases_stand_for_command_lines() {
        let tree = json!({"aliases": [{"name": "getn", "command": "get", "prependArgs": ["node"], "appendArgs": ["--", "x"],
            "options": [{"name": "output", "default": "wide"}]}], "defaults": [{"command": "set env", "options": [{"name": "a", "default": "b"}]}]});
        let preferences = Preferences { tree };
        let alias = preferences.alias(&own("-n y getn a"), 2).expect("an alias");
        assert_eq!(alias.arguments, own("-n y get node a -- x"));
        assert_eq!(alias.options, [("output".to_owned(), "wide".to_owned())]);
        assert_eq!(preferences.alias(&own("other"), 0), None);
        assert_eq!(preferences.defaults("set env").len(), 1);
        assert!(preferences.defaults("set").is_empty());
    }

    #[test]
    fn files_may_have_several_documents_and_odd_fields() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("kuberc");
        let environment = Environment::default();
        let load = |text: &str| {
            std::fs::write(&file, text).expect("a file");
            Preferences::load(&environment, &file.display().to_string())
        };
        let newer = "kind: Preference\napiVersion: kubectl.config.k8s.io/v9\n";
        let own = "kind: Preference\napiVersion: kubectl.config.k8s.io/v1alpha1\noverrides: [{command: get, flags: [{name: a, default: b}]}]\n";
        let (found, complaint) = load(&format!("{newer}---\n{own}")).expect("preferences");
        assert_eq!((found.defaults("get").len(), complaint), (1, None));
        let (found, complaint) = load(&format!("{own}other: 1\n---\n{newer}")).expect("preferences");
        assert_eq!(found.defaults("get").len(), 1);
        assert!(complaint.is_some_and(|words| words.ends_with("strict decoding error: unknown field \"other\"")));
        assert!(load("").expect("nothing").1.is_none());
        assert!(load(newer).expect_err("refused").ends_with("use --v=5 to see details"));
        let odd = load(&format!("{own}aliases: [{{name: a-b, command: get}}]")).expect("preferences").0;
        assert!(odd.check().is_err());
    }

    #[test]
    fn plugins_are_judged_by_the_policy() {
        let preferences = |tree: Value| Preferences { tree };
        let environment = Environment::default();
        assert!(preferences(json!({})).allows_plugin(&environment, "/bin/x").is_ok());
        assert!(
            preferences(json!({"credentialPluginPolicy": "DenyAll"})).allows_plugin(&environment, "/bin/x").is_err()
        );
        let listed = preferences(
            json!({"credentialPluginPolicy": "Allowlist", "credentialPluginAllowlist": [{"command": "/bin/x"}]}),
        );
        assert!(listed.allows_plugin(&environment, "/bin/x").is_ok());
        assert!(listed.allows_plugin(&environment, "/bin/y").is_err());
        for (tree, expected) in [
            (
                json!({"credentialPluginPolicy": "AllowAll", "credentialPluginAllowlist": []}),
                "misconfigured credential plugin allowlist: plugin policy is \"AllowAll\" but allowlist is non-nil",
            ),
            (
                json!({"credentialPluginAllowlist": [{"command": "/bin/x"}]}),
                "misconfigured credential plugin allowlist: plugin policy is \"\" but allowlist is non-nil",
            ),
            (
                json!({"credentialPluginPolicy": "Allowlist"}),
                "credential plugin policy set to \"Allowlist\", but allowlist is unspecified",
            ),
            (
                json!({"credentialPluginPolicy": "Allowlist", "credentialPluginAllowlist": []}),
                "credential plugin policy set to \"Allowlist\", but allowlist is empty; use \"DenyAll\" policy instead",
            ),
            (
                json!({"credentialPluginPolicy": "Allowlist", "credentialPluginAllowlist": [{"command": "/bin/x"}, {}]}),
                "misconfigured credential plugin allowlist: empty allowlist entry #2",
            ),
            (
                json!({"credentialPluginPolicy": "Allowlist", "credentialPluginAllowlist": [{"command": "/bin/../x"}]}),
                "non-normalized file path: \"/bin/../x\" vs \"/x\"",
            ),
        ] {
            assert_eq!(preferences(tree).allows_plugin(&environment, "/bin/x"), Err(expected.to_owned()));
        }
    }

    #[test]
    fn the_file_may_be_named_on_the_command_line() {
        assert_eq!(given_place(&own("get --kuberc x pods")), "x");
        assert_eq!(given_place(&own("get --kuberc=y")), "y");
        assert_eq!(given_place(&own("get -- --kuberc=y")), "");
        assert_eq!(
            ["get -v 5 x", "get --v=5", "get -- -v=5", "get --v x"].map(|line| given_level(&own(line))),
            [5, 5, 0, 0]
        );
    }
}
