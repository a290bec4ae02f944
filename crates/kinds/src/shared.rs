//! What every request reads of a kind, whether the kind is part of the program or came at run time.

use std::ops::Deref;
use std::sync::Arc;

/// Something of a kind. What is built in lives as long as the program, so that requests share it without counting;
/// what came at run time lives as long as somebody uses it.
#[derive(Debug)]
pub enum Shared<T: ?Sized + 'static> {
    /// Part of the program.
    BuiltIn(&'static T),
    /// Made at run time.
    Made(Arc<T>),
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        match self {
            Self::BuiltIn(of) => Self::BuiltIn(of),
            Self::Made(of) => Self::Made(of.clone()),
        }
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::BuiltIn(of) => of,
            Self::Made(of) => of,
        }
    }
}

impl<T: ?Sized> From<&'static T> for Shared<T> {
    fn from(of: &'static T) -> Self {
        Self::BuiltIn(of)
    }
}

impl<T: ?Sized> From<Arc<T>> for Shared<T> {
    fn from(of: Arc<T>) -> Self {
        Self::Made(of)
    }
}
