//! The store around the store.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use store::{
    Change, Changes, Event, Fence, Fenced, Kept, Op, Outcome, Page, Range, Record, Revision, Store, Txn, Watch,
};

use super::{Encryption, Error, Layout, Settings};

/// A store whose values are sealed on their way down and opened on their way up.
pub struct Encrypted {
    inner: Arc<dyn Store>,
    encryption: Arc<Encryption>,
}

impl Encrypted {
    /// Around a store laid out like this, by the configuration of a file.
    pub async fn open(inner: Arc<dyn Store>, settings: Settings, layout: Layout) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { inner, encryption: Encryption::open(settings, layout).await? }))
    }

    /// The configuration in use.
    pub fn encryption(&self) -> &Arc<Encryption> {
        &self.encryption
    }

    async fn record(&self, record: Record) -> Result<Record, store::Error> {
        let value = open(&self.encryption, &record.key, record.value).await?;
        Ok(Record { value, ..record })
    }

    async fn sealed(&self, mut txn: Txn) -> Result<Txn, store::Error> {
        if let Op::Put { value, .. } = &mut txn.op
            && let Some(rule) = self.encryption.rules().of(&self.encryption.layout, &txn.key)
        {
            let sealed = rule.seal(&txn.key, value).await;
            *value = sealed.map_err(|error| store::Error::Unavailable(error.to_string()))?;
        }
        Ok(txn)
    }

    async fn outcome(&self, outcome: Outcome) -> Result<Outcome, store::Error> {
        match outcome {
            Outcome::Conflict(Some(record)) => Ok(Outcome::Conflict(Some(self.record(record).await?))),
            outcome => Ok(outcome),
        }
    }
}

/// Opens a value. One that no key opens is handed on as it is: whoever reads it sees that it is no object, says so, and
/// does not serve it. One whose key management service is away may be read later.
async fn open(encryption: &Encryption, key: &str, stored: Bytes) -> Result<Bytes, store::Error> {
    let rules = encryption.rules();
    let Some(rule) = rules.of(&encryption.layout, key) else { return Ok(stored) };
    match rule.open(key, &stored).await {
        Ok((plain, _)) => Ok(plain),
        Err(Error::Kms(why)) => Err(store::Error::Unavailable(why)),
        Err(error) => {
            tracing::error!(key, %error, "a value in the store cannot be decrypted");
            Ok(stored)
        }
    }
}

async fn open_event(encryption: &Encryption, event: Event) -> Result<Event, store::Error> {
    let value = match event.value {
        Some(value) => Some(open(encryption, &event.key, value).await?),
        None => None,
    };
    let previous = match event.previous {
        Some(record) => Some(Record { value: open(encryption, &record.key, record.value).await?, ..record }),
        None => None,
    };
    Ok(Event { value, previous, ..event })
}

#[async_trait::async_trait]
impl Store for Encrypted {
    async fn revision(&self) -> Result<Revision, store::Error> {
        self.inner.revision().await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, store::Error> {
        match self.inner.get(key).await? {
            Some(record) => self.record(record).await.map(Some),
            None => Ok(None),
        }
    }

    async fn range(&self, range: Range) -> Result<Page, store::Error> {
        let mut page = self.inner.range(range).await?;
        for record in &mut page.records {
            record.value = open(&self.encryption, &record.key, std::mem::take(&mut record.value)).await?;
        }
        Ok(page)
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome, store::Error> {
        let outcome = self.inner.txn(self.sealed(txn).await?).await?;
        self.outcome(outcome).await
    }

    async fn txn_behind(&self, fence: Fence, txn: Txn) -> Result<Fenced, store::Error> {
        match self.inner.txn_behind(fence, self.sealed(txn).await?).await? {
            Fenced::Stood(outcome) => Ok(Fenced::Stood(self.outcome(outcome).await?)),
            Fenced::Fell(Some(record)) => Ok(Fenced::Fell(Some(self.record(record).await?))),
            Fenced::Fell(None) => Ok(Fenced::Fell(None)),
        }
    }

    fn group(&self, revision: Revision) -> u64 {
        self.inner.group(revision)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, store::Error> {
        let encryption = Arc::clone(&self.encryption);
        let events = self.inner.watch(prefix, after).await?;
        let opened = events.then(move |event| {
            let encryption = Arc::clone(&encryption);
            async move { open_event(&encryption, event?).await }
        });
        Ok(opened.boxed())
    }

    async fn history(
        &self,
        prefix: &str,
        after: Revision,
        until: Revision,
        limit: usize,
    ) -> Result<Vec<Event>, store::Error> {
        let mut opened = Vec::new();
        for event in self.inner.history(prefix, after, until, limit).await? {
            opened.push(open_event(&self.encryption, event).await?);
        }
        Ok(opened)
    }

    async fn at(&self, key: &str, revision: Revision) -> Result<Option<Record>, store::Error> {
        match self.inner.at(key, revision).await? {
            Some(record) => self.record(record).await.map(Some),
            None => Ok(None),
        }
    }

    async fn changes(&self, query: Changes) -> Result<Vec<Change>, store::Error> {
        let mut changes = self.inner.changes(query).await?;
        for change in &mut changes {
            if let Some(value) = change.value.take() {
                change.value = Some(open(&self.encryption, &change.key, value).await?);
            }
            if let Some(previous) = change.previous.take() {
                change.previous = Some(self.record(previous).await?);
            }
        }
        Ok(changes)
    }

    async fn moment(&self, time: u64) -> Result<Option<Revision>, store::Error> {
        self.inner.moment(time).await
    }

    async fn made(&self, revision: Revision) -> Result<Option<u64>, store::Error> {
        self.inner.made(revision).await
    }

    async fn kept(&self) -> Result<Kept, store::Error> {
        self.inner.kept().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), store::Error> {
        self.inner.compact(revision).await
    }

    fn write_failure(&self) -> Option<String> {
        self.inner.write_failure()
    }

    async fn stale(&self, key: &str) -> Result<bool, store::Error> {
        let rules = self.encryption.rules();
        let Some(rule) = rules.of(&self.encryption.layout, key) else { return Ok(false) };
        let Some(record) = self.inner.get(key).await? else { return Ok(false) };
        Ok(rule.open(key, &record.value).await.is_ok_and(|(_, stale)| stale))
    }
}
