//! What may come next on a command line.

use super::Directive;
use super::candidates::{self, Offers};
use crate::command::{Command, Environment};
use crate::commands;
use crate::flags::{self, Flag, sets};
use crate::preferences::{self, Preferences};
use crate::session::Session;

/// The offers for the last word, which may be empty.
pub async fn complete(environment: Environment, words: &[String]) -> (Offers, Directive) {
    let (typed, before) = match words.split_last() {
        Some((typed, before)) => (typed.as_str(), before),
        None => ("", words),
    };
    let preferences = Preferences::load(&environment, &preferences::given_place(before)).unwrap_or_default().0;
    let at = flags::find_command(sets::GLOBAL, before);
    let meant = at.filter(|at| commands::ROOT.child(&before[*at]).is_none());
    let meant = meant.and_then(|at| preferences.alias(before, at)).map(|alias| alias.arguments);
    if let Some(("help", topic)) = before.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return (named(find(topic).0, typed), Directive::NoFiles);
    }
    let (command, path, rest) = find(meant.as_deref().unwrap_or(before));
    let all: Vec<&'static Flag> = known(command);
    if let Some(offers) = flag_value(&environment, command, &all, &rest, typed).await {
        return offers;
    }
    let literal = rest.iter().any(|word| word == "--");
    if typed.starts_with('-') && !literal {
        return (flag_names(&all, typed), Directive::NoFiles);
    }
    let arguments = positional(&all, &rest);
    if arguments.is_empty() && !command.children.is_empty() {
        let mut offers = named(command, typed);
        if path.is_empty() && "help".starts_with(typed) {
            offers.push(("help".to_owned(), "Help about any command".to_owned()));
        }
        if path.is_empty() {
            offers.extend(preferences.aliases().filter(|alias| alias.0.starts_with(typed)));
        }
        if command.run.is_none() || !offers.is_empty() {
            return (offers, Directive::NoFiles);
        }
    }
    let given = given(command, &rest);
    let session = Session::new(environment, &given.global());
    candidates::arguments(&session, &path, &given, &arguments, typed).await
}

/// The commands below one that begin like this.
fn named(parent: &Command, typed: &str) -> Offers {
    let fits = |child: &&&'static Command| child.name.starts_with(typed) && child.name != commands::alpha::COMMAND.name;
    parent.children.iter().filter(fits).map(|child| (child.name.to_owned(), child.short.to_owned())).collect()
}

/// The command that the words mean so far, its path without `kubectl`, and the words that are not its name.
fn find(words: &[String]) -> (&'static Command, String, Vec<String>) {
    let mut rest = words.to_vec();
    let (mut command, mut path): (&'static Command, _) = (&commands::ROOT, String::new());
    while !command.children.is_empty() {
        let groups = command.flags.iter().chain(sets::GLOBAL);
        let Some(at) = flags::find_command(groups, &rest) else { break };
        let Some(child) = command.child(&rest[at]) else { break };
        path = format!("{path} {}", child.name).trim_start().to_owned();
        rest.remove(at);
        command = child;
    }
    (command, path, rest)
}

fn known(command: &'static Command) -> Vec<&'static Flag> {
    let mut all: Vec<&'static Flag> = Vec::new();
    for flag in command.flags.iter().chain(sets::GLOBAL).flat_map(|group| group.iter()) {
        if !all.iter().any(|other| other.name == flag.name) {
            all.push(flag);
        }
    }
    all.sort_by_key(|flag| flag.name);
    all
}

/// What is given so far. What cannot be read yet is left out: the user is not done.
fn given(command: &'static Command, rest: &[String]) -> flags::Given {
    let groups = || command.flags.iter().chain(sets::GLOBAL);
    let mut words = rest.to_vec();
    loop {
        match flags::parse(groups(), &words) {
            Ok(given) => return given,
            Err(_) if words.pop().is_some() => {}
            Err(_) => return flags::Given::default(),
        }
    }
}

fn takes_value(all: &[&'static Flag], word: &str) -> Option<&'static Flag> {
    let found = if let Some(name) = word.strip_prefix("--") {
        all.iter().find(|flag| flag.name == name)
    } else {
        let letter = word.strip_prefix('-').filter(|rest| rest.chars().count() == 1)?.chars().next();
        all.iter().find(|flag| flag.short == letter)
    };
    found.copied().filter(|flag| flag.bare.is_none())
}

/// Arguments that are neither flags nor their values.
fn positional(all: &[&'static Flag], rest: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            found.extend(words.cloned());
            break;
        }
        if word.len() > 1 && word.starts_with('-') {
            if takes_value(all, word).is_some() {
                words.next();
            }
            continue;
        }
        found.push(word.clone());
    }
    found
}

fn flag_names(all: &[&'static Flag], typed: &str) -> Offers {
    let mut offers = Offers::new();
    for flag in all {
        let name = format!("--{}", flag.name);
        if name.starts_with(typed) {
            offers.push((name, flag.help.to_owned()));
        }
        if let Some(short) = flag.short.map(|letter| format!("-{letter}")).filter(|short| short.starts_with(typed)) {
            offers.push((short, flag.help.to_owned()));
        }
    }
    offers.sort();
    offers
}

/// The values of a flag that was just named, or is named in the word itself.
async fn flag_value(
    environment: &Environment,
    command: &'static Command,
    all: &[&'static Flag],
    rest: &[String],
    typed: &str,
) -> Option<(Offers, Directive)> {
    if rest.iter().any(|word| word == "--") {
        return None;
    }
    let inline = typed.strip_prefix("--").and_then(|long| long.split_once('='));
    let (flag, value, before) = match inline {
        Some((name, value)) => (*all.iter().find(|flag| flag.name == name)?, value, rest),
        None => {
            let last = rest.last().filter(|word| word.starts_with('-'))?;
            (takes_value(all, last)?, typed, &rest[..rest.len() - 1])
        }
    };
    let given = given(command, before);
    let session = Session::new(environment.clone(), &given.global());
    let arguments = positional(all, before);
    Some(candidates::values(&session, flag.name, &given, &arguments, value).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    async fn offered(line: &str) -> Vec<String> {
        complete(Environment::default(), &own(line)).await.0.into_iter().map(|offer| offer.0).collect()
    }

    #[tokio::test]
    async fn commands_and_flags_are_offered() {
        assert_eq!(offered("ann").await, ["annotate"]);
        assert_eq!(offered("-n x ge").await, ["get"]);
        assert_eq!(offered("rollout st").await, ["status"]);
        assert_eq!(offered("get --all-n").await, ["--all-namespaces"]);
        assert_eq!(offered("get --field-s").await, ["--field-selector"]);
        assert_eq!(offered("get -o ya").await, ["yaml"]);
        assert_eq!(offered("get --output=ya").await, ["yaml"]);
        assert_eq!(offered("get --dry-run").await, [] as [&str; 0]);
        assert_eq!(offered("completion f").await, ["fish"]);
    }

    #[test]
    fn arguments_are_told_from_flags() {
        let (command, path, rest) = find(&own("-n x rollout status deploy -w"));
        assert_eq!((command.name, path.as_str()), ("status", "rollout status"));
        assert_eq!(positional(&known(command), &rest), ["deploy"]);
    }
}
