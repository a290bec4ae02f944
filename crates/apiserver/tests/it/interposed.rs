//! A store in which something happens right before a transaction, when the server has made up its mind and nothing is written yet.

use std::sync::Arc;

use futures::future::BoxFuture;
use store::{Changes, Error, Event, Fence, Fenced, Outcome, Page, Range, Record, Revision, Store, Txn, Watch};

/// What happens, given the transaction.
type Before = dyn Fn(&Txn) -> BoxFuture<'static, ()> + Send + Sync;

pub struct Interposed {
    pub inner: Arc<dyn Store>,
    pub before: Box<Before>,
}

#[async_trait::async_trait]
impl Store for Interposed {
    async fn revision(&self) -> Result<Revision, Error> {
        self.inner.revision().await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        self.inner.get(key).await
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        self.inner.range(range).await
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome, Error> {
        (self.before)(&txn).await;
        self.inner.txn(txn).await
    }

    async fn txn_behind(&self, fence: Fence, txn: Txn) -> Result<Fenced, Error> {
        (self.before)(&txn).await;
        self.inner.txn_behind(fence, txn).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        self.inner.watch(prefix, after).await
    }

    async fn history(&self, prefix: &str, after: Revision, until: Revision, limit: usize) -> Result<Vec<Event>, Error> {
        self.inner.history(prefix, after, until, limit).await
    }

    async fn at(&self, key: &str, revision: Revision) -> Result<Option<Record>, Error> {
        self.inner.at(key, revision).await
    }

    async fn changes(&self, query: Changes) -> Result<Vec<store::Change>, Error> {
        self.inner.changes(query).await
    }

    async fn moment(&self, time: u64) -> Result<Option<Revision>, Error> {
        self.inner.moment(time).await
    }

    async fn made(&self, revision: Revision) -> Result<Option<u64>, Error> {
        self.inner.made(revision).await
    }

    async fn kept(&self) -> Result<store::Kept, Error> {
        self.inner.kept().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.inner.compact(revision).await
    }
}
