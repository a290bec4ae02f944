//! What may come next on a command line.

use super::Directive;
use super::candidates::{self, Offers};
use crate::command::{Command, Environment};
use crate::commands;
use crate::flags::{self, Flag, Kind, sets};
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
        let mut offers = named(find(topic).0, typed);
        offers.extend(if topic.is_empty() { help_command(typed) } else { None });
        return (offers, Directive::NoFiles);
    }
    let (command, path, rest) = find(meant.as_deref().unwrap_or(before));
    let all: Vec<&'static Flag> = known(command);
    if let Some(offers) = flag_value(&environment, command, &path, &all, &rest, typed).await {
        return offers;
    }
    let literal = rest.iter().any(|word| word == "--");
    if typed.starts_with('-') && !literal {
        return (flag_names(&all, &given(command, &rest), &path, typed), Directive::NoFiles);
    }
    let arguments = positional(&all, &rest);
    let given = given(command, &rest);
    // Whoever gave a flag of the command itself wants no other command.
    let own = command.flags.iter().flat_map(|group| group.iter()).any(|flag| given.changed(flag.name));
    if arguments.is_empty() && !own && !command.children.is_empty() {
        let mut offers = named(command, typed);
        if path.is_empty() {
            offers.extend(help_command(typed));
        }
        if path.is_empty() {
            offers.extend(preferences.aliases().filter(|alias| alias.0.starts_with(typed)));
        }
        if command.run.is_none() || !offers.is_empty() {
            return (offers, Directive::NoFiles);
        }
    }
    let session = Session::new(environment, &given.global());
    let (mut offers, directive) = candidates::arguments(&session, &path, &given, &arguments, typed).await;
    offers.extend(missing(&all, &given, &path, typed));
    (offers, directive)
}

fn help_command(typed: &str) -> Option<(String, String)> {
    "help".starts_with(typed).then(|| ("help".to_owned(), "Help about any command".to_owned()))
}

/// Flags without which the command does nothing.
fn missing(all: &[&'static Flag], given: &flags::Given, path: &str, typed: &str) -> Offers {
    let needed = commands::REQUIRED.iter().find(|(command, _)| *command == path).map_or(&[][..], |(_, flags)| *flags);
    let left = all.iter().filter(|flag| needed.contains(&flag.name) && !given.changed(flag.name));
    let names = left.map(|flag| (format!("--{}", flag.name), flag.help.to_owned()));
    names.filter(|(name, _)| name.starts_with(typed)).collect()
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

fn flag_names(all: &[&'static Flag], given: &flags::Given, path: &str, typed: &str) -> Offers {
    let mut offers = Offers::new();
    let mut offer = |long: &str, short: Option<char>, help: &str| {
        let names = [Some(format!("--{long}")), short.map(|letter| format!("-{letter}"))];
        let fitting = names.into_iter().flatten().filter(|name| name.starts_with(typed));
        offers.extend(fitting.map(|name| (name, help.to_owned())));
    };
    // What was given and can be given but once is not offered again.
    let repeats = |flag: &Flag| matches!(flag.kind, Kind::Slice | Kind::Array);
    for flag in all.iter().filter(|flag| !flag.hidden && (repeats(flag) || !given.changed(flag.name))) {
        offer(flag.name, flag.short, flag.help);
    }
    let name = path.rsplit(' ').next().filter(|name| !name.is_empty()).unwrap_or("kubectl");
    offer("help", Some('h'), &format!("help for {name}"));
    offers.sort();
    offers
}

/// The values of a flag that was just named, or is named in the word itself.
async fn flag_value(
    environment: &Environment,
    command: &'static Command,
    path: &str,
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
    Some(candidates::values(&session, path, flag.name, &given, &arguments, value).await)
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
        assert_eq!(offered("get --he").await, ["--help"]);
        assert_eq!(offered("apply --record").await, [] as [&str; 0], "what is deprecated");
        assert_eq!(offered("get -A --all-n").await, [] as [&str; 0], "what was given");
        assert_eq!(offered("get -L a --label-c").await, ["--label-columns"], "what can be given again");
        assert_eq!(offered("auth can-i l").await, ["list"]);
        assert_eq!(offered("help hel").await, ["help"]);
        assert_eq!(offered("create deployment x --im").await, ["--image"]);
    }

    #[tokio::test]
    async fn what_has_no_words_is_left_to_the_shell() {
        let told = async |line: &str| complete(Environment::default(), &own(line)).await;
        for line in ["get --sort-by ", "version -o ", "proxy ", "apply --dry-run ", "nope ", "get --raw="] {
            assert_eq!(told(line).await, (Offers::new(), Directive::Files), "{line}");
        }
        let words = |offers: Offers| offers.into_iter().map(|offer| offer.0).collect::<Vec<_>>();
        let (offers, directive) = told("apply -f x").await;
        assert_eq!((words(offers), directive), (own("json yaml yml"), Directive::Endings));
        let (offers, directive) = told("run ").await;
        assert_eq!((words(offers), directive), (own("--image"), Directive::Files));
        assert_eq!(words(told("create cronjob a --image b ").await.0), ["--schedule"]);
    }

    #[test]
    fn arguments_are_told_from_flags() {
        let (command, path, rest) = find(&own("-n x rollout status deploy -w"));
        assert_eq!((command.name, path.as_str()), ("status", "rollout status"));
        assert_eq!(positional(&known(command), &rest), ["deploy"]);
    }
}
