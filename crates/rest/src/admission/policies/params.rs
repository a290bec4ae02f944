//! The objects that a binding gives its policy as parameters.

use std::sync::Arc;

use machinery::Value;
use machinery::gvk::GroupVersion;
use machinery::selector::label::LabelSelector;
use machinery::value;
use storage::cache::Filter;

use super::super::subject::Subject;
use super::{Binding, Common};
use crate::registry::{Resource, Shared};

/// One object of parameters to evaluate the policy with; `None` is a policy without.
pub type Params = Option<Value>;

/// A version in which parameters are served, and where they are stored.
pub type ParamKind = (Shared<facts::Resource>, Arc<Resource>);

/// The kind of a policy's parameters, which has to be one that is served.
pub fn kind_of(subject: &Subject<'_>, policy: &Common) -> Result<Option<ParamKind>, String> {
    let Some((version, kind)) = &policy.param_kind else { return Ok(None) };
    let registry = &subject.api.registry;
    let served = GroupVersion::parse(version).and_then(|of| registry.kind(&of.group, &of.version, kind));
    let found = served.and_then(|served| Some((served.facts.clone(), served.resource.clone()?)));
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
    let shown = |object: &machinery::Object| kinds::convert::between(&resource.storage, &facts, object.to_value());
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
