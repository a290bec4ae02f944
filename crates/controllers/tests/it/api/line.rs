//! What connects one life of the controllers to the API.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, future};
use machinery::rest::{Handler, Request, Response};
use tokio_util::sync::CancellationToken;

use super::Api;

/// A connection that breaks when the controllers are killed: what they asked for has reached the API before their successors begin, or never will. Beside
/// the API server the same process holds both ends; elsewhere a lease keeps successors waiting for far longer than a request is on its way.
pub struct Line {
    pub api: Arc<Api>,
    pub cut: CancellationToken,
}

impl Handler for Line {
    fn handle(&self, request: Request) -> BoxFuture<'_, Response> {
        async move {
            // Every call is a chance for other tasks, as it is with a real server.
            tokio::task::yield_now().await;
            if self.cut.is_cancelled() {
                future::pending::<()>().await;
            }
            self.api.respond(request)
        }
        .boxed()
    }
}
