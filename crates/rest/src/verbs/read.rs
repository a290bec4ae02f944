//! Get.

use http::{HeaderName, HeaderValue, StatusCode};
use machinery::rest::Response;
use machinery::status::ApiError;

use super::{Api, Call, object_response};

impl Api {
    /// One object: as of now, or, with `resourceVersion`, not older than that; or as it was.
    pub(super) async fn get(&self, call: &Call<'_>) -> Result<Response, ApiError> {
        if let Some(past) = self.get_past(call).await? {
            return Ok(past);
        }
        match call.query.get("resourceVersion") {
            "" => self.caches.settle().await?,
            "0" => self.caches.revision(),
            version => self.caches.reach(parse_version(version)?).await?,
        };
        let object = call.resource.cache.get(&call.key()).ok_or_else(|| call.not_found())?;
        let object = self.show(call.resource, object).await?;
        let cause = hops::export::cause_of(&object.meta().uid);
        let mut answer = object_response(StatusCode::OK, self.convert(call, object)?);
        if !cause.is_none()
            && let Ok(value) = HeaderValue::try_from(cause.header())
        {
            answer.headers_mut().insert(HeaderName::from_static(hops::export::CAUSE), value);
        }
        Ok(answer)
    }
}

/// A resource version as the number it is inside.
pub fn parse_version(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}
