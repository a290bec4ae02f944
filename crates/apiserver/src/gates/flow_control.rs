//! May they now? A bound on the requests under way, reads and writes apart, so that no burst exhausts the server.

use std::sync::Arc;
use std::time::Duration;

use machinery::rest::User;
use machinery::status::ApiError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::route::RequestInfo;

/// How long a request waits for a seat before it is sent away.
const PATIENCE: Duration = Duration::from_secs(15);

/// Seats for requests under way.
pub struct FlowControl {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

/// A request's seat; given back when dropped.
pub type Seat = Option<OwnedSemaphorePermit>;

impl FlowControl {
    /// So many reads and so many writes at once.
    pub fn new(reads: usize, writes: usize) -> Self {
        Self { reads: Arc::new(Semaphore::new(reads)), writes: Arc::new(Semaphore::new(writes)) }
    }

    /// Waits for a seat. Watches and other long-running requests, and administrators, need none.
    pub async fn enter(&self, info: &RequestInfo, user: &User) -> Result<Seat, ApiError> {
        if info.is_long_running() || user.groups.iter().any(|group| group == "system:masters") {
            return Ok(None);
        }
        let seats = if info.is_mutating() { &self.writes } else { &self.reads };
        if let Ok(seat) = seats.clone().try_acquire_owned() {
            return Ok(Some(seat));
        }
        match tokio::time::timeout(PATIENCE, seats.clone().acquire_owned()).await {
            Ok(Ok(seat)) => Ok(Some(seat)),
            _ => {
                let message = "too many requests, please try again later";
                Err(ApiError::too_many_requests(message, 1))
            }
        }
    }
}
