//! What of a container's log is asked for, and of which of its runs.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use machinery::query::Query;

use super::record::{Stream, Wanted};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What is to be shown, and how.
    pub wanted: Wanted,
    /// Keep showing what is added.
    pub follow: bool,
    /// Of the run before the last one.
    pub previous: bool,
    /// Only so many of the last lines.
    pub tail: Option<u64>,
}

/// Why options are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadOptions {
    /// Not of the right form.
    #[error(r#"{{"message": "Unable to decode query."}}"#)]
    Undecodable,
    /// Of the right form, without a meaning.
    #[error(r#"{{"message": "Invalid request."}}"#)]
    Invalid,
}

impl Options {
    pub fn parse(query: &Query, now: Timestamp) -> Result<Self, BadOptions> {
        let number = |name: &str| {
            let text = Some(query.get(name)).filter(|text| !text.is_empty());
            text.map(str::parse::<i64>).transpose().map_err(|_| BadOptions::Undecodable)
        };
        let tail = match query.get("tail") {
            "all" => None,
            "" => number("tailLines")?,
            _ => number("tail")?,
        };
        let (limit, seconds) = (number("limitBytes")?, number("sinceSeconds")?);
        let time = Some(query.get("sinceTime")).filter(|text| !text.is_empty());
        let time: Option<Timestamp> = time.map(str::parse).transpose().map_err(|_| BadOptions::Undecodable)?;
        let stream = match query.get("stream") {
            "" | "All" => None,
            "Stdout" => Some(Stream::Stdout),
            "Stderr" => Some(Stream::Stderr),
            _ => return Err(BadOptions::Invalid),
        };
        let negative = tail.is_some_and(|tail| tail < 0);
        let nothing = [limit, seconds].into_iter().flatten().any(|number| number < 1);
        let both = seconds.is_some() && time.is_some();
        if negative || nothing || both || (stream.is_some() && tail.is_some()) {
            return Err(BadOptions::Invalid);
        }
        let ago = seconds.map(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN));
        let unsigned = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        Ok(Self {
            wanted: Wanted {
                stream,
                since: time.or(ago),
                timestamps: query.flag("timestamps"),
                limit: unsigned(limit),
            },
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            tail: unsigned(tail),
        })
    }
}

/// A container's status, in whichever of the three lists it is.
fn of<'a>(status: &'a PodStatus, container: &str) -> Option<&'a ContainerStatus> {
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == container)
}

/// The id, with the runtime's prefix, of the container whose log is meant; or why there is none.
pub fn choose(pod: &str, status: &PodStatus, container: &str, previous: bool) -> Result<String, String> {
    let refused = |what: &str| Err(format!("container {container:?} in pod {pod:?} is {what}"));
    let Some(found) = of(status, container) else { return refused("not available") };
    let state = found.state.clone().unwrap_or_default();
    let last = found.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let id = |id: Option<&String>| id.filter(|id| !id.is_empty()).cloned();
    let last_id = last.and_then(|last| id(last.container_id.as_ref()));
    if previous {
        return last_id.ok_or_else(|| format!("previous terminated container {container:?} in pod {pod:?} not found"));
    }
    if state.running.is_some() {
        return Ok(found.container_id.clone().unwrap_or_default());
    }
    if let Some(terminated) = &state.terminated {
        // Without an id of its own it never ran: the run before it is what there is to read.
        return id(terminated.container_id.as_ref()).or(last_id).map_or_else(|| refused("terminated"), Ok);
    }
    if last.is_some() {
        return last_id.map_or_else(|| refused("terminated"), Ok);
    }
    match state.waiting.map(|waiting| waiting.reason.unwrap_or_default()).as_deref() {
        Some("ErrImagePull") => refused("waiting to start: image can't be pulled"),
        Some("ImagePullBackOff") => refused("waiting to start: trying and failing to pull image"),
        Some(reason) => refused(&format!("waiting to start: {reason}")),
        None => refused("waiting to start - no logs yet"),
    }
}

/// Whether the pod's status still says that this very container runs.
pub fn runs(status: &PodStatus, container: &str, id: &str) -> bool {
    of(status, container).is_some_and(|status| {
        status.container_id.as_deref() == Some(id) && status.state.as_ref().is_some_and(|state| state.running.is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn parse(query: &str) -> Result<Options, BadOptions> {
        Options::parse(&Query::parse(query), NOW.parse().unwrap())
    }

    #[test]
    fn queries_are_read() {
        let options = parse("follow=true&timestamps=1&tailLines=5&limitBytes=9&sinceSeconds=60").unwrap();
        assert!(options.follow && options.wanted.timestamps && !options.previous);
        assert_eq!((options.tail, options.wanted.limit), (Some(5), Some(9)));
        assert_eq!(options.wanted.since, Some("2026-01-01T00:59:00Z".parse().unwrap()));
        assert_eq!(parse("tail=7").unwrap().tail, Some(7));
        assert_eq!(parse("tail=all&tailLines=3").unwrap().tail, None);
        assert_eq!(parse("tailLines=0").unwrap().tail, Some(0));
        assert_eq!(parse("stream=Stderr").unwrap().wanted.stream, Some(Stream::Stderr));
        assert_eq!(
            parse("sinceTime=2026-01-01T00%3A00%3A00Z").unwrap().wanted.since,
            "2026-01-01T00:00:00Z".parse().ok()
        );
    }

    #[test]
    fn bad_queries_are_refused() {
        let table = [
            ("tailLines=x", BadOptions::Undecodable),
            ("sinceTime=yesterday", BadOptions::Undecodable),
            ("tailLines=-1", BadOptions::Invalid),
            ("limitBytes=0", BadOptions::Invalid),
            ("sinceSeconds=0", BadOptions::Invalid),
            ("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", BadOptions::Invalid),
            ("stream=stdout", BadOptions::Invalid),
            ("stream=Stdout&tailLines=1", BadOptions::Invalid),
        ];
        for (query, error) in table {
            assert_eq!(parse(query), Err(error), "{query}");
        }
    }

    #[test]
    fn the_right_run_is_chosen_or_the_reason_given() {
        let running = json!({"running": {"startedAt": NOW}});
        let ended = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let none = json!({});
        let table = [
            (&running, &none, false, Ok("r://now")),
            (&running, &ended("r://old"), true, Ok("r://old")),
            (&running, &none, true, Err(r#"previous terminated container "c" in pod "p" not found"#)),
            (&ended("r://now"), &ended("r://old"), false, Ok("r://now")),
            (&ended(""), &ended("r://old"), false, Ok("r://old")),
            (&ended(""), &none, false, Err(r#"container "c" in pod "p" is terminated"#)),
            (&waiting("CrashLoopBackOff"), &ended("r://old"), false, Ok("r://old")),
            (&waiting("CrashLoopBackOff"), &ended(""), false, Err(r#"container "c" in pod "p" is terminated"#)),
            (
                &waiting("ContainerCreating"),
                &none,
                false,
                Err(r#"container "c" in pod "p" is waiting to start: ContainerCreating"#),
            ),
            (
                &waiting("ErrImagePull"),
                &none,
                false,
                Err(r#"container "c" in pod "p" is waiting to start: image can't be pulled"#),
            ),
            (
                &waiting("ImagePullBackOff"),
                &none,
                false,
                Err(r#"container "c" in pod "p" is waiting to start: trying and failing to pull image"#),
            ),
            (&none, &none, false, Err(r#"container "c" in pod "p" is waiting to start - no logs yet"#)),
        ];
        for (state, last, previous, expect) in table {
            let container = json!({
                "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": "r://now", "state": state, "lastState": last,
            });
            for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
                let status: PodStatus = serde_json::from_value(json!({list: [container]})).unwrap();
                let chosen = choose("p", &status, "c", previous);
                assert_eq!(chosen, expect.map(str::to_owned).map_err(str::to_owned), "{state} {last} {previous}");
            }
        }
        let absent = choose("p", &PodStatus::default(), "c", false);
        assert_eq!(absent, Err(r#"container "c" in pod "p" is not available"#.to_owned()));
    }
}
