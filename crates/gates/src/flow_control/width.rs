//! How many seats a request takes: lists by the objects they go through, everything else one.
//!
//! Upstream makes a write pay for its watchers too. Here an event is encoded once and shared, so that a watcher costs less
//! than a microsecond, and a write takes one seat.

use machinery::query::Query;

use crate::RequestInfo;

/// Objects that one seat goes through.
const OBJECTS_PER_SEAT: usize = 100;
/// The widest that a list gets.
const MAX_LIST: u32 = 10;

/// The seats of a request, at most `most`. `objects` counts those of its resource.
pub fn width(info: &RequestInfo, query: &Query, most: u32, objects: impl FnOnce() -> Option<usize>) -> u32 {
    let lists = match info.verb {
        "list" => true,
        // A watch that begins with everything that exists is a list, too.
        "watch" => query.flag("sendInitialEvents") || matches!(query.get("resourceVersion"), "" | "0"),
        _ => false,
    };
    if !lists || !info.name.is_empty() {
        return 1;
    }
    let objects = objects().unwrap_or(0);
    let seats = u32::try_from(objects.div_ceil(OBJECTS_PER_SEAT)).unwrap_or(u32::MAX);
    seats.clamp(1, most.clamp(1, MAX_LIST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn lists_pay_for_what_they_go_through() {
        for (method, uri, objects, most, expect) in [
            (Method::GET, "/api/v1/pods", 50, 10, 1),
            (Method::GET, "/api/v1/pods", 450, 10, 5),
            (Method::GET, "/api/v1/pods", 100_000, 10, 10),
            (Method::GET, "/api/v1/pods", 100_000, 3, 3),
            (Method::GET, "/api/v1/pods", 100_000, 0, 1),
            (Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Da", 100_000, 10, 1),
            (Method::GET, "/api/v1/pods?watch=true", 450, 10, 5),
            (Method::GET, "/api/v1/pods?watch=true&resourceVersion=7", 450, 10, 1),
            (Method::GET, "/api/v1/pods?watch=true&resourceVersion=7&sendInitialEvents=true", 450, 10, 5),
            (Method::GET, "/api/v1/namespaces/a/pods/b", 450, 10, 1),
            (Method::POST, "/api/v1/namespaces/a/pods", 450, 10, 1),
        ] {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let query = Query::parse(query);
            let info = RequestInfo::of(&method, path, &query);
            assert_eq!(width(&info, &query, most, || Some(objects)), expect, "{method} {uri}");
        }
    }
}
