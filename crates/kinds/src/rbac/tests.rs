//! What upstream says about kinds of this group.

use machinery::status::FieldError;
use serde_json::json;

use crate::rbac::role::Roles;
use crate::rbac::role_binding::Bindings;
use crate::strategy::Strategy;

#[test]
fn roles_and_bindings_are_checked() {
    let shown = |errors: Vec<FieldError>| -> Vec<String> { errors.iter().map(ToString::to_string).collect() };
    assert_eq!(
        shown(
            Roles { namespaced: true }.validate(&json!({"rules": [{"nonResourceURLs": ["/x"]}, {"verbs": ["get"]}]}))
        ),
        [
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
            "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[1].resources: Required value: resource rules must supply at least one resource",
            "rules[0].verbs: Required value",
        ]
    );
    let mut binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "Robot", "name": "x"}]});
    let bindings = Bindings { namespaced: false };
    bindings.default(&mut binding);
    assert_eq!(
        shown(bindings.validate(&binding)),
        [
            "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            "subjects[1].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
        ]
    );
}
