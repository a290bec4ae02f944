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

    #[test]
    fn requests_about_resources_ask_for_resources_and_others_for_paths() {
        let words = |word: &str| vec![word.to_owned()];
        let pods = Rule { verbs: words("get"), groups: words(""), resources: words("pods"), ..Rule::default() };
        let health = Rule { verbs: words("get"), urls: words("/healthz"), ..Rule::default() };
        let user = User::new("jane", []);
        let pod = Attributes::question(&user, "get", "", "pods", "x");
        assert!(allows(&pods, &pod) && !allows(&health, &pod));
        let log = Attributes::question(&user, "get", "", "pods", "x").of_subresource("log");
        assert!(!allows(&pods, &log), "a subresource is a resource of its own");
        let path =
            Attributes { is_resource: false, path: "/healthz", ..Attributes::question(&user, "get", "", "", "") };
        assert!(allows(&health, &path) && !allows(&pods, &path));
    }
}
