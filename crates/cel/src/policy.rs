//! What the expressions of admission may use: the variables of webhooks' conditions and of policies, and their types.

use std::sync::{Arc, LazyLock};

use machinery::value;

use crate::{Composed, Declarations, ObjectType, Program, Type};

/// Which variables there are besides those of every request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uses {
    pub params: bool,
    pub authorizer: bool,
}

static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let strings = || Type::list(Type::String);
    let names = |kind: &'static str| [("group", Type::String), ("version", Type::String), (kind, Type::String)];
    let kind = || ObjectType::declare("kubernetes.GroupVersionKind", names("kind"));
    let resource = || ObjectType::declare("kubernetes.GroupVersionResource", names("resource"));
    let user = ObjectType::declare(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", strings()),
            ("extra", Type::map(Type::String, strings())),
        ],
    );
    ObjectType::declare(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", Type::String),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
});

static NAMESPACE: LazyLock<Type> = LazyLock::new(|| {
    let strings = || Type::list(Type::String);
    let labels = || Type::map(Type::String, Type::String);
    let metadata = ObjectType::declare(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", labels()),
            ("annotations", labels()),
            ("UID", Type::String),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", strings()),
        ],
    );
    let condition = ObjectType::declare(
        "kubernetes.NamespaceCondition",
        [
            ("status", Type::String),
            ("type", Type::String),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::String),
            ("reason", Type::String),
        ],
    );
    let status = ObjectType::declare(
        "kubernetes.NamespaceStatus",
        [("conditions", Type::list(condition)), ("phase", Type::String)],
    );
    let spec = ObjectType::declare("kubernetes.NamespaceSpec", [("finalizers", strings())]);
    ObjectType::declare("kubernetes.Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
});

/// What expressions may use.
pub fn declarations(uses: Uses) -> Declarations {
    let mut declarations = Declarations::default();
    declarations.add("object", Type::Dyn);
    declarations.add("oldObject", Type::Dyn);
    declarations.add("namespaceObject", NAMESPACE.clone());
    declarations.add("request", REQUEST.clone());
    if uses.params {
        declarations.add("params", Type::Dyn);
    }
    if uses.authorizer {
        let named = |name: &str| Type::Named(format!("kubernetes.authorization.{name}").into());
        declarations.add("authorizer", named("Authorizer"));
        declarations.add("authorizer.requestResource", named("ResourceCheck"));
    }
    declarations
}

/// Compiles an expression that must come to one of these types; none is any.
pub fn compile(source: &str, declarations: &Declarations, wanted: &[Type]) -> Result<Program, String> {
    let program = Program::compile(source, declarations).map_err(|why| format!("compilation failed: {why}"))?;
    if wanted.is_empty() || wanted.iter().any(|ty| program.may_be(ty)) {
        return Ok(program);
    }
    Err(match wanted {
        [one] => format!("must evaluate to {one} but got {}", program.output()),
        several => {
            let names: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("must evaluate to one of [{}] but got {}", names.join(" "), program.output())
        }
    })
}

/// The `spec.variables` of a policy, as [`compose`] makes them.
pub fn variables(trees: &[machinery::Value], declarations: &mut Declarations) -> Vec<Composed> {
    let named = trees.iter().map(|tree| (value::text(tree, "name"), value::text(tree, "expression")));
    compose(named, declarations, |source, declarations| compile(source, declarations, &[]))
}

/// Variables that are computed when they are used, each over those before it; `declarations` then has them too.
pub fn compose<'a>(
    named: impl IntoIterator<Item = (&'a str, &'a str)>,
    declarations: &mut Declarations,
    compile: impl Fn(&str, &Declarations) -> Result<Program, String>,
) -> Vec<Composed> {
    let mut fields: Vec<(String, Type)> = Vec::new();
    let mut composed = Vec::new();
    let declare = |fields: &[(String, Type)], declarations: &mut Declarations| {
        let object = ObjectType { name: "kubernetes.variables".to_owned(), fields: fields.to_vec() };
        declarations.add("variables", Type::Object(Arc::new(object)));
    };
    for (name, source) in named {
        // Before the first there are none, which is not the same as there being no such thing.
        declare(&fields, declarations);
        let program = compile(source, declarations);
        let ty = program.as_ref().map_or(Type::Dyn, |program| program.output().clone());
        fields.push((name.to_owned(), ty));
        declare(&fields, declarations);
        composed.push(Composed { name: name.to_owned(), program });
    }
    composed
}
