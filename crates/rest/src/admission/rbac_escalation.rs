//! Nobody grants what they do not have: writes of roles and bindings are checked against the writer's own rules.
//!
//! Upstream checks this in the storage of the four kinds, after mutation and before validating admission; so here.

use gates::authorization::rbac::{GROUP, Rbac, Rule, missing, quoted};
use gates::authorization::{Authorizers, is_master};
use kinds::keep::keep;
use machinery::apply::equal_but_times;
use machinery::status::ApiError;
use machinery::{Value, value};

use super::{Operation, Request};

pub async fn validate(
    authorizers: &Authorizers,
    request: &Request<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let (Some(rbac), Some(new)) = (&authorizers.rbac, new) else { return Ok(()) };
    let written = matches!(request.operation, Operation::Create | Operation::Update);
    if request.resource.name.group != GROUP || !written || is_master(request.user) {
        return Ok(());
    }
    if old.is_some_and(|old| only_owners_and_finalizers_differ(new, old)) {
        return Ok(());
    }
    match request.resource.name.resource.as_str() {
        "roles" | "clusterroles" => role(authorizers, rbac, request, new, old).await,
        "rolebindings" | "clusterrolebindings" => binding(authorizers, rbac, request, new).await,
        _ => Ok(()),
    }
}

async fn role(
    authorizers: &Authorizers,
    rbac: &Rbac,
    request: &Request<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let info = request.info;
    let question = request.question("escalate", GROUP, &info.resource, &info.name);
    if authorizers.allows(&question.in_namespace(&info.namespace)).await {
        return Ok(());
    }
    let refuse = |why: &str| ApiError::forbidden(&request.resource.name, value::text(new, "metadata.name"), why);
    let rules: Vec<Rule> = value::list(new, "rules").iter().map(Rule::of).collect();
    held(rbac, request, &rules).map_err(|why| refuse(&why))?;
    let aggregates = |role: &Value| !value::list(role, "aggregationRule.clusterRoleSelectors").is_empty();
    if (aggregates(new) || old.is_some_and(aggregates)) && held(rbac, request, &Rule::everything()).is_err() {
        return Err(refuse("must have cluster-admin privileges to use the aggregationRule"));
    }
    Ok(())
}

async fn binding(authorizers: &Authorizers, rbac: &Rbac, request: &Request<'_>, new: &Value) -> Result<(), ApiError> {
    let (kind, name) = (value::text(new, "roleRef.kind"), value::text(new, "roleRef.name"));
    let namespace = &request.info.namespace;
    let (plural, of) = match kind {
        "ClusterRole" => ("clusterroles", ""),
        "Role" => ("roles", namespace.as_str()),
        // Validation has its own word about other kinds.
        _ => return Ok(()),
    };
    let question = request.question("bind", value::text(new, "roleRef.apiGroup"), plural, name);
    if authorizers.allows(&question.in_namespace(namespace)).await {
        return Ok(());
    }
    let Some(rules) = rbac.role(of, name) else {
        // Upstream names the resource of the binding and the name of the role.
        return Err(ApiError::not_found(&request.resource.name, name));
    };
    let rules: Vec<Rule> = rules.iter().map(|rule| (**rule).clone()).collect();
    held(rbac, request, &rules)
        .map_err(|why| ApiError::forbidden(&request.resource.name, value::text(new, "metadata.name"), &why))
}

/// Whether the writer holds these rules where they would be granted.
fn held(rbac: &Rbac, request: &Request<'_>, wanted: &[Rule]) -> Result<(), String> {
    let user = request.user;
    let (own, wrong) = rbac.rules_of(user, &request.info.namespace);
    let missing = missing(own.iter().map(|rule| &**rule), wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        missing.join("\n")
    );
    if let Some(wrong) = wrong {
        why.push_str(&format!("; resolution errors: [{wrong}]"));
    }
    Err(why)
}

/// The garbage collector must be able to do its work on roles that it could not have made.
pub(super) fn only_owners_and_finalizers_differ(new: &Value, old: &Value) -> bool {
    let mut same = new.clone();
    for field in
        ["metadata.ownerReferences", "metadata.finalizers", "metadata.managedFields", "metadata.resourceVersion"]
    {
        keep(&mut same, old, field);
    }
    equal_but_times(&same, old)
}
