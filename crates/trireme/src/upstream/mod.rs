//! Command lines of upstream's components, as ours are read: `flags.txt` says of every flag of theirs what becomes of it.
//!
//! It happens before the command line is read for good: what is honoured under another name is renamed, what changes nothing here is left out and noted,
//! what cannot be taken is refused by its name with the reason. The binary called as one of theirs (`kube-apiserver`, `kube-controller-manager`,
//! `kube-scheduler`, `kube-proxy`) runs as that and nothing else, with their command lines.

mod version;

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use clap::{Arg, ArgAction, Command};
use rules::upstream::gates::truth;
use rules::upstream::{Doing, Setting, find, table};

/// Whose flags a command of ours takes, those that come first before the others.
const COMMANDS: [(&str, &str); 5] =
    [("server", "acskp"), ("controller-manager", "c"), ("scheduler", "s"), ("agent", "kp"), ("proxy", "p")];

/// Upstream's names of programs, and what we run as them: the command, and what it is told besides.
const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    (
        "kube-apiserver",
        "server",
        &[
            "--disable-agent",
            "--disable-controller-manager",
            "--disable-scheduler",
            "--disable-service-lb",
            "--disable-addons",
            "--store=etcd",
        ],
    ),
    ("kube-controller-manager", "controller-manager", &[]),
    ("kube-scheduler", "scheduler", &[]),
    ("kube-proxy", "proxy", &[]),
];

/// What is said by default where upstream's default is another than ours: the program, the flag, the value.
const DEFAULTS: [(&str, &str, &str); 2] = [
    ("kube-apiserver", "cert-dir", "/var/run/kubernetes"),
    ("kube-controller-manager", "allocate-node-cidrs", "false"),
];

/// What upstream's flags are.
pub fn flags() -> &'static [Setting] {
    static FLAGS: OnceLock<Vec<Setting>> = OnceLock::new();
    FLAGS.get_or_init(|| table(include_str!("flags.txt")))
}

/// Whether a flag of upstream's is known to a command of ours.
pub fn knows(command: &str, flag: &str) -> bool {
    let whose = COMMANDS.iter().find(|(name, _)| *name == command);
    whose.is_some_and(|(_, whose)| find(flags(), whose, flag).is_some())
}

/// A command line as it is read for good, and what was left out of it, for the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translated {
    pub line: Vec<OsString>,
    pub notes: Vec<String>,
    /// What is printed instead of running anything.
    pub instead: Option<String>,
}

/// Reads a whole command line, program first.
pub fn translated(cli: &Command, line: Vec<OsString>) -> Result<Translated, String> {
    let (line, program) = as_program(line);
    let place = line.iter().skip(1).position(|word| !word.to_string_lossy().starts_with('-')).map(|place| place + 1);
    let Some((place, (name, whose))) = place.and_then(|place| {
        let command = COMMANDS.iter().find(|(name, _)| line[place] == *name)?;
        Some((place, *command))
    }) else {
        return Ok(Translated { line, ..Translated::default() });
    };
    let Some(command) = cli.find_subcommand(name) else { return Ok(Translated { line, ..Translated::default() }) };
    let mut translated = Translated { line: line[..=place].to_vec(), ..Translated::default() };
    let mut words = line[place + 1..].to_vec();
    if let Some(program) = program {
        words.splice(0..0, defaults(program, &words));
    }
    if name == "server" {
        let data_dir = data_dir(&words);
        words.splice(0..0, data_dir);
    }
    // Only upstream's own command lines have `-v 2`; ours have `-v`, as often as wanted.
    let reading = Reading { command, whose, upstream: program.is_some() };
    reading.words(words, &mut translated)?;
    Ok(translated)
}

/// The line of `trireme COMMAND` for one of upstream's programs, and its name.
fn as_program(line: Vec<OsString>) -> (Vec<OsString>, Option<&'static str>) {
    let name = |word: &OsString| Path::new(word).file_name().map(|name| name.to_string_lossy().into_owned());
    let called = |word: Option<&OsString>| {
        let name = name(word?)?;
        PROGRAMS.iter().find(|(program, ..)| *program == name)
    };
    // `trireme kube-apiserver …` is the same, for where a link cannot be made.
    let (found, rest) = match (called(line.first()), called(line.get(1))) {
        (Some(found), _) => (found, 1),
        (None, Some(found)) => (found, 2),
        (None, None) => return (line, None),
    };
    let (program, command, more) = found;
    let mut words: Vec<OsString> = vec!["trireme".into(), (*command).into()];
    words.extend(more.iter().map(OsString::from));
    words.extend(line.into_iter().skip(rest));
    (words, Some(program))
}

fn defaults(program: &str, words: &[OsString]) -> Vec<OsString> {
    let given = |flag: &str| {
        let is = |word: &OsString| {
            let word = word.to_string_lossy();
            word.strip_prefix("--").is_some_and(|word| word.split('=').next() == Some(flag))
        };
        words.iter().any(is)
    };
    let missing = DEFAULTS.iter().filter(|(whose, flag, _)| *whose == program && !given(flag));
    missing.map(|(_, flag, value)| format!("--{flag}={value}").into()).collect()
}

/// Where a server keeps what it has, if only the directory of its certificates is given: upstream's keeps nothing else.
fn data_dir(words: &[OsString]) -> Option<OsString> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let value = |flag: &str| {
        let at = words.iter().position(|word| word.split('=').next() == Some(flag))?;
        Some(words[at].split_once('=').map_or_else(|| words.get(at + 1).map_or("", |next| next), |(_, value)| value))
    };
    let directory = value("--cert-dir").filter(|_| value("--data-dir").is_none())?;
    Some(format!("--data-dir={directory}").into())
}

/// How one command's words are read.
struct Reading<'a> {
    command: &'a Command,
    whose: &'static str,
    /// Whether the whole line is upstream's.
    upstream: bool,
}

impl Reading<'_> {
    fn words(&self, words: Vec<OsString>, into: &mut Translated) -> Result<(), String> {
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy().into_owned();
            if text == "--" {
                into.line.push(word);
                into.line.extend(words);
                return Ok(());
            }
            let short = text.strip_prefix("-v=").or_else(|| (self.upstream && text == "-v").then_some(""));
            if let Some(level) = short {
                let mut next = || words.next().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
                let level = if level.is_empty() { next() } else { level.to_owned() };
                into.line.extend(verbosity(&level)?);
                continue;
            }
            let Some(flag) = text.strip_prefix("--") else {
                into.line.push(word);
                continue;
            };
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value.to_owned())));
            // As upstream has it, words of a flag may be joined by underscores.
            let name = name.replace('_', "-");
            let ours = option(self.command, &name);
            let setting = find(flags(), self.whose, &name).filter(|_| ours.is_none() || self.upstream);
            let Some(setting) = setting else {
                let text = value.as_ref().map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"));
                into.line.extend(ours.map_or_else(|| vec![word], |ours| normal(ours, &name, value.as_deref(), text)));
                continue;
            };
            let value = match value {
                Some(value) => value,
                None if setting.switch || setting.name == version::FLAG => "true".to_owned(),
                None => {
                    let next = words.next().ok_or_else(|| format!("flag needs an argument: --{name}"))?;
                    next.to_string_lossy().into_owned()
                }
            };
            self.take(setting, &value, into)?;
        }
        Ok(())
    }

    fn take(&self, setting: &Setting, value: &str, into: &mut Translated) -> Result<(), String> {
        let name = setting.name;
        let value = match setting.switch {
            false => value.to_owned(),
            true => truth(value).map(|truth| truth.to_string()).ok_or_else(|| {
                format!("invalid argument {value:?} for \"--{name}\" flag: strconv.ParseBool: parsing {value:?}: invalid syntax")
            })?,
        };
        setting.check(&value).map_err(|why| format!("--{name}: {why}"))?;
        match setting.doing {
            Doing::Honoured("verbosity") => into.line.extend(verbosity(&value)?),
            // Every command of ours has it, and clap lists it only when it has built the command.
            Doing::Honoured("help") => into.line.extend((value == "true").then(|| "--help".into())),
            Doing::Honoured(version::FLAG) => match version::asked(&value)? {
                version::Asked::Print(text) => into.instead = Some(text),
                version::Asked::Report if option(self.command, version::REPORTED).is_some() => {
                    into.line.push(format!("--{}={value}", version::REPORTED).into());
                }
                version::Asked::Report => {
                    into.notes.push(format!("--{name}={value}: only the API server reports a version"))
                }
                version::Asked::Nothing => {}
            },
            Doing::Honoured(ours) => {
                let Some(option) = option(self.command, ours) else {
                    return Err(format!("--{name}: it is no option of `trireme {}`", self.command.get_name()));
                };
                into.line.extend(normal(option, ours, Some(&value), format!("--{ours}={value}")));
            }
            Doing::Field(field, shape) => {
                let value = shape.value(&value).map_err(|why| format!("--{name}: {why}"))?;
                into.line.push(format!("--kubelet-setting={field}={value}").into());
            }
            _ => into.notes.push(format!("--{name} changes nothing here: {}", setting.reason)),
        }
        Ok(())
    }
}

/// The option of a command by one of its names.
fn option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    })
}

/// An option of ours with a value: one that is there or not is, or is not.
fn normal(option: &Arg, name: &str, value: Option<&str>, text: String) -> Vec<OsString> {
    let switch = matches!(option.get_action(), ArgAction::SetTrue);
    match value.filter(|_| switch).and_then(truth) {
        Some(true) => vec![format!("--{name}").into()],
        Some(false) => Vec::new(),
        None => vec![text.into()],
    }
}

/// Upstream's levels of logging, as ours: 2 to 3 say more, from 4 on everything is said.
fn verbosity(level: &str) -> Result<Option<OsString>, String> {
    let level: u32 = level.parse().map_err(|_| format!("invalid argument {level:?} for \"-v, --v\" flag"))?;
    Ok(match level {
        0..=1 => None,
        2..=3 => Some("-v".into()),
        _ => Some("-vv".into()),
    })
}

#[cfg(test)]
mod tests;
