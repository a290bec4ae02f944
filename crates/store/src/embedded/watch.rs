//! A watch: first the past out of the files, in pieces, then the live events. It changes over once the events it still
//! lacks are all at hand in the hub, which is decided under the hub's lock, so nothing falls between.

use std::collections::VecDeque;
use std::sync::Arc;

use super::hub::{Attach, Subscription};
use super::{Shared, blocking, history};
use crate::{Error, Event, Revision, Watch};

/// How far a watch has come.
enum State {
    /// Events already read, and the revision up to which they reach.
    Past { read: VecDeque<Event>, reached: Revision },
    /// Attached to the hub.
    Live(Box<Subscription>),
    /// An error was the last item.
    Over,
}

struct Cursor {
    shared: Arc<Shared>,
    prefix: Arc<str>,
    state: State,
}

/// Every event under `prefix` after `after`.
pub(super) fn watch(shared: &Arc<Shared>, prefix: &str, after: Revision) -> Result<Watch, Error> {
    shared.memory.read().check_history(after)?;
    let mut cursor = Cursor {
        shared: Arc::clone(shared),
        prefix: Arc::from(prefix),
        state: State::Past { read: VecDeque::new(), reached: after },
    };
    // Attached here and not at the first poll, so that what is written after this call is not history by then.
    if let Attach::Live(subscription) = shared.hub.attach(prefix, after) {
        cursor.state = State::Live(Box::new(subscription));
    }
    Ok(Box::pin(futures::stream::unfold(cursor, |mut cursor| async move {
        let item = cursor.next().await?;
        if item.is_err() {
            cursor.state = State::Over;
        }
        Some((item, cursor))
    })))
}

impl Cursor {
    async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            let reached = match &mut self.state {
                State::Over => return None,
                State::Live(subscription) => {
                    let error = match subscription.next().await {
                        Some(event) => return Some(Ok(Arc::unwrap_or_clone(event))),
                        None if subscription.lagged() => Error::Lagged,
                        None => Error::Closed,
                    };
                    return Some(Err(error));
                }
                State::Past { read, reached } => match read.pop_front() {
                    Some(event) => return Some(Ok(event)),
                    None => *reached,
                },
            };
            match self.shared.hub.attach(&self.prefix, reached) {
                Attach::Live(subscription) => self.state = State::Live(Box::new(subscription)),
                Attach::Closed => return Some(Err(Error::Closed)),
                Attach::Behind(upto) => {
                    let (shared, prefix) = (Arc::clone(&self.shared), Arc::clone(&self.prefix));
                    match blocking(move || history::events(&shared, &prefix, reached, upto)).await {
                        Ok(past) => self.state = State::Past { read: past.events.into(), reached: past.reached },
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }
}
