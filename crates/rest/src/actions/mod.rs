//! What can be asked to be done with an object through a subresource, and is more than a change of it: each action is about one kind, which says
//! by its strategy that it has it ([`Action`]). The generic flow in `rest` knows none of them.

mod binding;
mod eviction;
mod finalize;
mod token;

use kinds::strategy::Action;
use machinery::rest::{Body, Response};
use machinery::status::ApiError;

use crate::verbs::{Api, Call};

/// Does what was asked for.
pub async fn act(api: &Api, action: Action, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
    match action {
        Action::Bind => binding::bind(api, call, body).await,
        Action::Evict => eviction::evict(api, call, body).await,
        Action::Finalize => finalize::finalize(api, call, body).await,
        Action::IssueToken => api.request_token(call, body).await,
    }
}
