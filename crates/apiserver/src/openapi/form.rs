//! The forms of documents, and how one is put together: a frame, and two long sections of which most is packed already.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::pieces::{Piece, piece};
use super::schemas::Dialect;
use super::{gnostic, gnostic_v3, shared};

/// The forms that documents come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    V2Json,
    V3Json,
    V2Protobuf,
    V3Protobuf,
}

/// The encodings of documents, those that more clients ask for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    pub(super) const ALL: [Self; 2] = [Self::Json, Self::Protobuf];

    /// A version in it.
    pub(super) fn form(self, dialect: Dialect) -> Form {
        match (self, dialect) {
            (Self::Json, Dialect::V2) => Form::V2Json,
            (Self::Json, Dialect::V3) => Form::V3Json,
            (Self::Protobuf, Dialect::V2) => Form::V2Protobuf,
            (Self::Protobuf, Dialect::V3) => Form::V3Protobuf,
        }
    }
}

/// How a document is written as protobuf.
pub(super) struct Sections {
    /// All of a document that is in the tree.
    pub frame: fn(&Value) -> Vec<u8>,
    /// Schemas by name, without what stands around them.
    pub schemas: fn(&Value) -> Vec<u8>,
    /// Items by path, without what stands around them.
    pub paths: fn(&Value) -> Vec<u8>,
    /// A list of parameters of an operation, or else of a path.
    pub parameters: fn(&Value, bool) -> Vec<u8>,
    /// The fields that lead to the schemas, and those that lead to the paths.
    pub schemas_at: &'static [u32],
    pub paths_at: &'static [u32],
}

/// Entries of the two long sections of a document: objects, by name and by path.
pub(super) struct Trees {
    pub schemas: Value,
    pub paths: Value,
}

impl Trees {
    pub(super) fn new(schemas: Map<String, Value>, paths: Map<String, Value>) -> Self {
        Self { schemas: Value::Object(schemas), paths: Value::Object(paths) }
    }
}

/// The same as they are kept.
#[derive(Debug)]
pub(super) struct Parts {
    pub schemas: Piece,
    pub paths: Vec<Piece>,
}

static COMMA: LazyLock<Piece> = LazyLock::new(|| piece(b","));

impl Form {
    pub(super) fn dialect(self) -> Dialect {
        match self {
            Self::V2Json | Self::V2Protobuf => Dialect::V2,
            Self::V3Json | Self::V3Protobuf => Dialect::V3,
        }
    }

    pub(super) fn encoding(self) -> Encoding {
        match self {
            Self::V2Json | Self::V3Json => Encoding::Json,
            Self::V2Protobuf | Self::V3Protobuf => Encoding::Protobuf,
        }
    }

    fn protobuf(self) -> Option<&'static Sections> {
        match self {
            Self::V2Json | Self::V3Json => None,
            Self::V2Protobuf => Some(&gnostic::SECTIONS),
            Self::V3Protobuf => Some(&gnostic_v3::SECTIONS),
        }
    }

    /// A whole document in one piece.
    pub(super) fn whole(self, document: &Value) -> Piece {
        match self.protobuf() {
            None => piece(document.to_string().as_bytes()),
            Some(sections) => piece(&(sections.frame)(document)),
        }
    }

    /// Packs entries of the sections.
    pub(super) fn parts(self, trees: &Trees) -> Parts {
        let Trees { schemas, paths } = trees;
        let (schemas, paths) = match self.protobuf() {
            None => (entries(schemas), entries(paths)),
            Some(sections) => ((sections.schemas)(schemas), (sections.paths)(paths)),
        };
        Parts { schemas: piece(&schemas), paths: shared::cut(self, &paths) }
    }

    /// A list of parameters as it stands in an operation, or else for all operations of a path.
    pub(super) fn list(self, parameters: &Value, of_path: bool) -> Vec<u8> {
        match self.protobuf() {
            None => parameters.to_string().into_bytes(),
            Some(sections) => (sections.parameters)(parameters, of_path),
        }
    }

    /// Puts a document together. `frame` is all of it but the two sections.
    pub(super) fn assemble<'a>(self, frame: &Value, parts: impl Iterator<Item = &'a Parts> + Clone) -> Vec<Piece> {
        let schemas = parts.clone().map(|parts| &parts.schemas).filter(|piece| !piece.is_empty());
        let paths = parts.map(|parts| &parts.paths[..]).filter(|pieces| !pieces.is_empty());
        let mut out = Vec::new();
        match self.protobuf() {
            None => {
                let (head, end): (&str, &str) = match self.dialect() {
                    Dialect::V2 => ("{\"definitions\":{", "}"),
                    Dialect::V3 => ("{\"components\":{\"schemas\":{", "}}"),
                };
                out.push(piece(head.as_bytes()));
                out.extend(separated(schemas.map(std::slice::from_ref)));
                out.push(piece(format!("{end},\"paths\":{{").as_bytes()));
                out.extend(separated(paths));
                out.push(piece(format!("}},{}", &frame.to_string()[1..]).as_bytes()));
            }
            Some(sections) => {
                out.push(piece(&(sections.frame)(frame)));
                nested(sections.paths_at, paths.flatten(), &mut out);
                nested(sections.schemas_at, schemas, &mut out);
            }
        }
        out
    }
}

/// The entries of a JSON object, without its braces.
fn entries(object: &Value) -> Vec<u8> {
    let mut text = object.to_string().into_bytes();
    text.pop();
    text.remove(0);
    text
}

fn separated<'a>(parts: impl Iterator<Item = &'a [Piece]>) -> impl Iterator<Item = Piece> {
    let between = |at: usize| (at > 0).then(|| COMMA.clone());
    parts.enumerate().flat_map(move |(at, pieces)| between(at).into_iter().chain(pieces.iter().cloned()))
}

/// Messages in messages, with these fields from the outermost to the innermost.
fn nested<'a>(fields: &[u32], pieces: impl Iterator<Item = &'a Piece> + Clone, out: &mut Vec<Piece>) {
    let length: usize = pieces.clone().map(|piece| piece.len()).sum();
    let heads = fields.iter().rev().fold(Vec::new(), |inner, field| {
        let mut head = gnostic::head(*field, inner.len() + length);
        head.extend(inner);
        head
    });
    out.push(piece(&heads));
    out.extend(pieces.cloned());
}
