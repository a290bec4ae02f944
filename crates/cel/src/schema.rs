//! Types of the API's own kinds, out of the facts, so that expressions about them can be checked before they run.

use std::collections::HashMap;
use std::sync::Arc;

use facts::{Schema, TypeId};

use crate::types::{ObjectType, Type};

/// The type of objects of a kind; nothing for kinds that nobody has described.
pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<Type> {
    let id = facts::type_of(group, version, kind)?;
    Some(Builder::default().object(id))
}

/// The type of the metadata that every object has.
pub fn of_metadata() -> Option<Type> {
    let id = facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?;
    Some(Builder::default().object(id))
}

#[derive(Default)]
struct Builder {
    /// Each type is made once, however many fields are of it.
    made: HashMap<TypeId, Type>,
    /// Types that are being made: one inside itself is not looked into.
    open: Vec<TypeId>,
}

impl Builder {
    fn object(&mut self, id: TypeId) -> Type {
        if let Some(known) = self.made.get(&id) {
            return known.clone();
        }
        if self.open.contains(&id) {
            return Type::Dyn;
        }
        self.open.push(id);
        let made = self.fields(id.def());
        self.open.pop();
        self.made.insert(id, made.clone());
        made
    }

    fn fields(&mut self, of: &facts::Type) -> Type {
        let fields = of.fields().iter().map(|field| (field.name.to_string(), self.schema(&field.schema)));
        let fields = fields.collect();
        Type::Object(Arc::new(ObjectType { name: of.short_name().to_owned(), fields }))
    }

    fn schema(&mut self, schema: &Schema) -> Type {
        match schema {
            Schema::String | Schema::Quantity | Schema::Duration => Type::String,
            Schema::Bytes => Type::Bytes,
            Schema::Int32 | Schema::Int64 => Type::Int,
            Schema::Double => Type::Double,
            Schema::Bool => Type::Bool,
            Schema::Time | Schema::MicroTime => Type::Timestamp,
            Schema::IntOrString | Schema::Any(_) => Type::Dyn,
            Schema::Ref(id) => self.object(*id),
            Schema::Object(of) => self.fields(of),
            Schema::Array(list) => Type::list(self.schema(&list.items)),
            Schema::Map(map) => Type::map(Type::String, self.schema(&map.values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Declarations, Program};

    #[test]
    fn expressions_about_known_kinds_are_checked() {
        let mut declarations = Declarations::default();
        declarations.escaped_fields = true;
        declarations.add("object", of_kind("apps", "v1", "Deployment").expect("a type"));
        let check = |source: &str, expect: Result<&str, &str>| {
            let outcome = Program::compile(source, &declarations);
            let shown = outcome.map(|program| program.output().to_string());
            let shown = shown.map_err(|why| why.lines().next().unwrap_or_default().to_owned());
            assert_eq!(shown, expect.map(str::to_owned).map_err(str::to_owned), "{source}");
        };
        check("object.spec.replicas", Ok("int"));
        check("object.metadata.labels['app']", Ok("string"));
        check("object.metadata.creationTimestamp", Ok("google.protobuf.Timestamp"));
        check("object.metadata.__namespace__ == object.metadata.namespace", Ok("bool"));
        check("object.spec.template.spec.containers.all(c, c.image.startsWith('r/'))", Ok("bool"));
        check("object.spec.template.spec.containers[0].resources.limits['cpu']", Ok("string"));
        check("object.spec.strategy.rollingUpdate.maxSurge == 1", Ok("bool"));
        check("object.spec.replicasss > 1", Err("ERROR: <input>:1:12: undefined field 'replicasss'"));
        check(
            "object.spec.replicas == '1'",
            Err("ERROR: <input>:1:22: found no matching overload for '_==_' applied to '(int, string)'"),
        );
    }

    #[test]
    fn a_type_inside_itself_ends() {
        let schema = of_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("a type");
        let mut declarations = Declarations::default();
        declarations.add("object", schema);
        let deep = "object.spec.versions[0].schema.openAPIV3Schema.properties['a'].properties['b'].type == 'string'";
        assert!(Program::compile(deep, &declarations).is_ok());
    }
}
