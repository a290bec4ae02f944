//! The shape of objects: types, fields, schemas and their protobuf numbers.
//!
//! Every structure here is owned and free of lifetimes, so the schema of a custom resource can be
//! expressed in the same structures at run time as the built-in kinds are at load time: a built-in
//! type refers to another by [`TypeId`], a type made at run time nests its objects as
//! [`Schema::Object`]. [`Schema::object`] resolves both, so that readers need not care.

use std::borrow::Cow;
use std::sync::Arc;

/// A string that is a slice of the built-in table, or owned when made at run time.
pub type Str = Cow<'static, str>;

/// The number of a built-in type in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(crate) u32);

impl TypeId {
    /// The definition of this type.
    pub fn def(self) -> &'static Type {
        &crate::table().types[self.0 as usize]
    }

    /// The position of this type in the table, for arrays kept beside it.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gvk {
    /// The API group; empty for the core group.
    pub group: Str,
    /// The version within the group.
    pub version: Str,
    pub kind: Str,
}

/// What the JSON form of a type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// An object with the fields of the type.
    Object,
    /// An RFC 3339 timestamp with seconds, or null.
    Time,
    /// An RFC 3339 timestamp with microseconds, or null.
    MicroTime,
    /// A quantity: a string such as `100m`, or a number.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// A Go duration string such as `1m30s`.
    Duration,
    /// A list of strings, which protobuf wraps in a message of its own with the list as field 1.
    Strings,
    /// Some JSON value of which the table knows no more than this.
    Opaque(Opaque),
}

/// A JSON value whose inside is not described field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opaque {
    /// `runtime.RawExtension`: an object of any kind.
    RawExtension,
    /// `meta/v1.FieldsV1`: a set of field paths.
    FieldsV1,
    /// `meta/v1.Patch`: the body of a patch.
    Patch,
    /// `apiextensions/v1.JSON`: any value.
    Json,
    /// `apiextensions/v1.JSONSchemaPropsOrArray`.
    SchemaOrArray,
    /// `apiextensions/v1.JSONSchemaPropsOrBool`.
    SchemaOrBool,
    /// `apiextensions/v1.JSONSchemaPropsOrStringArray`.
    SchemaOrStrings,
    /// A value of a custom resource whose schema preserves unknown fields and says nothing else.
    Preserved,
}

/// How two lists merge, and how their items are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListType {
    /// The list is replaced as a whole.
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects told apart by the values of [`List::keys`].
    Map,
}

/// How two maps or objects merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapType {
    /// Replaced as a whole.
    Atomic,
    /// Merged key by key.
    Granular,
}

/// The items of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// What an item is.
    pub items: Schema,
    /// `x-kubernetes-list-type`; upstream treats its absence as [`ListType::Atomic`].
    pub list_type: Option<ListType>,
    /// `x-kubernetes-list-map-keys`, in their order.
    pub keys: Box<[Str]>,
}

/// The values of a map with string keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// What a value is.
    pub values: Schema,
    /// `x-kubernetes-map-type`; its absence means [`MapType::Granular`].
    pub map_type: Option<MapType>,
}

/// What a value may be.
#[derive(Clone, Debug, PartialEq)]
pub enum Schema {
    String,
    /// A string holding base64.
    Bytes,
    Int32,
    /// A 64-bit integer, also the form of integers without a format.
    Int64,
    Double,
    Bool,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Duration,
    /// Any value, of which no more is known.
    Any(Opaque),
    /// An object of a built-in type; that type's shape is always [`Shape::Object`].
    Ref(TypeId),
    /// An object of a type made at run time.
    Object(Arc<Type>),
    Array(Box<List>),
    /// An object used as a map with string keys.
    Map(Box<Map>),
}

impl Schema {
    /// The type of the object that this schema describes, whether built in or made at run time.
    pub fn object(&self) -> Option<&Type> {
        match self {
            Schema::Ref(id) => Some(id.def()),
            Schema::Object(of) => Some(of),
            _ => None,
        }
    }

    /// The list, if this is an array.
    pub fn list(&self) -> Option<&List> {
        match self {
            Schema::Array(list) => Some(list),
            _ => None,
        }
    }

    /// The map, if this is one.
    pub fn map(&self) -> Option<&Map> {
        match self {
            Schema::Map(map) => Some(map),
            _ => None,
        }
    }
}

/// What strategic merge patch does with a field: `x-kubernetes-patch-strategy`, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PatchStrategy {
    /// `merge`: lists merge by [`Field::patch_merge_key`], or as sets of scalars without one.
    pub merge: bool,
    /// `retainKeys`: keys absent from the patch's `$retainKeys` are cleared.
    pub retain_keys: bool,
    /// `replace`: the value is replaced as a whole.
    pub replace: bool,
}

/// The type of a protobuf field's value (of the map's value, for a map: keys are always strings).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    Bool,
    Int32,
    Int64,
    Double,
    String,
    Bytes,
    Message(TypeId),
}

/// How often a protobuf field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    Single,
    /// `repeated`, never packed.
    Repeated,
    /// `map<string, …>`.
    Map,
}

/// A field's place in its protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proto {
    pub number: u32,
    /// The type of the value.
    pub wire: Wire,
    /// How often it occurs.
    pub label: Label,
    /// Whether upstream holds the field by pointer: then it is on the wire exactly when it is set, and
    /// a zero on the wire means a zero in the object. Otherwise a single field is always on the wire,
    /// and a zero there means that the field is not set.
    pub pointer: bool,
}

/// A field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name in JSON.
    pub name: Str,
    /// What the value may be.
    pub schema: Schema,
    /// Whether the OpenAPI schema requires it.
    pub required: bool,
    /// Whether `null` is a value (custom resources only).
    pub nullable: bool,
    /// Whether upstream writes the field into JSON even when it holds the zero of its type.
    pub always: bool,
    /// The default, as compact JSON.
    pub default: Option<Str>,
    /// `x-kubernetes-map-type` given at the field and not at the type it refers to.
    pub map_type: Option<MapType>,
    /// What strategic merge patch does here.
    pub patch_strategy: PatchStrategy,
    /// `x-kubernetes-patch-merge-key`.
    pub patch_merge_key: Option<Str>,
    /// The place in protobuf, when the message of this very type has the field.
    pub proto: Option<Proto>,
    /// OpenAPI only: whether the reference stands alone, not wrapped in `allOf`.
    pub bare_ref: bool,
    /// OpenAPI only: keywords that mean nothing to the server, as a compact JSON object.
    pub extra: Option<Str>,
}

impl Field {
    /// A field of this name and schema with nothing else to say, to build upon at run time.
    pub fn new(name: impl Into<Str>, schema: Schema) -> Field {
        Field {
            name: name.into(),
            schema,
            required: false,
            nullable: false,
            always: false,
            default: None,
            map_type: None,
            patch_strategy: PatchStrategy::default(),
            patch_merge_key: None,
            proto: None,
            bare_ref: false,
            extra: None,
        }
    }

    /// Whether the value is replaced as a whole when two appliers merge: lists unless they are sets or
    /// maps, and whatever is marked atomic at the field, at its schema or at its type.
    pub fn is_atomic(&self) -> bool {
        if let Some(map_type) = self.map_type {
            return map_type == MapType::Atomic;
        }
        match &self.schema {
            Schema::Array(list) => matches!(list.list_type, None | Some(ListType::Atomic)),
            Schema::Map(map) => map.map_type == Some(MapType::Atomic),
            schema => schema.object().is_some_and(|of| of.map_type == Some(MapType::Atomic)),
        }
    }
}

/// A union: at most one of its fields is set, named by the discriminator where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// The field that names the member which is set.
    pub discriminator: Option<Str>,
    /// The fields of the union, with the value that the discriminator has for each.
    pub members: Box<[(Str, Str)]>,
}

/// What a protobuf field number of a message stands for.
#[derive(Clone, Copy, Debug)]
pub enum Member<'a> {
    /// A field of the object.
    Field(&'a Field),
    /// A message whose fields are the object's own in JSON (Go's embedded structs): encode it from, and
    /// decode it into, the same object. It is always on the wire.
    Inlined(TypeId),
}

/// A slot of [`Type::members`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Field(u16),
    Inlined(TypeId),
}

/// A type: what upstream calls a struct, OpenAPI a schema and protobuf a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// The OpenAPI name, such as `io.k8s.api.core.v1.Pod`.
    pub name: Str,
    /// What the JSON form is.
    pub shape: Shape,
    /// Whether fields outside the table are kept (custom resources only).
    pub preserve_unknown: bool,
    /// `x-kubernetes-map-type` of the whole type.
    pub map_type: Option<MapType>,
    /// The kinds whose objects have this type.
    pub gvks: Box<[Gvk]>,
    /// The unions among the fields.
    pub unions: Box<[Union]>,
    /// Whether OpenAPI describes the type; types that only protobuf knows are not published there.
    pub published: bool,
    /// Whether the type is a protobuf message.
    pub message: bool,
    fields: Box<[Field]>,
    /// How the name of each of `fields` begins, as a number: every write of an object looks up hundreds of names, and most of
    /// them differ in their first eight bytes.
    beginnings: Box<[u64]>,
    /// Positions in `fields`, in the order in which OpenAPI lists them as required.
    required: Box<[u16]>,
    /// Positions of fields with a default, and of those that are written even when they are zero.
    defaulted: Box<[u16]>,
    always: Box<[u16]>,
    slots: Box<[(u32, Slot)]>,
}

impl Type {
    /// An object type made of these fields, to build upon at run time. Among fields of one name the
    /// first is kept.
    pub fn new(name: impl Into<Str>, mut fields: Vec<Field>) -> Type {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.dedup_by(|a, b| a.name == b.name);
        Type {
            beginnings: fields.iter().map(|field| beginning(&field.name)).collect(),
            required: positions(&fields, |field| field.required),
            defaulted: positions(&fields, |field| field.default.is_some()),
            always: positions(&fields, |field| field.always),
            name: name.into(),
            shape: Shape::Object,
            preserve_unknown: false,
            map_type: None,
            gvks: Box::default(),
            unions: Box::default(),
            published: true,
            message: false,
            fields: fields.into(),
            slots: Box::default(),
        }
    }

    /// A type of the table; `required` and `inlined` say what the fields alone do not.
    pub(crate) fn from_table(
        name: &'static str,
        fields: Vec<Field>,
        required: &[&str],
        inlined: &[(u32, TypeId)],
    ) -> Type {
        let mut of = Type::new(name, fields);
        of.required = required
            .iter()
            .map(|name| of.position(name).expect("the generator lists only fields as required") as u16)
            .collect();
        let mut slots: Vec<(u32, Slot)> = inlined.iter().map(|&(number, id)| (number, Slot::Inlined(id))).collect();
        slots.extend(
            of.fields.iter().enumerate().filter_map(|(at, field)| Some((field.proto?.number, Slot::Field(at as u16)))),
        );
        slots.sort_unstable_by_key(|&(number, _)| number);
        of.slots = slots.into();
        of
    }

    /// The fields, sorted by name.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field of this JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }

    /// The position of the field of this JSON name in [`Type::fields`].
    pub fn position(&self, name: &str) -> Option<usize> {
        let sought = beginning(name);
        let first = self.beginnings.partition_point(|beginning| *beginning < sought);
        let alike = self.beginnings[first..].iter().take_while(|beginning| **beginning == sought).count();
        let at = self.fields[first..first + alike].iter().position(|field| *field.name == *name)?;
        Some(first + at)
    }

    /// The fields that have a default.
    pub fn defaulted(&self) -> impl Iterator<Item = &Field> {
        self.defaulted.iter().map(|&at| &self.fields[at as usize])
    }

    /// The fields that are written even when they are zero.
    pub fn always(&self) -> impl Iterator<Item = &Field> {
        self.always.iter().map(|&at| &self.fields[at as usize])
    }

    /// The required fields, in upstream's order.
    pub fn required(&self) -> impl ExactSizeIterator<Item = &Field> {
        self.required.iter().map(|&at| &self.fields[at as usize])
    }

    /// The protobuf members in the order of their numbers, which is the order on the wire.
    pub fn members(&self) -> impl ExactSizeIterator<Item = (u32, Member<'_>)> {
        self.slots.iter().map(|&(number, slot)| (number, self.resolve(slot)))
    }

    /// The member of this protobuf number.
    pub fn member(&self, number: u32) -> Option<Member<'_>> {
        let at = self.slots.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        Some(self.resolve(self.slots[at].1))
    }

    /// The last part of the name: the Go name of the type.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    fn resolve(&self, slot: Slot) -> Member<'_> {
        match slot {
            Slot::Field(at) => Member::Field(&self.fields[at as usize]),
            Slot::Inlined(id) => Member::Inlined(id),
        }
    }
}

/// The first eight bytes of a name; names sort as these numbers do, as far as they differ.
fn beginning(name: &str) -> u64 {
    let mut bytes = [0; 8];
    let length = name.len().min(8);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    u64::from_be_bytes(bytes)
}

fn positions(fields: &[Field], keep: impl Fn(&Field) -> bool) -> Box<[u16]> {
    fields.iter().enumerate().filter(|(_, field)| keep(field)).map(|(at, _)| at as u16).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_field_is_found_by_its_name_and_by_no_part_of_it() {
        let (mut found, mut alike) = (0, 0);
        for of in &crate::table().types {
            for (at, field) in of.fields().iter().enumerate() {
                assert_eq!(of.position(&field.name), Some(at), "{} of {}", field.name, of.name);
                for other in [&*format!("{}\0", field.name), &field.name[..field.name.len() - 1]] {
                    let there = of.fields().iter().position(|field| *field.name == *other);
                    assert_eq!(of.position(other), there, "{other} of {}", of.name);
                }
                found += 1;
                alike += usize::from(at > 0 && of.beginnings[at] == of.beginnings[at - 1]);
            }
            let defaulted = of.fields().iter().filter(|field| field.default.is_some());
            assert!(of.defaulted().map(|field| &field.name).eq(defaulted.map(|field| &field.name)), "{}", of.name);
            let always = of.fields().iter().filter(|field| field.always);
            assert!(of.always().map(|field| &field.name).eq(always.map(|field| &field.name)), "{}", of.name);
        }
        assert!(found > 1_000 && alike > 10, "{found} fields, {alike} of them begin like their neighbour");
    }
}
