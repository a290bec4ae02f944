//! The encoding of an object.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use packed::Packed;

/// An encoding, packed where it is long and seldom read.
#[derive(Clone)]
pub(super) enum Text {
    Plain(Bytes),
    Packed(Arc<Packed>),
}

impl Text {
    pub(super) fn bytes(&self) -> Bytes {
        match self {
            Self::Plain(bytes) => bytes.clone(),
            Self::Packed(packed) => packed.text().into(),
        }
    }

    /// For a look at it, without taking a share.
    pub(super) fn look(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Plain(bytes) => Cow::Borrowed(bytes),
            Self::Packed(packed) => Cow::Owned(packed.text()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Packed(packed) => packed.len(),
        }
    }

    pub(super) fn pack(self) -> Self {
        match &self {
            Self::Plain(bytes) => Packed::if_worth_it(bytes).map_or(self, |packed| Self::Packed(Arc::new(packed))),
            Self::Packed(_) => self,
        }
    }
}
