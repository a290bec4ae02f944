//! What expressions know of a schema: the types of its fields, and how large they can be.

use std::sync::Arc;

use cel::{ObjectType, Type};

use crate::{Additional, Schema};

pub(super) const MAX_REQUEST: i64 = 3 * 1024 * 1024;

/// A place, as expressions see it.
#[derive(Debug, Clone)]
pub(super) struct Decl {
    pub(super) ty: Type,
    /// The least that it takes in JSON.
    pub(super) min_size: i64,
    /// How many elements or characters there can be.
    pub(super) max_elements: i64,
    /// Those that expressions can spell, by the names that objects have.
    pub(super) fields: Vec<(String, Decl)>,
    pub(super) element: Option<Box<Decl>>,
}

impl Decl {
    fn simple(ty: Type, min_size: i64, max_elements: i64) -> Self {
        Self { ty, min_size, max_elements, fields: Vec::new(), element: None }
    }

    /// How large what is at a path can be. The first step is the variable.
    pub(super) fn size_at(&self, path: &[Arc<str>]) -> Option<u64> {
        let mut place = self;
        for step in path.iter().skip(1) {
            place = match &**step {
                "@items" | "@values" => place.element.as_deref()?,
                // Keys are texts of which nothing is known.
                "@keys" if matches!(place.ty, Type::Map(..)) => return Some(0),
                "@keys" => return None,
                name => place.fields.iter().find(|(known, _)| known == name).map(|(_, decl)| decl)?,
            };
        }
        Some(u64::try_from(place.max_elements).unwrap_or(0))
    }

    pub(super) fn field(&self, name: &str) -> Option<&Decl> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, decl)| decl)
    }
}

/// The declaration of a schema; nothing where expressions cannot see it. A resource has its kind and its name, whatever the schema says.
pub(super) fn of(schema: &Schema, resource: bool) -> Option<Decl> {
    if schema.int_or_string {
        let max = schema.max_length().map_or(MAX_REQUEST - 2, |most| most.max(0).saturating_mul(4));
        return Some(Decl::simple(Type::Dyn, 1, max));
    }
    match schema.types.only()? {
        "array" => {
            let items = schema.items.as_deref()?;
            let element = of(items, items.embedded_resource)?;
            let most = schema.limits.as_deref().and_then(|limits| limits.max_items);
            let max = most.map_or((MAX_REQUEST - 2) / (element.min_size + 1), |most| most.max(0));
            let ty = Type::list(element.ty.clone());
            Some(Decl { element: Some(Box::new(element)), ..Decl::simple(ty, 2, max) })
        }
        "object" => match &schema.additional {
            Additional::Schema(values) => {
                let element = of(values, values.embedded_resource)?;
                let most = schema.limits.as_deref().and_then(|limits| limits.max_properties);
                let max = most.map_or((MAX_REQUEST - 2) / (element.min_size + 6), |most| most.max(0));
                let ty = Type::map(Type::String, element.ty.clone());
                Some(Decl { element: Some(Box::new(element)), ..Decl::simple(ty, 2, max) })
            }
            _ => Some(object(schema, resource)),
        },
        "string" => Some(text(schema)),
        "boolean" => Some(Decl::simple(Type::Bool, 4, 0)),
        "number" => Some(Decl::simple(Type::Double, 1, 0)),
        "integer" => Some(Decl::simple(Type::Int, 1, 0)),
        _ => None,
    }
}

fn text(schema: &Schema) -> Decl {
    let whole = MAX_REQUEST - 2;
    let given = schema.max_length().map(|most| most.max(0));
    match schema.format() {
        "byte" => Decl::simple(Type::Bytes, 2, given.unwrap_or(whole)),
        "duration" => Decl::simple(Type::Duration, 3, 32),
        "date" => Decl::simple(Type::Timestamp, 12, 12),
        "date-time" => Decl::simple(Type::Timestamp, 21, 32),
        _ => {
            let allowed = schema.limits.as_deref().map(|limits| limits.allowed.as_slice()).unwrap_or_default();
            let longest = allowed.iter().filter_map(|one| one.as_str()).map(|text| text.len() as i64).max();
            let max = match given {
                Some(most) => most.saturating_mul(4),
                None if !allowed.is_empty() => longest.unwrap_or(0),
                None => whole,
            };
            Decl::simple(Type::String, 2, max)
        }
    }
}

fn object(schema: &Schema, resource: bool) -> Decl {
    let mut fields: Vec<(String, Decl)> = Vec::new();
    let mut min_size = 2;
    for (name, property) in &schema.properties {
        if resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let Some(decl) = of(property, property.embedded_resource) else { continue };
        if schema.required.contains(name) && property.default.is_none() {
            min_size += name.len() as i64 + decl.min_size + 4;
        }
        if cel::escape(name).is_some() {
            fields.push((name.clone(), decl));
        }
    }
    if resource {
        let whole = || Decl::simple(Type::String, 2, MAX_REQUEST - 2);
        let named = |name: &str| (name.to_owned(), whole());
        fields.extend([named("apiVersion"), named("kind")]);
        fields.push(("metadata".to_owned(), declared(vec![named("name"), named("generateName")], 2)));
    }
    declared(fields, min_size)
}

fn declared(fields: Vec<(String, Decl)>, min_size: i64) -> Decl {
    let types = fields.iter().map(|(name, decl)| (name.clone(), decl.ty.clone())).collect();
    let ty = Type::Object(Arc::new(ObjectType { name: "object".to_owned(), fields: types }));
    Decl { fields, ..Decl::simple(ty, min_size, 0) }
}

/// What policies see of the objects of a kind with this schema: unlike rules, all of their metadata.
pub fn of_kind(schema: &Schema, kind: &str) -> Option<Type> {
    let declared = of(schema, true)?;
    match named(&declared.ty, kind) {
        Type::Object(object) => {
            let mut fields = object.fields.clone();
            for (name, ty) in &mut fields {
                if name == "metadata"
                    && let Some(metadata) = cel::schema::of_metadata()
                {
                    *ty = metadata;
                }
            }
            Some(Type::Object(Arc::new(ObjectType { name: object.name.clone(), fields })))
        }
        other => Some(other),
    }
}

/// A type whose objects are called by where they are, as messages call them.
pub(super) fn named(ty: &Type, name: &str) -> Type {
    match ty {
        Type::Object(object) => {
            let fields = object.fields.iter().map(|(field, ty)| (field.clone(), named(ty, &format!("{name}.{field}"))));
            Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields: fields.collect() }))
        }
        Type::List(of) => Type::list(named(of, &format!("{name}.@idx"))),
        Type::Map(key, of) => Type::map(Type::clone(key), named(of, &format!("{name}.@elem"))),
        other => other.clone(),
    }
}
