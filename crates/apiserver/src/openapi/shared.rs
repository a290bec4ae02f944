//! Parameters that nearly every path has.
//!
//! Version 2 has them once, in a section of their own, and refers to them; upstream gives them the name of the parameter and a hash of its text. Version 3
//! repeats them wherever they are, so their lists are cut out of what is said of custom resources and kept once for all.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use facts::{Resource, Subresource, Verbs};
use memchr::memmem;
use packed::Packed;
use parking_lot::RwLock;
use serde_json::{Map, Value, json};

use super::form::Form;
use super::operation::{Parameter, PathItem};
use super::paths::Base;
use super::pieces::{Piece, piece};
use super::v3;

/// What bodies refer to that are alike for all kinds.
const GENERIC: &str = "#/definitions/io.k8s.apimachinery";
/// The keys of a parameter, in the order in which Go writes them.
const KEYS: [&str; 7] = ["uniqueItems", "type", "description", "name", "in", "required", "schema"];

/// Whether a parameter of version 2 is one that others refer to. The name of an object says which kind it is of; the other two are looked
/// for by old clients.
fn is_shared(parameter: &Value) -> bool {
    match (parameter["in"].as_str(), parameter["name"].as_str()) {
        (Some("body"), _) => parameter["schema"]["$ref"].as_str().is_some_and(|name| name.starts_with(GENERIC)),
        (_, Some("name" | "fieldValidation" | "dryRun")) => false,
        _ => true,
    }
}

/// The name of a parameter of version 2 among those that are shared.
fn name(parameter: &Value) -> String {
    let known = KEYS.iter().filter_map(|key| Some((key, parameter.get(*key)?)));
    let text: Vec<String> = known.map(|(key, value)| format!("\"{key}\":{value}")).collect();
    let hash = fnv(format!("{{{}}}", text.join(",")).as_bytes());
    format!("{}-{}", parameter["name"].as_str().unwrap_or_default(), URL_SAFE.encode(&hash.to_be_bytes()[..6]))
}

/// FNV-1 of 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte))
}

/// A parameter of version 2, or what refers to it.
pub(super) fn referred(parameter: Value) -> Value {
    if is_shared(&parameter) { json!({ "$ref": format!("#/parameters/{}", name(&parameter)) }) } else { parameter }
}

/// As [`referred`], for one that may have been asked for before. There are as many as options have fields.
pub(super) fn known(parameter: &Parameter, shown: fn(&Parameter) -> Value) -> Value {
    static KNOWN: LazyLock<RwLock<HashMap<Parameter, Value>>> = LazyLock::new(RwLock::default);
    if let Some(known) = KNOWN.read().get(parameter) {
        return known.clone();
    }
    let value = shown(parameter);
    if !is_shared(&value) {
        return value;
    }
    let value = referred(value);
    KNOWN.write().insert(parameter.clone(), value.clone());
    value
}

/// The section of those that are shared by these parameters of version 2.
pub(super) fn section(parameters: impl Iterator<Item = Value>) -> Map<String, Value> {
    parameters.filter(is_shared).map(|parameter| (name(&parameter), parameter)).collect()
}

/// A list of parameters as it stands in documents of a form.
struct List {
    finder: memmem::Finder<'static>,
    text: Arc<[u8]>,
    piece: Piece,
}

/// Paths of a custom resource as pieces: what comes before the first long list, the list, which is kept once for all, and the rest, which says
/// that list again and again and so refers to it.
pub(super) fn cut(form: Form, paths: &[u8]) -> Vec<Piece> {
    let found = lists(form).iter().filter_map(|list| Some((list.finder.find(paths)?, list)));
    let Some((at, list)) = found.min_by_key(|(at, _)| *at) else { return whole(paths) };
    let rest = &paths[at + list.text.len()..];
    vec![piece(&paths[..at]), list.piece.clone(), Arc::new(Packed::behind(&list.text, rest))]
}

fn whole(paths: &[u8]) -> Vec<Piece> {
    if paths.is_empty() { Vec::new() } else { vec![piece(paths)] }
}

/// The long lists of parameters of custom resources.
fn lists(form: Form) -> &'static [List] {
    static LISTS: [OnceLock<Vec<List>>; 4] = [const { OnceLock::new() }; 4];
    LISTS[form as usize].get_or_init(|| {
        let (Form::V3Json | Form::V3Protobuf) = form else { return Vec::new() };
        let lists = items().into_iter().flat_map(|item| {
            let of_operations = item.operations.into_iter().map(|operation| (operation.parameters, false));
            of_operations.chain([(item.parameters, true)])
        });
        let texts = lists.map(|(parameters, of_path)| {
            let list: Value = parameters.iter().map(v3::parameter).collect();
            form.list(&list, of_path)
        });
        let mut texts: Vec<Vec<u8>> = texts.collect();
        texts.sort();
        texts.dedup();
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        texts.retain(|text| text.len() > longest / 2);
        let list = |text: Vec<u8>| {
            let finder = memmem::Finder::new(&text).into_owned();
            List { piece: piece(&text), text: text.into(), finder }
        };
        texts.into_iter().map(list).collect()
    })
}

/// The paths of a custom resource that has all that one can have, in a namespace and not.
fn items() -> Vec<PathItem> {
    let all = |namespaced: bool| {
        let mut resource = Resource::new("example.com", "v1".to_owned(), "examples", "Example");
        resource.namespaced = namespaced;
        resource.verbs = Verbs::ALL;
        let sub = |name: &'static str| Subresource {
            name: name.into(),
            kind: "Example".into(),
            verbs: Verbs::of(["get", "patch", "update"]),
            kind_of: None,
            ty: None,
        };
        resource.subresources = vec![sub("status"), sub("scale")].into();
        Base::new("example.com", "v1").paths(&resource)
    };
    [true, false].into_iter().flat_map(all).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::form::Trees;
    use super::super::tests::openapi;
    use super::*;

    #[test]
    fn whatever_is_referred_to_is_in_the_section() {
        let groups: Vec<facts::Group> = facts::table().groups().to_vec();
        let document = openapi(groups).v2(Form::V2Json).bytes();
        let document: Value = serde_json::from_slice(&document).expect("JSON");
        let section = document["parameters"].as_object().expect("parameters");
        // Upstream's has as many.
        assert_eq!(section.len(), 47, "{:?}", section.keys());
        let mut referred = std::collections::BTreeSet::new();
        let mut left = vec![&document["paths"]];
        while let Some(value) = left.pop() {
            referred.extend(value["$ref"].as_str().and_then(|name| name.strip_prefix("#/parameters/")));
            left.extend(value.as_object().into_iter().flat_map(Map::values));
            left.extend(value.as_array().into_iter().flatten());
        }
        assert_eq!(referred, section.keys().map(String::as_str).collect(), "no more and no less");
        let pods = &document["paths"]["/api/v1/namespaces/{namespace}/pods"];
        // The name is a hash of what is said; of this one upstream says the same.
        assert_eq!(pods["parameters"][0], json!({ "$ref": "#/parameters/namespace-vgWSWtn3" }));
        let own: Vec<&Value> =
            pods["post"]["parameters"].as_array().expect("a list").iter().filter(|one| one["$ref"].is_null()).collect();
        let names: Vec<&str> = own.iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["body", "dryRun", "fieldValidation"]);
    }

    #[test]
    fn long_lists_are_pieces_that_custom_resources_share() {
        for form in [Form::V3Json, Form::V3Protobuf] {
            let paths = |name: &'static str| {
                let mut resource = Resource::new("example.com", "v1".to_owned(), name, "Ship");
                resource.namespaced = true;
                resource.verbs = Verbs::ALL;
                let items = Base::new("example.com", "v1").paths(&resource);
                let items: Map<String, Value> = items.iter().map(|item| (item.path.clone(), v3::path(item))).collect();
                form.parts(&Trees::new(Map::new(), items)).paths
            };
            let (one, other) = (paths("ships"), paths("rafts"));
            assert!(one.len() == 3 && Arc::ptr_eq(&one[1], &other[1]) && one[1].len() > 2048, "{form:?}: {one:?}");
            let text = |pieces: &[Piece]| pieces.iter().flat_map(|piece| piece.text()).collect::<Vec<u8>>();
            // Little is left that every definition has to keep for itself.
            let own = packed::gzip([&*one[0], &*one[2]].into_iter()).len();
            assert!(own * 6 < text(&one).len(), "{form:?}: {own} of {}", text(&one).len());
            let mut unpacked = Vec::new();
            let gzip = super::super::Assembled::new(String::new(), one.clone()).gzip();
            flate2::read::GzDecoder::new(&gzip[..]).read_to_end(&mut unpacked).expect("one stream");
            assert!(unpacked == text(&one));
            if form == Form::V3Json {
                let text = [b"{", &text(&one)[..], b"}"].concat();
                let document: Value = serde_json::from_slice(&text).expect("JSON");
                assert_eq!(document.as_object().map(Map::len), Some(3));
            }
        }
    }
}
