//! The objects that a binding gives its policy as parameters.

use std::sync::Arc;

use machinery::Value;
use machinery::gvk::GroupVersion;
use machinery::selector::label::LabelSelector;
use machinery::value;

use super::super::subject::Subject;
use super::{Binding, Common};
use crate::cache::Filter;
use crate::registry::Resource;

/// One object of parameters to evaluate the policy with; `None` is a policy without.
pub type Params = Option<Value>;

/// The kind of a policy's parameters, which has to be one that is served.
pub fn kind_of<'a>(
    subject: &Subject<'a>,
    policy: &Common,
) -> Result<Option<(&'static facts::Resource, &'a Arc<Resource>)>, String> {
    let Some((version, kind)) = &policy.param_kind else { return Ok(None) };
    let facts = GroupVersion::parse(version).and_then(|parsed| facts::kind(&parsed.group, &parsed.version, kind));
    let found = facts.and_then(|facts| Some((facts, subject.api.registry.stored(&facts.group, &facts.plural)?)));
    let unknown = || format!("failed to find resource referenced by paramKind: '{version}, Kind={kind}'");
    found.map(Some).ok_or_else(unknown)
}

/// Everything to evaluate a policy with: once for each object of parameters, or once without.
pub fn collect(subject: &Subject<'_>, policy: &Common, binding: &Binding) -> Result<Vec<Params>, String> {
    let (Some((facts, resource)), Some(reference)) = (kind_of(subject, policy)?, &binding.param_ref) else {
        return Ok(vec![None]);
    };
    let namespace = match (value::text(reference, "namespace"), facts.namespaced) {
        ("", false) => "",
        (_, false) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()),
        ("", true) if subject.request.info.namespace.is_empty() => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        ("", true) => subject.request.info.namespace.as_str(),
        (named, true) => named,
    };
    let shown = |object: &machinery::Object| crate::convert::between(resource.storage, facts, object.to_value());
    let found: Vec<Params> = match value::text(reference, "name") {
        "" => {
            let selector = LabelSelector::from_value(&reference["selector"])?;
            let filter = if facts.namespaced { Filter::namespace(namespace) } else { Filter::everything() };
            let (all, _) = resource.cache.list(&filter, None, 0);
            all.iter().filter(|object| selector.matches_meta(object.meta())).map(|object| Some(shown(object))).collect()
        }
        name => {
            resource.cache.get(&resource.key(namespace, name)).map(|object| Some(shown(&object))).into_iter().collect()
        }
    };
    if found.is_empty() && value::text(reference, "parameterNotFoundAction") == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}
