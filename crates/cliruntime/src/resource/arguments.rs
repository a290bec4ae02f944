//! `pods`, `pods a b`, `pod/a svc/b`, `pods,services -l x=y`, `all`: what arguments mean.

use machinery::status::go_quote;

use super::Builder;
use crate::discovery::Mapping;
use crate::error::{Failure, Outcome};
use crate::session::Session;

/// What upstream says where no server is to be asked and nothing else is named.
pub const ONLY_FILES: &str = "you must specify resources by --filename when --local is set.\nExample resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'";

pub const MISSING: &str = "You must provide one or more resources by argument or filename.\nExample resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'";

/// Why a name cannot stand in a path of the API, in the words of upstream's client.
pub fn odd_name(name: &str) -> Option<String> {
    let problems = machinery::names::is_path_segment_name(name);
    (!problems.is_empty()).then(|| format!("invalid resource name {}: [{}]", go_quote(name), problems.join(", ")))
}

/// A collection, or one object of it.
#[derive(Debug, Clone)]
pub struct Target {
    pub mapping: Mapping,
    /// Empty for every namespace.
    pub namespace: String,
    pub name: Option<String>,
}

impl Target {
    /// Where an object of it is. A name that is left empty means no object.
    pub fn path(&self, name: &str, subresource: &str) -> Outcome<String> {
        if name.is_empty() {
            // Said so even where it is one failure among others.
            return Err(Failure::Plain("error: resource name may not be empty".to_owned()));
        }
        Ok(self.mapping.path(&self.namespace, name, subresource))
    }
}

/// The arguments, taken apart.
#[derive(Debug, PartialEq, Eq)]
enum Shape {
    /// Each with its own type.
    Tuples(Vec<(String, String)>),
    Names(Vec<String>, Vec<String>),
    Types(Vec<String>),
    Nothing,
}

fn shape(arguments: &[String]) -> Result<Shape, String> {
    if let [kinds, names @ ..] = arguments
        && !names.is_empty()
        && kinds.contains(',')
    {
        // Several types with names are an object of each type for every name.
        let each = |kind: &str| names.iter().map(|name| format!("{kind}/{name}")).collect::<Vec<_>>();
        return tuples(&kinds.split(',').flat_map(each).collect::<Vec<_>>());
    }
    if arguments.iter().any(|argument| argument.contains('/')) {
        return tuples(arguments);
    }
    let types = |list: &str| list.split(',').map(str::to_owned).collect();
    Ok(match arguments {
        [] => Shape::Nothing,
        [one] => Shape::Types(types(one)),
        [first, names @ ..] => Shape::Names(types(first), names.to_vec()),
    })
}

fn tuples(arguments: &[String]) -> Result<Shape, String> {
    if !arguments.iter().all(|argument| argument.contains('/')) {
        let example =
            "e.g. 'kubectl get resource/<resource_name>' instead of 'kubectl get resource resource/<resource_name>'";
        return Err(format!(
            "there is no need to specify a resource type as a separate argument when passing arguments in resource/name form ({example}"
        ));
    }
    let mut found = Vec::new();
    for argument in arguments {
        let parts: Vec<&str> = argument.split('/').collect();
        let [kind, name] = parts[..] else {
            return Err("arguments in resource/name form may not have more than one slash".to_owned());
        };
        if kind.is_empty() || name.is_empty() || kind.contains(',') {
            return Err("arguments in resource/name form must have a single resource and name".to_owned());
        }
        found.push((kind.to_owned(), name.to_owned()));
    }
    Ok(Shape::Tuples(found))
}

/// The collections and objects that the arguments of a command mean.
pub async fn targets(builder: &Builder, session: &Session) -> Outcome<Vec<Target>> {
    let selects = !builder.selector.is_empty() || !builder.field_selector.is_empty();
    match shape(&builder.arguments).map_err(Failure::Message)? {
        Shape::Nothing if selects || builder.all => {
            Err(Failure::message("at least one resource must be specified to use a selector"))
        }
        Shape::Nothing => Err(Failure::message(MISSING)),
        Shape::Tuples(_) if selects || builder.types_mean_all && builder_all(builder) => {
            Err(Failure::message("selectors and the all flag cannot be used when passing resource/name arguments"))
        }
        Shape::Tuples(pairs) => {
            if builder.all_namespaces {
                // A cluster-scoped object is in no namespace, and so in all of them.
                refuse_namespaced(session, &pairs).await?;
            }
            let mut targets = Vec::new();
            for (word, name) in pairs {
                targets.push(one(builder, session.mapping(&word).await?, name));
            }
            Ok(targets)
        }
        Shape::Names(..) if selects => Err(Failure::message("name cannot be provided when a selector is specified")),
        Shape::Names(types, names) => named(builder, session, types, names).await,
        Shape::Types(types) => {
            let mappings = expand(session, types).await?;
            if !selects && !builder.types_mean_all {
                return Err(Failure::message("resource(s) were provided, but no name was specified"));
            }
            Ok(mappings.into_iter().map(|mapping| whole(builder, mapping)).collect())
        }
    }
}

/// `--all` was asked for, not implied by the command.
fn builder_all(builder: &Builder) -> bool {
    builder.types_mean_all && builder.arguments.len() == 1 && !builder.arguments[0].contains('/')
}

async fn refuse_namespaced(session: &Session, pairs: &[(String, String)]) -> Outcome {
    for (word, _) in pairs {
        if session.mapping(word).await?.namespaced {
            return Err(Failure::message("a resource cannot be retrieved by name across all namespaces"));
        }
    }
    Ok(())
}

async fn named(builder: &Builder, session: &Session, types: Vec<String>, names: Vec<String>) -> Outcome<Vec<Target>> {
    let mappings = expand(session, types).await?;
    if mappings.len() > 1 {
        return Err(Failure::message("you must specify only one resource"));
    }
    let Some(mapping) = mappings.first() else {
        return Err(Failure::message("you must provide a resource and a resource name together"));
    };
    if builder.all_namespaces && mapping.namespaced {
        return Err(Failure::message("a resource cannot be retrieved by name across all namespaces"));
    }
    Ok(names.into_iter().map(|name| one(builder, mapping.clone(), name)).collect())
}

fn one(builder: &Builder, mapping: Mapping, name: String) -> Target {
    let namespace = if mapping.namespaced { builder.namespace.clone() } else { String::new() };
    Target { mapping, namespace, name: Some(name) }
}

fn whole(builder: &Builder, mapping: Mapping) -> Target {
    let everywhere = builder.all_namespaces || !mapping.namespaced;
    let namespace = if everywhere { String::new() } else { builder.namespace.clone() };
    Target { mapping, namespace, name: None }
}

/// The resources of words, categories taken apart.
async fn expand(session: &Session, words: Vec<String>) -> Outcome<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for word in words {
        let found = match session.mapping(&word).await {
            Ok(mapping) => vec![mapping],
            Err(error) => {
                let discovery = session.discovery().await?;
                let category: Vec<Mapping> = discovery.category(&word).into_iter().cloned().collect();
                if category.is_empty() {
                    return Err(error);
                }
                category
            }
        };
        for mapping in found {
            if !mappings.contains(&mapping) {
                mappings.push(mapping);
            }
        }
    }
    Ok(mappings)
}

/// The type that a single word or `type/name` of a command means.
pub async fn parse_single(session: &Session, word: &str) -> Outcome<(Mapping, Option<String>)> {
    match word.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((session.mapping(kind).await?, Some(name.to_owned())))
        }
        Some(_) => Err(Failure::Message(format!(
            "arguments in resource/name form must have a single resource and name: {}",
            go_quote(word)
        ))),
        None => Ok((session.mapping(word).await?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<Shape, String> {
        shape(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_have_four_shapes() {
        let own = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(check(""), Ok(Shape::Nothing));
        assert_eq!(check("pods,svc"), Ok(Shape::Types(own(&["pods", "svc"]))));
        assert_eq!(check("pods a b"), Ok(Shape::Names(own(&["pods"]), own(&["a", "b"]))));
        assert_eq!(check("pods,svc a"), check("pods/a svc/a"));
        assert_eq!(check("pods,"), Ok(Shape::Types(own(&["pods", ""]))));
        let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        assert_eq!(check("pod/a svc/b"), Ok(Shape::Tuples(vec![pair("pod", "a"), pair("svc", "b")])));
        for line in ["pod/a b", "pod/a/b", "pod/", "pod,svc/a"] {
            assert!(check(line).is_err(), "{line}");
        }
    }
}
