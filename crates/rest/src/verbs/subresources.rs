//! Which code answers for a subresource: its kind says what it is.

use kinds::strategy::Subresource;
use machinery::rest::{Body, Response};
use machinery::status::ApiError;

use super::{Api, Call};
use crate::actions;

impl Api {
    /// Answers a request to a subresource of a stored object.
    pub(super) async fn serve_subresource(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let name = call.info.subresource.as_str();
        match (call.resource.strategy.subresource(name), call.info.verb) {
            _ if name == "scale" => self.scale(call, body).await,
            (_, "get") => self.get(call).await,
            (Some(Subresource::Action(action)), _) => actions::act(self, action, call, body).await,
            (Some(Subresource::Part), "update") => self.update(call, body).await,
            (Some(Subresource::Part), "patch") => self.patch(call, body).await,
            _ => Err(ApiError::no_such_path()),
        }
    }
}
