//! The laws of apply for kinds that nobody has thought of: schemas, and configurations of them, are made from a seed.

use std::sync::Arc;

use facts::{Field, List, ListType, Map, MapType, Schema};

use super::*;

/// Numbers from a seed (splitmix64): the same seed always makes the same kind.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn scalar(&mut self) -> Schema {
        match self.below(4) {
            0 => Schema::Int64,
            1 => Schema::Bool,
            2 => Schema::IntOrString,
            _ => Schema::String,
        }
    }

    fn schema(&mut self, depth: usize) -> Schema {
        let list = |items, list_type, keys: &[&'static str]| {
            let keys = keys.iter().map(|key| facts::Str::from(*key)).collect();
            Schema::Array(Box::new(List { items, list_type, keys }))
        };
        match self.below(if depth == 0 { 5 } else { 9 }) {
            0 => self.scalar(),
            1 => list(self.scalar(), None, &[]),
            2 => list(Schema::String, Some(ListType::Set), &[]),
            3 => Schema::Map(Box::new(Map { values: Schema::String, map_type: Some(MapType::Atomic) })),
            4 => Schema::Map(Box::new(Map { values: self.scalar(), map_type: None })),
            5 => {
                Schema::Map(Box::new(Map { values: Schema::Object(self.kind(depth - 1, Vec::new())), map_type: None }))
            }
            6 => {
                let keys = vec![Field::new("k", Schema::String)];
                list(Schema::Object(self.kind(depth - 1, keys)), Some(ListType::Map), &["k"])
            }
            7 => {
                let second = Field { default: Some("\"TCP\"".into()), ..Field::new("p", Schema::String) };
                let keys = vec![Field::new("k", Schema::String), second];
                list(Schema::Object(self.kind(depth - 1, keys)), Some(ListType::Map), &["k", "p"])
            }
            _ => Schema::Object(self.kind(depth - 1, Vec::new())),
        }
    }

    fn kind(&mut self, depth: usize, mut fields: Vec<Field>) -> Arc<Type> {
        for at in 0..=self.below(4) {
            fields.push(Field::new(format!("f{at}"), self.schema(depth)));
        }
        Arc::new(Type::new("random", fields))
    }

    /// A value that fits a schema. What can be shared (keys of maps, items of sets and of lists with keys) carries the author's
    /// mark; of what cannot, each field is given to one of the two authors by the path to it.
    fn value(&mut self, schema: &Schema, author: usize, path: &str) -> Option<Value> {
        let mark = ["even", "odd"][author];
        let mine = path.bytes().map(usize::from).sum::<usize>() % 2 == author;
        let scalar = |schema: &Schema| match schema {
            Schema::Int64 | Schema::IntOrString => json!(path.len() + author),
            Schema::Bool => json!(true),
            _ => json!(mark),
        };
        match schema {
            Schema::Object(of) => {
                let mut fields = crate::value::Object::new();
                for field in of.fields().iter().filter(|field| !matches!(&*field.name, "k" | "p")) {
                    let below = format!("{path}.{}", field.name);
                    if self.below(3) > 0
                        && let Some(value) = self.value(&field.schema, author, &below)
                    {
                        fields.insert(field.name.to_string(), value);
                    }
                }
                (!fields.is_empty()).then_some(Value::Object(fields))
            }
            Schema::Array(list) if list.list_type == Some(ListType::Set) => Some(json!([mark, format!("{mark}2")])),
            Schema::Array(list) if list.list_type == Some(ListType::Map) => {
                let mut item = self.value(&list.items, author, path).unwrap_or_else(|| json!({}));
                item["k"] = json!(mark);
                if list.keys.len() > 1 && self.below(2) == 0 {
                    item["p"] = json!("UDP");
                }
                Some(json!([item]))
            }
            Schema::Array(list) => mine.then(|| json!([scalar(&list.items), scalar(&list.items)])),
            Schema::Map(map) if map.map_type == Some(MapType::Atomic) => mine.then(|| json!({"x": mark})),
            Schema::Map(map) => match &map.values {
                values @ Schema::Object(_) => Some(json!({mark: self.value(values, author, path)?})),
                values => Some(json!({mark: scalar(values)})),
            },
            schema => mine.then(|| scalar(schema)),
        }
    }
}

/// What is left when all that says nothing is gone, in an order that does not depend on who came first.
fn settled(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().filter_map(settled).collect();
            items.sort_by_key(Value::to_string);
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(key, value)| Some((key, settled(value)?)));
            let kept: crate::value::Object = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        scalar => Some(scalar),
    }
}

/// Everything that must hold for one kind and two authors who want different things of it.
fn check(seed: u64) {
    let mut random = Random(seed);
    let spec = Schema::Object(random.kind(3, Vec::new()));
    let metadata = facts::type_of("", "v1", "Pod").and_then(|pod| pod.def().field("metadata").cloned());
    let texts = ["apiVersion", "kind"].map(|name| Field::new(name, Schema::String));
    let fields = texts.into_iter().chain(metadata).chain([Field::new("spec", spec.clone())]).collect();
    let of = Type::new("Random", fields);
    let fields = FieldManager {
        of: &of,
        kind: "Random",
        api_version: "example.com/v1",
        subresource: "",
        filter: &Filter::All,
        versions: &OneVersion,
    };
    let bare = json!({"apiVersion": "example.com/v1", "kind": "Random", "metadata": {"name": "a"}});
    let mut wanted = |author: usize| {
        let mut configuration = bare.clone();
        if let Some(spec) = random.value(&spec, author, "spec") {
            configuration["spec"] = spec;
        }
        configuration
    };
    let (mine, theirs) = (wanted(0), wanted(1));
    let must = |live: &Value, configuration: &Value, by: &str| {
        applied(&fields, live, configuration.clone(), by, false)
            .unwrap_or_else(|why| panic!("seed {seed}: {by} applies {configuration} to {live}: {why}"))
    };
    let content = |mut object: Value| {
        managed::set_entries(&mut object, None);
        settled(object)
    };
    let once = must(&fields.empty(), &mine, "x");
    assert_eq!(once, must(&once, &mine, "x"), "seed {seed}: applying twice");
    let before = must(&fields.empty(), &theirs, "y");
    let both = must(&before, &mine, "x");
    assert_eq!(content(both.clone()), content(must(&once, &theirs, "y")), "seed {seed}: the order of two authors");
    assert_eq!(content(must(&both, &bare, "x")), content(before), "seed {seed}: taking back what was applied");
}

#[test]
fn the_laws_hold_for_kinds_made_from_seeds() {
    (0..3_000).for_each(check);
}
