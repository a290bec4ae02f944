//! What operations and parameters say that they are for.
//!
//! The words of a parameter are those of a field of some options. Those of deletions are a type with prose; those of all others are no type that is
//! published, and their words, our own, are in `parameters.txt`: the options, and below them a line for each field.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use facts::Str;

use super::action::Action;

/// The words of the options of deletions, one of which all writes have.
static DELETE_OPTIONS: LazyLock<BTreeMap<&str, Str>> = LazyLock::new(|| {
    let options = prose::of("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    // What these two are for is nothing that a query can say.
    let fields = options.into_iter().flat_map(prose::Prose::fields);
    fields.filter(|(field, _)| !matches!(*field, "apiVersion" | "kind")).collect()
});

/// The words of all other options, by the options and the field.
static OPTIONS: LazyLock<HashMap<&str, HashMap<&str, &str>>> = LazyLock::new(|| {
    let mut options = "";
    let mut words: HashMap<&str, HashMap<&str, &str>> = HashMap::new();
    for line in include_str!("parameters.txt").lines() {
        match line.strip_prefix(' ').and_then(|line| line.split_once(' ')) {
            Some((field, text)) => drop(words.entry(options).or_default().insert(field, text)),
            None => options = line,
        }
    }
    words
});

/// What a field of some options is for.
pub(super) fn of_option(options: &str, field: &str) -> Option<Str> {
    OPTIONS.get(options)?.get(field).map(|text| Str::Borrowed(text))
}

/// What an operation does to objects of a kind, or to a part of them.
pub(super) fn of_operation(action: Action, kind: &str, sub: Option<&str>, is_watched: bool) -> String {
    let (article, of) = (article(kind), |part: &str| format!("{part} of "));
    let specified = |verb: &str| format!("{verb} {}the specified {kind}", sub.map(of).unwrap_or_default());
    match (action, sub) {
        (Action::Get, _) => specified("read"),
        (Action::Put, _) => specified("replace"),
        (Action::Patch, _) => specified("partially update"),
        (Action::List, _) => {
            let verb = if is_watched { "list or watch" } else { "list" };
            format!("{verb} {}objects of kind {kind}", sub.map(of).unwrap_or_default())
        }
        (Action::Post | Action::Delete, None) => format!("{}{article}{kind}", action.prefix()),
        (Action::Post | Action::Delete, Some(part)) => format!("{} {part} of{article}{kind}", action.prefix()),
        (Action::DeleteCollection, None) => format!("delete collection of {kind}"),
        (Action::DeleteCollection, Some(part)) => format!("delete collection of {part} of a {kind}"),
        (Action::Watch, _) => format!(
            "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list operation instead, \
             filtered to a single item with the 'fieldSelector' parameter."
        ),
        (Action::WatchList, _) => format!(
            "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a list operation instead."
        ),
        (Action::Connect(method), _) => {
            format!("connect {} requests to {}{kind}", method.to_uppercase(), sub.map(of).unwrap_or_default())
        }
    }
}

/// What is between a verb and a noun; nouns in the plural have no article.
fn article(noun: &str) -> &'static str {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']);
    match noun {
        _ if noun.ends_with('s') && !noun.ends_with("ss") => " ",
        _ if vowel => " an ",
        _ => " a ",
    }
}

/// What a parameter of a path or of a query is for, at what is done to objects of a kind.
pub(super) fn of_parameter(action: Action, place: &str, name: &str, kind: &str) -> Option<Str> {
    let options = if action == Action::Patch { "PatchOptions" } else { "CreateOptions" };
    match (place, name) {
        ("path", "name") => Some(format!("name of the {kind}").into()),
        ("path", "namespace") => Some("object name and auth scope, such as for teams and projects".into()),
        ("path", "path") => Some("path to the resource".into()),
        ("query", "pretty") => Some(
            "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or \
             command-line HTTP tool (curl and wget)."
                .into(),
        ),
        ("query", "fieldManager") => of_option(options, name),
        ("query", "fieldValidation") => of_option("CreateOptions", name),
        ("query", "force") => of_option("PatchOptions", name),
        ("query", _) => of_option("ListOptions", name).or_else(|| DELETE_OPTIONS.get(name).cloned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_say_what_they_do_as_upstream_says_it() {
        let say = |action, kind, sub| of_operation(action, kind, sub, true);
        assert_eq!(say(Action::Get, "Pod", None), "read the specified Pod");
        assert_eq!(say(Action::Put, "Pod", Some("status")), "replace status of the specified Pod");
        assert_eq!(say(Action::Patch, "Pod", Some("scale")), "partially update scale of the specified Pod");
        assert_eq!(say(Action::List, "Pod", None), "list or watch objects of kind Pod");
        assert_eq!(of_operation(Action::List, "Pod", None, false), "list objects of kind Pod");
        assert_eq!(say(Action::Post, "Issuer", None), "create an Issuer");
        assert_eq!(say(Action::Post, "Pod", Some("eviction")), "create eviction of a Pod");
        assert_eq!(say(Action::Delete, "Endpoints", None), "delete Endpoints");
        assert_eq!(say(Action::Delete, "StorageClass", None), "delete a StorageClass");
        assert_eq!(say(Action::DeleteCollection, "Pod", None), "delete collection of Pod");
        assert_eq!(say(Action::Connect("get"), "Pod", Some("log")), "connect GET requests to log of Pod");
    }

    #[test]
    fn parameters_have_the_words_of_the_fields_that_they_are() {
        let say = |place, name| of_parameter(Action::Post, place, name, "Ship");
        assert_eq!(say("path", "name").as_deref(), Some("name of the Ship"));
        let begins = |name, words: &str| {
            let said = say("query", name);
            assert!(said.as_deref().is_some_and(|text| text.starts_with(words)), "{name}: {said:?}");
        };
        begins("dryRun", "When present, indicates that modifications");
        begins("watch", "Watch for changes to the described resources");
        begins("fieldValidation", "What becomes of fields that are unknown");
        assert_eq!(say("query", "kind"), None);
        let manager = |action| of_parameter(action, "query", "fieldManager", "Ship");
        assert_ne!(manager(Action::Post), manager(Action::Patch), "an apply must name one");
        assert_eq!(OPTIONS.values().map(HashMap::len).sum::<usize>(), 39, "every line is read");
    }
}
