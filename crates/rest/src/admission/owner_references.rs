//! OwnerReferencesPermissionEnforcement: an owner is set by those who may delete the object, and holds back the owner's
//! deletion only for those who may.

use gates::authorization::Authorizers;
use machinery::gvk::GroupVersion;
use machinery::status::ApiError;
use machinery::{Value, value};

use super::{Operation, Request};

/// Refuses owners that the writer may not set.
pub async fn validate(
    authorizers: &Authorizers,
    request: &Request<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let Some(new) = new else { return Ok(()) };
    let binding = request.info.subresource == "status" || request.info.subresource == "binding";
    let before = old.map_or(&[][..], |old| value::list(old, "metadata.ownerReferences"));
    let after = value::list(new, "metadata.ownerReferences");
    if binding || before == after {
        return Ok(());
    }
    let info = request.info;
    let own = |verb| request.question(verb, &info.group, &info.resource, &info.name);
    // Who makes an object could as well not have made it.
    if request.operation != Operation::Create {
        let question = own("delete").in_namespace(&info.namespace).of_subresource(&info.subresource);
        let verdict = authorizers.authorize(&question).await;
        if !verdict.allows() {
            let why = format!("cannot set an ownerRef on a resource you can't delete: {}, <nil>", verdict.reason());
            return Err(request.forbid(new, &why));
        }
    }
    let blocking: Vec<&Value> = after.iter().filter(|reference| newly_blocks(reference, before)).collect();
    let anything = request.question("update", "*", "*", "*").of_subresource("finalizers");
    if blocking.is_empty() || authorizers.allows(&anything).await {
        return Ok(());
    }
    for reference in blocking {
        let (version, kind) = (value::text(reference, "apiVersion"), value::text(reference, "kind"));
        let owner = GroupVersion::parse(version).and_then(|parsed| facts::kind(&parsed.group, &parsed.version, kind));
        let Some(owner) = owner else {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind {kind}: no matches for kind {kind:?} in version {version:?}"
            );
            return Err(request.forbid(new, &why));
        };
        let namespace = if owner.namespaced { info.namespace.as_str() } else { "" };
        let question = request.question("update", &owner.group, &owner.plural, value::text(reference, "name"));
        let verdict = authorizers.authorize(&question.in_namespace(namespace).of_subresource("finalizers")).await;
        if !verdict.allows() {
            let why = format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}, <nil>",
                verdict.reason()
            );
            return Err(request.forbid(new, &why));
        }
    }
    Ok(())
}

/// Whether a reference holds back its owner's deletion and did not before.
fn newly_blocks(reference: &Value, before: &[Value]) -> bool {
    let uid = value::text(reference, "uid");
    let known = before.iter().find(|old| value::text(old, "uid") == uid);
    value::flag(reference, "blockOwnerDeletion") && !known.is_some_and(|old| value::flag(old, "blockOwnerDeletion"))
}
