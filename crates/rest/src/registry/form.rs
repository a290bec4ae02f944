//! How a version of a custom resource differs from what is stored.
//!
//! Objects are stored as they were written, in whatever version was the storage version then, with the defaults and the fields that the schema had then.
//! A reader gets them in the version that it asks for, by the schema as it is now. Where that changes nothing, which is nearly always, the stored
//! object itself is shown: the revisions of which that is known are remembered.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use apiextensions::conversion::Original;
use apiextensions::{Definition, Version, as_go_writes};
use bytes::Bytes;
use machinery::object::{Draft, Field, FieldPaths, Object};
use machinery::status::ApiError;
use machinery::{Value, value};
use parking_lot::RwLock;

use super::converter::{BATCH, Converter};

/// So many more revisions are remembered than there are objects, before they are forgotten all at once.
const SPARE: usize = 1024;

/// A version of a custom resource.
pub struct Form {
    pub definition: Arc<Definition>,
    pub version: Arc<Version>,
    /// The fields that selectors may name.
    pub fields: FieldPaths,
    /// The `apiVersion` of its objects.
    api_version: String,
    /// The `apiVersion` of what is written to the store.
    stored_version: String,
    /// Revisions of objects that are stored just as they are shown.
    as_stored: RwLock<HashSet<u64>>,
    /// Who converts objects, if somebody else does.
    converter: Option<Arc<Converter>>,
}

impl Form {
    /// Of a version of a definition.
    pub fn new(definition: Arc<Definition>, version: Arc<Version>, converter: Option<Arc<Converter>>) -> Self {
        let fields: Vec<Field> = version.selectable.iter().cloned().map(Field::named).collect();
        let api_version = |version: &Version| facts::api_version(&definition.group, &version.name);
        Self {
            api_version: api_version(&version),
            stored_version: api_version(definition.storage().unwrap_or(&version)),
            fields: FieldPaths::new(&fields),
            definition,
            version,
            as_stored: RwLock::default(),
            converter,
        }
    }

    /// Whether an object is stored in the version in which it would be stored now.
    pub fn is_current(&self, object: &Object) -> bool {
        object.type_meta().0 == self.stored_version
    }

    /// Stored objects as this version has them, in their order. `many` is how many there are of the resource.
    pub async fn show_all(&self, objects: Vec<Arc<Object>>, many: usize) -> Result<Vec<Arc<Object>>, ApiError> {
        let Some(converter) = &self.converter else {
            return objects.iter().map(|object| self.show(object, many)).collect();
        };
        let mut shown = objects.clone();
        let foreign = |at: &usize| objects[*at].type_meta().0 != self.api_version;
        let (others, own): (Vec<usize>, Vec<usize>) = (0..objects.len()).partition(foreign);
        for at in own {
            shown[at] = self.show(&objects[at], many)?;
        }
        for batch in others.chunks(BATCH) {
            let originals = batch.iter().map(|at| original(self.as_read(&objects[*at], many)?));
            let originals = originals.collect::<Result<Vec<Original>, ApiError>>()?;
            let converted = converter.convert(&originals, &self.api_version).await?;
            for (at, mut tree) in batch.iter().zip(converted) {
                self.turn(&mut tree)?;
                shown[*at] = self.object(&as_go_writes(&tree), objects[*at].revision())?;
            }
        }
        Ok(shown)
    }

    /// A stored object as this version has it, where only the name of the version differs. `objects` is how many there are.
    fn show(&self, object: &Arc<Object>, objects: usize) -> Result<Arc<Object>, ApiError> {
        if self.version.selectable.is_empty() && self.is_as_stored(object) {
            return Ok(object.clone());
        }
        let stored = object.to_value();
        let mut tree = stored.clone();
        self.read(&mut tree)?;
        if tree == stored && self.version.selectable.is_empty() {
            self.remember(object, objects);
            return Ok(object.clone());
        }
        self.object(&tree, object.revision())
    }

    /// The JSON of an object of another version, as it is read from the store.
    fn as_read(&self, object: &Arc<Object>, objects: usize) -> Result<Bytes, ApiError> {
        if !self.is_as_stored(object) {
            let stored = object.to_value();
            let mut tree = stored.clone();
            self.complete(&mut tree)?;
            if tree != stored {
                return Ok(tree.to_string().into());
            }
            self.remember(object, objects);
        }
        Ok(object.json())
    }

    fn is_as_stored(&self, object: &Object) -> bool {
        self.as_stored.read().contains(&object.revision())
    }

    fn remember(&self, object: &Object, objects: usize) {
        let mut as_stored = self.as_stored.write();
        if as_stored.len() > objects + SPARE {
            as_stored.clear();
        }
        as_stored.insert(object.revision());
    }

    /// A tree that was written, as it is read back: without what the stored version does not have, with a status that was left out and has a default.
    pub fn written(&self, tree: &Value, stored: &Draft, revision: u64) -> Result<Arc<Object>, ApiError> {
        if self.api_version != self.stored_version && self.converter.is_none() {
            let mut tree = stored.at_revision(revision).to_value();
            self.read(&mut tree)?;
            return self.object(&tree, revision);
        }
        let schema = &self.version.meaning().schema;
        let missing = tree.get("status").is_none();
        if missing && schema.property("status").is_some_and(|status| status.default.is_some()) {
            let mut tree = tree.clone();
            schema.default(&mut tree);
            return self.object(&as_go_writes(&tree), revision);
        }
        self.object(&as_go_writes(tree), revision)
    }

    /// An object of this version, however it is stored.
    pub fn object(&self, tree: &Value, revision: u64) -> Result<Arc<Object>, ApiError> {
        Object::from_value(tree, revision, &self.fields).map(Arc::new).map_err(ApiError::internal)
    }

    /// A tree from the store in this version, where nobody else converts it: with the defaults of the version that it is stored in.
    fn read(&self, tree: &mut Value) -> Result<(), ApiError> {
        self.complete(tree)?;
        if value::text(tree, "apiVersion") == self.api_version { Ok(()) } else { self.turn(tree) }
    }

    /// Brings a tree into what the schema of its own version says today: what is unknown goes, what is missing comes.
    fn complete(&self, tree: &mut Value) -> Result<(), ApiError> {
        let own = value::text(tree, "apiVersion").rsplit('/').next().unwrap_or_default();
        if let Some(version) = self.definition.version(own) {
            let schema = &version.meaning().schema;
            schema.coerce(tree).map_err(ApiError::internal)?;
            schema.default(tree);
        }
        if value::int(tree, "metadata.generation").is_none() {
            value::set(tree, "metadata.generation", 1);
        }
        Ok(())
    }

    /// Makes a tree of another version one of this version: what is unknown here goes. Defaults were those of the other one.
    fn turn(&self, tree: &mut Value) -> Result<(), ApiError> {
        value::set(tree, "apiVersion", self.api_version.as_str());
        self.version.meaning().schema.coerce(tree).map(drop).map_err(ApiError::internal)
    }

    /// A tree of this version as it is stored.
    pub async fn stored<'v>(&self, tree: &'v Value) -> Result<Cow<'v, Value>, ApiError> {
        if self.api_version == self.stored_version {
            return Ok(as_go_writes(tree));
        }
        let tree = as_go_writes(tree);
        let mut stored = match &self.converter {
            None => tree.into_owned(),
            Some(converter) => {
                let originals = [original(tree.to_string().into())?];
                let converted = converter.convert(&originals, &self.stored_version).await?;
                converted.into_iter().next().unwrap_or_default()
            }
        };
        value::set(&mut stored, "apiVersion", self.stored_version.as_str());
        if let Some(storage) = self.definition.storage() {
            storage.meaning().schema.coerce(&mut stored).map_err(ApiError::internal)?;
        }
        Ok(Cow::Owned(as_go_writes(&stored).into_owned()))
    }
}

fn original(json: Bytes) -> Result<Original, ApiError> {
    Original::new(json).ok_or_else(|| ApiError::internal("an object to be converted is none"))
}
