//! Any body of any kind is understood or refused: objects made at random from the schema of each kind, some of their
//! parts of the wrong type, some of their bytes wrong.

use facts::{Opaque, Schema, Type};
use machinery::Value;
use machinery::codec::{cbor, yaml};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::body::{MEDIA, swallow};

struct Maker {
    random: StdRng,
    /// How many parts of an object are of the wrong type. Most objects have none: the rules beyond the types are to be
    /// reached, too.
    wrong: f64,
}

/// Objects of each kind; a hundred times as many in `make soak`.
const OBJECTS: usize = 60;
/// How deep made-up objects are.
const DEPTH: usize = 9;

#[test]
fn objects_made_at_random_are_understood_or_refused() {
    let seed = std::env::var("TRIREME_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("seed {seed}");
    let objects = if std::env::var_os("TRIREME_SOAK").is_some() { OBJECTS * 100 } else { OBJECTS };
    let mut maker = Maker { random: StdRng::seed_from_u64(seed), wrong: 0.0 };
    for facts in facts::resources() {
        let Some(of) = facts.ty else { continue };
        for number in 0..objects {
            maker.wrong = if number % 4 == 0 { 0.02 } else { 0.0 };
            let mut object = of_type(&mut maker, of.def(), DEPTH);
            object["apiVersion"] = json!(facts.api_version());
            object["kind"] = json!(facts.kind);
            swallow(MEDIA[0], object.to_string().as_bytes());
        }
    }
}

#[test]
fn bytes_that_are_nearly_objects_are_understood_or_refused() {
    let mut maker = Maker { random: StdRng::seed_from_u64(7), wrong: 0.0 };
    for facts in facts::resources() {
        let Some(of) = facts.ty else { continue };
        let mut object = of_type(&mut maker, of.def(), DEPTH);
        object["apiVersion"] = json!(facts.api_version());
        object["kind"] = json!(facts.kind);
        let bodies = [object.to_string().into_bytes(), yaml::encode(&object).into_bytes(), cbor::encode(&object)];
        for (media, body) in MEDIA.into_iter().zip(bodies) {
            for _ in 0..10 {
                let mut body = body.clone();
                spoil(&mut maker.random, &mut body);
                swallow(media, &body);
            }
        }
        // An envelope whose message is noise, and noise in an envelope's place.
        let mut noise = b"k8s\0".to_vec();
        noise.extend((0..maker.random.random_range(0..200)).map(|_| maker.random.random::<u8>()));
        swallow(MEDIA[3], &noise);
    }
}

fn spoil(random: &mut StdRng, body: &mut Vec<u8>) {
    for _ in 0..random.random_range(1..4) {
        if body.is_empty() {
            return;
        }
        let at = random.random_range(0..body.len());
        match random.random_range(0..4) {
            0 => body[at] = random.random(),
            1 => body.truncate(at),
            2 => {
                body.remove(at);
            }
            _ => {
                let piece: Vec<u8> = body[at..body.len().min(at + 20)].to_vec();
                body.splice(at..at, piece);
            }
        }
    }
}

fn of_type(maker: &mut Maker, of: &Type, depth: usize) -> Value {
    let mut object = serde_json::Map::new();
    for field in of.fields() {
        if depth > 0 && maker.random.random_bool(0.5) {
            object.insert(field.name.to_string(), of_schema(maker, &field.schema, depth - 1));
        }
    }
    Value::Object(object)
}

fn of_schema(maker: &mut Maker, schema: &Schema, depth: usize) -> Value {
    if maker.random.random_bool(maker.wrong) {
        return [json!(null), json!("text"), json!(-1), json!(1.5), json!([[]]), json!({"": {}}), json!(true)]
            .choose(&mut maker.random)
            .cloned()
            .expect("there are some");
    }
    match schema {
        Schema::String => text(&mut maker.random),
        Schema::Bytes => pick(&mut maker.random, &["", "aGVsbG8=", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==", "x"]),
        Schema::Int32 | Schema::Int64 => number(&mut maker.random),
        Schema::Double => json!(maker.random.random_range(-1.0e3..1.0e3)),
        Schema::Bool => json!(maker.random.random_bool(0.5)),
        Schema::Time => {
            pick(&mut maker.random, &["2026-01-02T03:04:05Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
        }
        Schema::MicroTime => pick(&mut maker.random, &["2026-01-02T03:04:05.000006Z"]),
        Schema::Quantity => {
            pick(&mut maker.random, &["1", "100m", "-5", "1Gi", "9223372036854775807", "1e30", "0.1n", "12E"])
        }
        Schema::IntOrString if maker.random.random_bool(0.5) => number(&mut maker.random),
        Schema::IntOrString => pick(&mut maker.random, &["25%", "100%", "-1%", "http", "", "1000000000000%"]),
        Schema::Duration => pick(&mut maker.random, &["1m30s", "0s", "-1h", "2562047h47m16.854775807s"]),
        Schema::Any(Opaque::SchemaOrArray | Opaque::SchemaOrBool | Opaque::SchemaOrStrings) => {
            [json!(true), json!([]), json!({"type": "object"})]
                .choose(&mut maker.random)
                .cloned()
                .expect("there are some")
        }
        Schema::Any(_) => [json!({}), json!({"a": [1, {"b": null}]}), json!("x"), json!(3)]
            .choose(&mut maker.random)
            .cloned()
            .expect("there are some"),
        Schema::Ref(of) => of_type(maker, of.def(), depth),
        Schema::Object(of) => of_type(maker, of, depth),
        Schema::Array(list) => {
            let count = if depth == 0 { 0 } else { maker.random.random_range(0..3) };
            (0..count).map(|_| of_schema(maker, &list.items, depth - 1)).collect()
        }
        Schema::Map(map) => {
            let count = if depth == 0 { 0 } else { maker.random.random_range(0..3) };
            let entries = (0..count).map(|_| {
                let key = text(&mut maker.random).as_str().unwrap_or_default().to_owned();
                (key, of_schema(maker, &map.values, depth - 1))
            });
            Value::Object(entries.collect())
        }
    }
}

fn pick(random: &mut StdRng, texts: &[&str]) -> Value {
    json!(texts.choose(random).expect("there are some"))
}

fn number(random: &mut StdRng) -> Value {
    json!(
        [0_i64, 1, 2, 80, -1, 100, 65535, 65536, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN]
            .choose(random)
            .expect("there are some")
    )
}

/// Words that some rule somewhere looks at, and words that none should trip over.
fn text(random: &mut StdRng) -> Value {
    const TEXTS: [&str; 40] = [
        "",
        "a",
        "default",
        "kube-system",
        "a.b/c",
        "/",
        "//",
        "a/b/c",
        "-",
        "..",
        "../x",
        "/abs/path",
        "UPPER",
        "10.0.0.1",
        "10.0.0.0/8",
        "::1",
        "fd00::/64",
        "256.1.1.1",
        "TCP",
        "UDP",
        "http",
        "https://x.example/y",
        "0 0 * * *",
        "*/5 * * * 1-5",
        "@every 1x",
        "TZ=x * * * * *",
        "self.x > 0",
        "RollingUpdate",
        "Always",
        "Never",
        "In",
        "Exists",
        "ReadWriteOnce",
        "Namespace",
        "Cluster",
        "kubernetes.io/os",
        "\u{fc}\u{1f6a2}",
        "\0",
        "%s%n",
        "$(X)",
    ];
    if random.random_bool(0.01) { json!("x".repeat(300)) } else { pick(random, &TEXTS) }
}
