//! `/etc/trireme/config.yaml`: the options of `trireme server` or `trireme agent` as a file, every flag a key of the same name.
//!
//! ```yaml
//! data-dir: /var/lib/trireme
//! tls-san: [api.example.com, 10.0.0.100]
//! disable-agent: true
//! ```
//! Files in `config.yaml.d` beside it follow in the order of their names; a later file takes an option over from an earlier one, and the command line from
//! all of them. So there is one place that knows options: the command line's. A key that is none, or a value that cannot be one, is refused with the file and
//! the line that it is on.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, CommandFactory as _};
use serde_json::Value;

use crate::cli::Cli;

/// Where it is looked for, unless `--config` names another.
pub const FILE: &str = "/etc/trireme/config.yaml";
/// The commands that have one.
const COMMANDS: [&str; 2] = ["server", "agent"];

/// Why a file cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{}: {message}", path.display())]
    File { path: PathBuf, message: String },
    #[error("{}, line {line}: {message}", path.display())]
    Line { path: PathBuf, line: usize, message: String },
}

/// The command line with what the files say, where there are any and the command has some.
pub fn expanded(line: Vec<OsString>) -> Result<Vec<OsString>, Error> {
    let Some(place) = line.iter().position(|word| COMMANDS.iter().any(|command| word == *command)) else {
        return Ok(line);
    };
    // A word before it that is no option makes it an argument of another command.
    if line[1..place].iter().any(|word| !word.to_string_lossy().starts_with('-')) {
        return Ok(line);
    }
    let named = named(&line[place..]);
    let file = named.clone().unwrap_or_else(|| FILE.into());
    if named.is_none() && !file.exists() {
        return Ok(line);
    }
    let mut texts = Vec::new();
    for path in [file.clone()].into_iter().chain(drop_ins(&file)) {
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::File { path: path.clone(), message: error.to_string() })?;
        texts.push((path, text));
    }
    let command = line[place].to_string_lossy().into_owned();
    let mut words = options(&command, &texts, &line[place + 1..])?;
    let mut all = line;
    let rest = all.split_off(place + 1);
    all.append(&mut words);
    all.extend(rest);
    Ok(all)
}

/// The file that `--config` names.
fn named(line: &[OsString]) -> Option<PathBuf> {
    let mut words = line.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().map(|path| PathBuf::from(path.as_ref()));
        }
        if let Some(path) = word.strip_prefix("--config=") {
            return Some(path.into());
        }
    }
    None
}

/// The files beside it, in the order of their names.
fn drop_ins(file: &Path) -> Vec<PathBuf> {
    let mut directory = file.as_os_str().to_owned();
    directory.push(".d");
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    files
}

/// What the files say, as words of a command line, but for what the command line says itself.
fn options(command: &str, texts: &[(PathBuf, String)], given: &[OsString]) -> Result<Vec<OsString>, Error> {
    let cli = Cli::command();
    let Some(command) = cli.find_subcommand(command) else { return Ok(Vec::new()) };
    let mut chosen: Vec<(String, Vec<OsString>)> = Vec::new();
    for (path, text) in texts {
        let tree: Value = serde_saphyr::from_str(text)
            .map_err(|error| Error::File { path: path.clone(), message: error.to_string() })?;
        let map = match tree {
            Value::Object(map) => map,
            Value::Null => continue,
            _ => return Err(Error::File { path: path.clone(), message: "it is not a map of options".to_owned() }),
        };
        for (key, value) in map {
            let wrong = |message: String| Error::Line { path: path.clone(), line: line_of(text, &key), message };
            let known = |arg: &&Arg| is_named(arg, &key) && !matches!(key.as_str(), "config" | "help");
            let Some(arg) = command.get_arguments().find(known) else {
                upstream_words(command.get_name(), &key, &value, &mut chosen).map_err(wrong)?;
                continue;
            };
            let words = words(arg, &key, &value).map_err(wrong)?;
            chosen.retain(|(other, _)| other != arg.get_id().as_str());
            if !is_given(arg, given) {
                chosen.push((arg.get_id().to_string(), words));
            }
        }
    }
    Ok(chosen.into_iter().flat_map(|(_, words)| words).collect())
}

/// A flag of upstream's that is no option of ours: read as it would be on the command line, so that a mistake is told with its line here.
fn upstream_words(
    command: &str,
    key: &str,
    value: &Value,
    chosen: &mut Vec<(String, Vec<OsString>)>,
) -> Result<(), String> {
    if key == "config" || !crate::upstream::knows(command, key) {
        return Err(format!("`trireme {command}` has no option {key}"));
    }
    let texts = match value {
        Value::Array(list) => list.iter().map(|value| plain(key, value)).collect::<Result<Vec<_>, _>>()?.join(","),
        value => plain(key, value)?,
    };
    let word: OsString = format!("--{key}={texts}").into();
    crate::upstream::translated(&Cli::command(), vec!["trireme".into(), command.into(), word.clone()])?;
    chosen.retain(|(other, _)| other != key);
    chosen.push((key.to_owned(), vec![word]));
    Ok(())
}

/// The text of a value that is no list.
fn plain(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        _ => Err(format!("{key} has a value that is neither text, number nor truth, nor a list of them")),
    }
}

fn is_named(arg: &Arg, name: &str) -> bool {
    arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

fn is_given(arg: &Arg, given: &[OsString]) -> bool {
    given.iter().any(|word| {
        let word = word.to_string_lossy();
        let Some(name) = word.strip_prefix("--") else { return false };
        is_named(arg, name.split_once('=').map_or(name, |(name, _)| name))
    })
}

/// One option as words of a command line.
fn words(arg: &Arg, key: &str, value: &Value) -> Result<Vec<OsString>, String> {
    let switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let one = |value: &Value| plain(key, value);
    match value {
        Value::Bool(true) if switch => Ok(vec![format!("--{key}").into()]),
        Value::Bool(false) if switch => Ok(Vec::new()),
        _ if switch => Err(format!("{key} is true or false")),
        Value::Array(list) => list.iter().map(|value| Ok(format!("--{key}={}", one(value)?).into())).collect(),
        value => Ok(vec![format!("--{key}={}", one(value)?).into()]),
    }
}

/// The line that a key is on, counted from one.
fn line_of(text: &str, key: &str) -> usize {
    let has = |line: &str| {
        line.trim_start()
            .trim_matches('"')
            .strip_prefix(key)
            .is_some_and(|rest| rest.trim_start_matches('"').trim_start().starts_with(':'))
    };
    text.lines().position(has).map_or(1, |line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(texts: &[&str], given: &str) -> Result<String, String> {
        let texts: Vec<(PathBuf, String)> =
            texts.iter().enumerate().map(|(at, text)| (format!("{at}.yaml").into(), (*text).to_owned())).collect();
        let given: Vec<OsString> = given.split_whitespace().map(Into::into).collect();
        let words = options("server", &texts, &given).map_err(|error| error.to_string())?;
        Ok(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn every_flag_is_a_key_and_later_words_win() {
        assert_eq!(
            check(&["data-dir: /d\ntls-san: [a, b]\ndisable-agent: true\nhttps-port: 7443\n"], "").as_deref(),
            Ok("--data-dir=/d --disable-agent --https-port=7443 --tls-san=a --tls-san=b")
        );
        assert_eq!(check(&["disable-agent: false"], "").as_deref(), Ok(""));
        assert_eq!(check(&["https-port: 1", "https-port: 2"], "").as_deref(), Ok("--https-port=2"));
        assert_eq!(check(&["secure-port: 1"], "--https-port 3").as_deref(), Ok(""), "by any of its names");
        assert_eq!(check(&["https-port: 1\ndata-dir: /d"], "--data-dir=/e").as_deref(), Ok("--https-port=1"));
        assert_eq!(check(&["", "# nothing"], "").as_deref(), Ok(""));
        assert_eq!(
            check(&["eviction-hard: memory.available<5%"], "").as_deref(),
            Ok("--eviction-hard=memory.available<5%")
        );
        assert_eq!(check(&["anonymous-auth: false"], "").as_deref(), Ok("--anonymous-auth=false"));
    }

    #[test]
    fn mistakes_name_the_file_and_the_line() {
        for (text, expect) in [
            ("data-dir: /d\nnonsense: 1\n", "0.yaml, line 2: `trireme server` has no option nonsense"),
            ("data-dir: /d\n\ndisable-agent: maybe\n", "0.yaml, line 3: disable-agent is true or false"),
            ("tls-san: {a: b}\n", "0.yaml, line 1: tls-san has a value"),
            ("- a\n", "0.yaml: it is not a map of options"),
            ("config: x\n", "0.yaml, line 1: `trireme server` has no option config"),
            ("data-dir: /d\nwatch-cache: false\n", "0.yaml, line 2: --watch-cache: \"false\" is not possible"),
            ("etcd-servers-overrides: a\n", "0.yaml, line 1: --etcd-servers-overrides: all resources are in one store"),
        ] {
            let error = check(&[text], "").expect_err(text);
            assert!(error.starts_with(expect), "{text}: {error}");
        }
    }

    #[test]
    fn only_server_and_agent_have_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config.yaml");
        std::fs::write(&file, "data-dir: /d\n").expect("a file");
        std::fs::create_dir(directory.path().join("config.yaml.d")).expect("a directory");
        std::fs::write(directory.path().join("config.yaml.d/10-ports.yaml"), "https-port: 7\n").expect("a drop-in");
        std::fs::write(directory.path().join("config.yaml.d/notes.txt"), "junk").expect("no drop-in");
        let config = file.display().to_string();
        let line = |words: &[&str]| words.iter().map(Into::into).collect::<Vec<OsString>>();
        let expand = |words: &[&str]| expanded(line(words)).expect("a command line");
        assert_eq!(
            expand(&["trireme", "-v", "server", "--config", &config, "--disable-agent"]),
            line(&[
                "trireme",
                "-v",
                "server",
                "--data-dir=/d",
                "--https-port=7",
                "--config",
                &config,
                "--disable-agent"
            ])
        );
        let other = ["trireme", "token", "create", "--server", "--config", &config];
        assert_eq!(expand(&other), line(&other));
        assert!(expanded(line(&["trireme", "agent", "--config=/nowhere"])).is_err());
    }
}
