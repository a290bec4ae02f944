//! Rules of roles, as requests ask them.

pub use rules::rbac::{Rule, missing, quoted};

use super::super::Attributes;

/// A rule from the table of bootstrap roles.
pub fn of_facts(rule: &facts::rbac::Rule) -> Rule {
    let strings = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    Rule {
        verbs: strings(&rule.verbs),
        groups: strings(&rule.groups),
        resources: strings(&rule.resources),
        names: strings(&rule.names),
        urls: strings(&rule.urls),
    }
}

/// Whether a rule allows a request.
pub fn allows(rule: &Rule, attributes: &Attributes<'_>) -> bool {
    let Attributes { verb, group, resource, subresource, name, path, .. } = *attributes;
    if attributes.is_resource {
        rule.allows_resource(verb, group, resource, subresource, name)
    } else {
        rule.allows_path(verb, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::rest::User;

    fn rule(text: &str) -> Rule {
        // verbs groups resources [names], or verbs /paths
        let words: Vec<Vec<String>> =
            text.split(' ').map(|list| list.split(',').map(|word| word.replace("core", "")).collect()).collect();
        match words.as_slice() {
            [verbs, urls] => Rule { verbs: verbs.clone(), urls: urls.clone(), ..Rule::default() },
            [verbs, groups, resources, names @ ..] => Rule {
                verbs: verbs.clone(),
                groups: groups.clone(),
                resources: resources.clone(),
                names: names.concat(),
                ..Rule::default()
            },
            _ => panic!("{text}"),
        }
    }

    #[test]
    fn rules_allow_what_they_say_and_no_more() {
        let user = User::new("jane", []);
        // rule; verb group resource[/subresource] [name]; allowed
        let cases = [
            ("get core pods", "get core pods x", true),
            ("get core pods", "list core pods", false),
            ("get core pods", "get core pods/log x", false),
            ("get core pods/log", "get core pods/log x", true),
            ("get core pods/log", "get core pods x", false),
            ("get core */log", "get core pods/log x", true),
            ("get core */log", "get core pods/exec x", false),
            ("* * *", "frobnicate any things/deep x", true),
            ("get * pods", "get apps pods", true),
            ("get apps pods", "get core pods", false),
            ("get core pods a,b", "get core pods b", true),
            ("get core pods a,b", "get core pods c", false),
            ("get core pods a,b", "list core pods", false),
            ("get /healthz", "get core pods", false),
        ];
        for (given, asked, allowed) in cases {
            let words: Vec<&str> = asked.split(' ').map(|word| if word == "core" { "" } else { word }).collect();
            let (resource, subresource) = words[2].split_once('/').unwrap_or((words[2], ""));
            let name = words.get(3).copied().unwrap_or_default();
            let attributes =
                Attributes::question(&user, words[0], words[1], resource, name).of_subresource(subresource);
            assert_eq!(allows(&rule(given), &attributes), allowed, "{given} ▸ {asked}");
        }
        for (given, path, allowed) in [
            ("get /healthz", "/healthz", true),
            ("get /healthz", "/healthz/etcd", false),
            ("get /healthz/*", "/healthz/etcd", true),
            ("get *", "/anything", true),
            ("post *", "/anything", false),
        ] {
            let attributes = Attributes { is_resource: false, path, ..Attributes::question(&user, "get", "", "", "") };
            assert_eq!(allows(&rule(given), &attributes), allowed, "{given} ▸ {path}");
        }
    }
}
