//! What a conversion webhook is asked, and what its answer means.

use bytes::Bytes;
use machinery::patch::json_type;
use machinery::status::go_quote;
use machinery::{Value, objectmeta, value};
use serde_json::{Map, json};

const GROUP: &str = "apiextensions.k8s.io";

/// A question to a webhook.
#[derive(Debug)]
pub struct Question<'a> {
    /// The version of reviews that it reads.
    pub review: &'static str,
    /// Tells the answer from others.
    pub uid: &'a str,
    /// The `apiVersion` that is wanted.
    pub desired: &'a str,
    /// What is to be converted.
    pub objects: &'a [Original],
}

/// An object that is to be converted. What the webhook does not have to keep is not looked at.
#[derive(Debug)]
pub struct Original {
    json: Bytes,
    /// `apiVersion`, `kind` and `metadata`.
    head: Value,
}

impl Original {
    /// Of an object's JSON; nothing if it is no object.
    pub fn new(json: Bytes) -> Option<Self> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            #[serde(default)]
            api_version: Value,
            #[serde(default)]
            kind: Value,
            #[serde(default)]
            metadata: Value,
        }
        let Head { api_version, kind, metadata } = serde_json::from_slice(&json).ok()?;
        let head = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        Some(Self { json, head })
    }
}

/// The first version of reviews among those that a webhook reads which is known here.
pub fn review_version(webhook: &Value) -> Result<&'static str, String> {
    let known = |version: &Value| match version.as_str()? {
        "v1" => Some("v1"),
        "v1beta1" => Some("v1beta1"),
        _ => None,
    };
    let versions = value::list(webhook, "conversionReviewVersions").iter();
    versions.filter_map(known).next().ok_or_else(|| "no supported conversion review versions".to_owned())
}

/// How messages name what is converted.
pub fn subject_of(objects: &[Original]) -> String {
    objects.first().map(|object| subject(&object.head)).unwrap_or_default()
}

fn subject(object: &Value) -> String {
    let version = value::text(object, "apiVersion");
    let group = if version.contains('/') { "" } else { "/" };
    format!("{group}{version}, Kind={}", value::text(object, "kind"))
}

impl Question<'_> {
    /// As it is sent: objects are copied as they are.
    pub fn to_json(&self) -> Vec<u8> {
        let head = json!({"kind": "ConversionReview", "apiVersion": format!("{GROUP}/{}", self.review)}).to_string();
        let request = json!({"uid": self.uid, "desiredAPIVersion": self.desired}).to_string();
        let objects: usize = self.objects.iter().map(|object| object.json.len() + 1).sum();
        let mut out = Vec::with_capacity(head.len() + request.len() + objects + 32);
        out.extend_from_slice(head.trim_end_matches('}').as_bytes());
        out.extend_from_slice(b",\"request\":");
        out.extend_from_slice(request.trim_end_matches('}').as_bytes());
        out.extend_from_slice(b",\"objects\":[");
        for (at, object) in self.objects.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&object.json);
        }
        out.extend_from_slice(b"]}}");
        out
    }

    /// The converted objects, or why the answer is none.
    pub fn read(&self, answer: Value) -> Result<Vec<Value>, String> {
        let of = || subject_of(self.objects);
        let failed = |why: String| format!("conversion webhook for {} failed: {why}", of());
        let converted = self.converted(answer).map_err(failed)?;
        if converted.len() != self.objects.len() {
            let (got, wanted) = (converted.len(), self.objects.len());
            return Err(format!("conversion webhook for {} returned {got} objects, expected {wanted}", of()));
        }
        let each = self.objects.iter().zip(converted).enumerate();
        each.map(|(index, (original, converted))| self.checked(index, &original.head, converted)).collect()
    }

    fn converted(&self, mut answer: Value) -> Result<Vec<Value>, String> {
        let wanted = format!("{GROUP}/{}, Kind=ConversionReview", self.review);
        if self.review == "v1" && subject(&answer) != wanted {
            return Err(format!("expected webhook response of {wanted}, got {}", subject(&answer)));
        }
        let response = match answer.get_mut("response") {
            Some(response @ Value::Object(_)) => response,
            None | Some(Value::Null) => return Err("no response provided".to_owned()),
            Some(odd) => {
                let field = format!("ConversionReview.response of type {}.ConversionResponse", self.review);
                return Err(format!("json: cannot unmarshal {} into Go struct field {field}", json_type(odd)));
            }
        };
        let uid = value::text(response, "uid");
        if self.review == "v1" && uid != self.uid {
            return Err(format!("expected response.uid={}, got {}", go_quote(self.uid), go_quote(uid)));
        }
        let status = value::text(response, "result.status");
        if status != "Success" {
            return Err(match value::text(response, "result.message") {
                "" => format!("response.result.status was '{status}', not 'Success'"),
                message => message.to_owned(),
            });
        }
        match response.get_mut("convertedObjects").map(Value::take) {
            Some(Value::Array(objects)) => Ok(objects),
            _ => Ok(Vec::new()),
        }
    }

    fn checked(&self, index: usize, original: &Value, mut converted: Value) -> Result<Value, String> {
        let of = || subject(original);
        let at =
            |why: String| format!("conversion webhook for {} returned invalid object at index {index}: {why}", of());
        match &converted {
            Value::Null => return Err("unexpected end of JSON input".to_owned()),
            Value::Object(fields) if fields.get("kind").and_then(Value::as_str).unwrap_or_default().is_empty() => {
                return Err(format!("Object 'Kind' is missing in '{converted}'"));
            }
            Value::Object(_) => {}
            odd => {
                let kind = json_type(odd);
                return Err(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"));
            }
        }
        let got = value::text(&converted, "apiVersion");
        if got != self.desired {
            return Err(at(format!("invalid groupVersion (expected {}, received {got})", self.desired)));
        }
        let kinds = (value::text(original, "kind"), value::text(&converted, "kind"));
        if kinds.0 != kinds.1 {
            return Err(at(format!("invalid kind (expected {}, received {})", kinds.0, kinds.1)));
        }
        for (path, words) in [("metadata.name", "name"), ("metadata.namespace", "namespace"), ("metadata.uid", "UID")] {
            let (before, after) = (value::text(original, path), value::text(&converted, path));
            if before != after {
                let why = format!("must have the same {words}: {before} != {after}");
                return Err(format!("conversion webhook for {} returned invalid object: {why}", of()));
            }
        }
        restore_metadata(original, &mut converted)
            .map_err(|why| format!("conversion webhook for {} returned invalid metadata: {why}", of()))?;
        Ok(converted)
    }
}

/// Metadata is what it was, but for labels and annotations.
fn restore_metadata(original: &Value, converted: &mut Value) -> Result<(), String> {
    let Some(said) = converted.get_mut("metadata") else {
        return Err("missing metadata in converted object".to_owned());
    };
    let mut metadata = original["metadata"].clone();
    let mut changed = Map::new();
    for field in ["labels", "annotations"] {
        match said.get_mut(field).map(Value::take).filter(|said| !said.is_null()) {
            None => drop(value::remove(&mut metadata, field)),
            Some(Value::Object(texts)) => {
                if let Some((key, odd)) = texts.iter().find(|(_, text)| !text.is_string()) {
                    let kind = machinery::patch::go_type(odd);
                    return Err(format!("metadata.{field}[{key}] must be a string, but is {kind} in converted object"));
                }
                if metadata.get(field).and_then(Value::as_object) != Some(&texts) {
                    changed.insert(field.to_owned(), Value::Object(texts.clone()));
                    metadata[field] = Value::Object(texts);
                }
            }
            Some(odd) => {
                let kind = machinery::patch::go_type(&odd);
                return Err(format!("invalid metadata.{field} of type {kind} in converted object"));
            }
        }
    }
    if !changed.is_empty() {
        changed.insert("name".to_owned(), json!("x"));
        let errors = objectmeta::validate_object_meta(
            &Value::Object(changed),
            false,
            machinery::names::name_is_dns_subdomain,
            "metadata",
        );
        if let Some(error) = errors.first() {
            return Err(error.to_string().replacen("metadata.annotations:", "metadata.annotation:", 1));
        }
    }
    *said = metadata;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Value {
        json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"x": "y"}}})
    }

    /// What is made of an answer with these objects, after a change of it.
    fn read(objects: Value, change: impl FnOnce(&mut Value)) -> Result<Vec<Value>, String> {
        let originals = [Original::new(original().to_string().into()).expect("an object")];
        let question = Question { review: "v1", uid: "q", desired: "g/v2", objects: &originals };
        let mut answer = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "response": {"uid": "q", "result": {"status": "Success"}, "convertedObjects": objects}});
        change(&mut answer);
        let sent: Value = serde_json::from_slice(&question.to_json()).expect("JSON");
        assert_eq!(
            sent,
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": {
                "uid": "q", "desiredAPIVersion": "g/v2", "objects": [original()],
            }})
        );
        question.read(answer)
    }

    fn converted() -> Value {
        let mut converted = original();
        converted["apiVersion"] = json!("g/v2");
        converted
    }

    #[test]
    fn what_is_converted_keeps_who_it_is() {
        let mut said = converted();
        said["metadata"]["labels"] = json!({"new": "label"});
        said["metadata"]["generation"] = json!(7);
        said["spec"] = json!({"a": 1});
        let read = read(json!([said]), |_| {}).expect("converted");
        assert_eq!(read[0]["metadata"], json!({"name": "a", "namespace": "n", "uid": "u", "labels": {"new": "label"}}));
        assert_eq!(read[0]["spec"], json!({"a": 1}));
    }

    #[test]
    fn a_webhook_that_lies_is_not_believed() {
        let told = |objects: Value, change: fn(&mut Value)| read(objects, change).expect_err("refused");
        let of = "conversion webhook for g/v1, Kind=K";
        assert_eq!(told(json!([]), |_| {}), format!("{of} returned 0 objects, expected 1"));
        assert_eq!(
            told(json!([original()]), |_| {}),
            format!("{of} returned invalid object at index 0: invalid groupVersion (expected g/v2, received g/v1)")
        );
        for (field, words) in [("name", "name: a != z"), ("namespace", "namespace: n != z"), ("uid", "UID: u != z")] {
            let mut other = converted();
            other["metadata"][field] = json!("z");
            assert_eq!(
                told(json!([other]), |_| {}),
                format!("{of} returned invalid object: must have the same {words}")
            );
        }
        let failing: fn(&mut Value) =
            |answer| answer["response"]["result"] = json!({"status": "Failure", "message": "no"});
        assert_eq!(told(json!([]), failing), format!("{of} failed: no"));
        let other: fn(&mut Value) = |answer| answer["response"]["uid"] = json!("w");
        assert_eq!(told(json!([]), other), format!("{of} failed: expected response.uid=\"q\", got \"w\""));
        let empty: fn(&mut Value) = |answer| answer["response"] = Value::Null;
        assert_eq!(told(json!([]), empty), format!("{of} failed: no response provided"));
        let word: fn(&mut Value) = |answer| answer["response"] = json!("yes");
        assert_eq!(
            told(json!([]), word),
            format!(
                "{of} failed: json: cannot unmarshal string into Go struct field ConversionReview.response of type v1.ConversionResponse"
            )
        );
        let nothing: fn(&mut Value) = |answer| *answer = Value::Null;
        assert_eq!(
            told(json!([]), nothing),
            format!(
                "{of} failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind="
            )
        );
        for (object, why) in [
            (Value::Null, "unexpected end of JSON input"),
            (json!("x"), "json: cannot unmarshal string into Go value of type map[string]interface {}"),
            (json!({}), "Object 'Kind' is missing in '{}'"),
        ] {
            assert_eq!(told(json!([object]), |_| {}), why);
        }
        let mut marked = converted();
        marked["metadata"]["annotations"] = json!({"!!": "x"});
        assert!(
            told(json!([marked]), |_| {})
                .contains("returned invalid metadata: metadata.annotation: Invalid value: \"!!\"")
        );
        let mut bad = converted();
        bad["metadata"]["labels"] = json!({"x": 1});
        assert!(
            told(json!([bad]), |_| {})
                .ends_with("metadata.labels[x] must be a string, but is int64 in converted object")
        );
    }
}
