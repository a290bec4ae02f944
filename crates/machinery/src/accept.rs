//! The `Accept` header, read once: what a client takes, in its order of preference.

/// One clause of the header.
#[derive(Debug)]
pub struct Clause {
    /// The media type, without its parameters.
    pub media: Box<str>,
    parameters: Vec<(Box<str>, Box<str>)>,
    quality: f32,
}

impl Clause {
    /// A parameter, empty where it is not given.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| **key == *name).map_or("", |(_, value)| value)
    }

    /// Whether it takes a media type such as `text/plain`, by name or by a star.
    pub fn takes(&self, media: &str) -> bool {
        let of_kind = |kind: &str| media.split_once('/').is_some_and(|(found, _)| found == kind);
        &*self.media == media || &*self.media == "*/*" || self.media.strip_suffix("/*").is_some_and(of_kind)
    }
}

/// The clauses of a header, the client's favourite first.
pub fn clauses(accept: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = accept
        .split(',')
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().into();
            let parameters: Vec<(Box<str>, Box<str>)> =
                parts.filter_map(|part| part.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect();
            let quality = parameters.iter().find(|(key, _)| **key == *"q").and_then(|(_, q)| q.parse().ok());
            Clause { media, parameters, quality: quality.unwrap_or(1.0) }
        })
        .collect();
    // Stable: among equals the client's own order counts.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn favourites_come_first_and_stars_take_their_kind() {
        let read = clauses("text/*;q=0.2, application/json;as=Table;v=v1, */*;q=0.1");
        assert_eq!(read.iter().map(|clause| &*clause.media).collect::<Vec<_>>(), ["application/json", "text/*", "*/*"]);
        assert_eq!((read[0].parameter("as"), read[0].parameter("g")), ("Table", ""));
        for (media, expected) in [("text/plain", [false, true, true]), ("application/json", [true, false, true])] {
            assert_eq!([0, 1, 2].map(|clause| read[clause].takes(media)), expected, "{media}");
        }
    }
}
