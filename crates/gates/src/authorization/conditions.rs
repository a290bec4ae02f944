//! Match conditions of a webhook authorizer: which requests it is asked about at all. Pure.

use std::sync::LazyLock;

use cel::{Declarations, ObjectType, Program, Scope, Type, Value as Computed};
use machinery::Value;
use machinery::status::FieldError;

/// The most conditions of one webhook.
const MAX_CONDITIONS: usize = 64;

/// What conditions may use: the request as a `SubjectAccessReviewSpec`.
static DECLARATIONS: LazyLock<Declarations> = LazyLock::new(|| {
    let strings = || Type::list(Type::String);
    let texts = |names: &[&'static str]| names.iter().map(|name| (*name, Type::String)).collect::<Vec<_>>();
    let selector = |name: &str| {
        let fields = [("key", Type::String), ("operator", Type::String), ("values", strings())];
        let requirement = ObjectType::declare("kubernetes.SelectorRequirement", fields);
        ObjectType::declare(name, [("rawSelector", Type::String), ("requirements", Type::list(requirement))])
    };
    let mut resource = texts(&["namespace", "verb", "group", "version", "resource", "subresource", "name"]);
    resource.push(("fieldSelector", selector("kubernetes.FieldSelectorAttributes")));
    resource.push(("labelSelector", selector("kubernetes.LabelSelectorAttributes")));
    let request = [
        ("resourceAttributes", ObjectType::declare("kubernetes.ResourceAttributes", resource)),
        ("nonResourceAttributes", ObjectType::declare("kubernetes.NonResourceAttributes", texts(&["path", "verb"]))),
        ("user", Type::String),
        ("groups", strings()),
        ("extra", Type::map(Type::String, strings())),
        ("uid", Type::String),
    ];
    let mut declarations = Declarations::default();
    declarations.add("request", ObjectType::declare("kubernetes.SubjectAccessReviewSpec", request));
    declarations
});

/// All conditions of one webhook.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Program>);

impl Conditions {
    /// Compiles them; errors name the field.
    pub fn compile(sources: &[String], at: &str) -> Result<Self, Vec<FieldError>> {
        let at = format!("{at}matchConditions");
        if sources.len() > MAX_CONDITIONS {
            return Err(vec![FieldError::too_many(at, sources.len(), MAX_CONDITIONS)]);
        }
        let (mut programs, mut errors) = (Vec::new(), Vec::new());
        for (index, source) in sources.iter().enumerate() {
            let path = format!("{at}[{index}].expression");
            if source.trim().is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if sources[..index].contains(source) {
                errors.push(FieldError::duplicate(path, source.as_str()));
            } else {
                match compile(source) {
                    Ok(program) => programs.push(program),
                    Err(why) => errors.push(FieldError::invalid(path, source.as_str(), why)),
                }
            }
        }
        if errors.is_empty() { Ok(Self(programs)) } else { Err(errors) }
    }

    /// Whether all hold of the spec of a review. One that does not counts before one whose evaluation fails.
    pub fn hold(&self, spec: &Value) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let request = complete(spec);
        let mut scope = Scope::new(cel::PER_CALL_LIMIT);
        scope.add("request", &request);
        let mut unknown = Vec::new();
        for program in &self.0 {
            scope.take_cost();
            match program.evaluate(&scope) {
                Ok(Computed::Bool(true)) => {}
                Ok(Computed::Bool(false)) => return Ok(false),
                Ok(other) => unknown.push(format!(
                    "cel evaluation error: expression '{}' eval result type should be bool but got {}",
                    program.source(),
                    other.type_name()
                )),
                Err(fault) => unknown.push(format!(
                    "cel evaluation error: expression '{}' resulted in error: {fault}",
                    program.source()
                )),
            }
        }
        match unknown.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }
}

fn compile(source: &str) -> Result<Program, String> {
    let program = Program::compile(source, &DECLARATIONS).map_err(|why| format!("compilation failed: {why}"))?;
    if program.may_be(&Type::Bool) {
        return Ok(program);
    }
    Err(format!("must evaluate to {} but got {}", Type::Bool, program.output()))
}

/// Texts that a review leaves out are empty, so that conditions need not ask whether they are there.
fn complete(spec: &Value) -> Value {
    let mut request = spec.clone();
    let fill = |tree: &mut Value, names: &[&str]| {
        if let Some(fields) = tree.as_object_mut() {
            for name in names {
                fields.entry(*name).or_insert_with(|| Value::from(""));
            }
        }
    };
    fill(&mut request, &["user", "uid"]);
    if let Some(fields) = request.as_object_mut() {
        fields.entry("extra").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    if let Some(resource) = request.get_mut("resourceAttributes") {
        fill(resource, &["namespace", "verb", "group", "version", "resource", "subresource", "name"]);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn conditions(sources: &[&str]) -> Result<Conditions, Vec<FieldError>> {
        let sources: Vec<String> = sources.iter().map(|source| (*source).to_owned()).collect();
        Conditions::compile(&sources, "authorizers[0].")
    }

    fn check(sources: &[&str], expect: Result<bool, &str>) {
        let spec = json!({
            "user": "jane", "groups": ["devs"],
            "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "a",
                "labelSelector": {"requirements": [{"key": "app", "operator": "In", "values": ["x"]}]}},
        });
        let outcome = conditions(sources).expect("they compile").hold(&spec);
        assert_eq!(outcome, expect.map_err(str::to_owned), "{sources:?}");
    }

    #[test]
    fn conditions_choose_requests() {
        check(&[], Ok(true));
        check(&["has(request.resourceAttributes)", "request.resourceAttributes.namespace == 'a'"], Ok(true));
        check(
            &["request.resourceAttributes.subresource == ''", "request.uid == ''", "request.extra.size() == 0"],
            Ok(true),
        );
        check(&["!('system:serviceaccounts' in request.groups)"], Ok(true));
        check(&["request.user == 'joe'"], Ok(false));
        check(&["request.resourceAttributes.labelSelector.requirements[0].values == ['x']"], Ok(true));
        let broken = "request.nonResourceAttributes.path == '/x'";
        check(&[broken, "request.user == 'joe'"], Ok(false));
        check(
            &[broken],
            Err(
                "cel evaluation error: expression 'request.nonResourceAttributes.path == '/x'' resulted in error: no such key: nonResourceAttributes",
            ),
        );
    }

    #[test]
    fn conditions_that_make_no_sense_are_refused_when_read() {
        let refused = |sources: &[&str], expect: &str| {
            let errors = conditions(sources).expect_err("refused");
            assert_eq!(errors[0].to_string(), expect);
        };
        refused(&[" "], "authorizers[0].matchConditions[0].expression: Required value");
        refused(&["true", "true"], "authorizers[0].matchConditions[1].expression: Duplicate value: \"true\"");
        refused(
            &["request.user"],
            "authorizers[0].matchConditions[0].expression: Invalid value: \"request.user\": must evaluate to bool but got string",
        );
        refused(
            &["object.x == 1"],
            "authorizers[0].matchConditions[0].expression: Invalid value: \"object.x == 1\": compilation failed: \
             ERROR: <input>:1:1: undeclared reference to 'object' (in container '')\n | object.x == 1\n | ^",
        );
        refused(&["true"; 65], "authorizers[0].matchConditions: Too many: 65: must have at most 64 items");
    }
}
