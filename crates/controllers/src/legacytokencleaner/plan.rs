//! What becomes of a token that was made automatically.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::{Pod, Secret};

use crate::common::meta::MetaExt;

pub(super) const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
pub(super) const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// How long a token may go unused, and how long it then stays invalid before it is deleted.
const PERIOD: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What to do with a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is in use, or cannot be judged.
    Keep,
    /// Nothing before this moment.
    Look(Timestamp),
    /// It is invalid from today on.
    Invalidate(String),
    Delete,
}

/// The start of a day such as `2026-01-31`, in UTC.
pub(super) fn day(text: &str) -> Option<Timestamp> {
    let date: Date = text.parse().ok()?;
    date.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp())
}

/// Decides about a token; whether a pod mounts it is asked only when that matters.
pub(super) fn plan(secret: &Secret, tracked_since: Timestamp, mounted: impl FnOnce() -> bool, now: Timestamp) -> Plan {
    let created = secret.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let mut unused_since = tracked_since.max(created);
    if let Some(text) = secret.metadata.label(LAST_USED) {
        let Some(used) = day(text) else { return Plan::Keep };
        // It may have been used until the end of that day.
        unused_since = unused_since.max(clock::add(used, Duration::from_secs(24 * 60 * 60)));
    }
    let due = clock::add(unused_since, PERIOD);
    if now < due {
        return Plan::Look(due);
    }
    if mounted() {
        return Plan::Keep;
    }
    let Some(invalid) = secret.metadata.label(INVALID_SINCE).and_then(day) else {
        return Plan::Invalidate(now.to_zoned(TimeZone::UTC).date().to_string());
    };
    let due = clock::add(invalid, PERIOD + Duration::from_secs(24 * 60 * 60));
    if now < due { Plan::Look(due) } else { Plan::Delete }
}

/// Whether a pod uses a Secret in a way that a token may be used.
pub(super) fn uses(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let pulls = spec.image_pull_secrets.iter().flatten().any(|secret| secret.name == name);
    let volumes = spec.volumes.iter().flatten().any(|volume| {
        let plain = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref()) == Some(name);
        let projected = volume.projected.iter().filter_map(|volume| volume.sources.as_ref()).flatten();
        plain || projected.filter_map(|source| source.secret.as_ref()).any(|secret| secret.name == name)
    });
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let environment = containers.into_iter().any(|container| {
        let whole = container.env_from.iter().flatten().filter_map(|from| from.secret_ref.as_ref());
        let one = container.env.iter().flatten().filter_map(|env| env.value_from.as_ref()?.secret_key_ref.as_ref());
        whole.into_iter().any(|from| from.name == name) || one.into_iter().any(|key| key.name == name)
    });
    pulls || volumes || environment
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSpec, SecretVolumeSource, Volume};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    use super::*;

    fn secret(created: &str, labels: &[(&str, &str)]) -> Secret {
        Secret {
            metadata: ObjectMeta {
                creation_timestamp: day(created).map(Time),
                labels: Some(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        }
    }

    #[test]
    fn tokens_go_a_year_unused_and_a_year_invalid() {
        let now = day("2026-06-01").expect("a day");
        let tracked = day("2020-01-01").expect("a day");
        let check =
            |created, labels: &[(&str, &str)], mounted| plan(&secret(created, labels), tracked, || mounted, now);
        let at = |text| day(text).expect("a day");
        assert_eq!(check("2026-01-01", &[], false), Plan::Look(at("2027-01-01")), "too young");
        assert_eq!(check("2021-01-01", &[(LAST_USED, "2026-03-01")], false), Plan::Look(at("2027-03-02")));
        assert_eq!(check("2021-01-01", &[(LAST_USED, "yesterday")], false), Plan::Keep);
        assert_eq!(check("2021-01-01", &[], true), Plan::Keep, "a pod mounts it");
        assert_eq!(check("2021-01-01", &[], false), Plan::Invalidate("2026-06-01".into()));
        assert_eq!(check("2021-01-01", &[(INVALID_SINCE, "2026-05-01")], false), Plan::Look(at("2027-05-02")));
        assert_eq!(check("2021-01-01", &[(INVALID_SINCE, "2025-05-01")], false), Plan::Delete);
        let late = plan(&secret("2019-01-01", &[]), at("2026-01-01"), || false, now);
        assert_eq!(late, Plan::Look(at("2027-01-01")), "its use has been noted only since");
    }

    #[test]
    fn a_mounted_secret_is_used() {
        let volume = Volume {
            secret: Some(SecretVolumeSource { secret_name: Some("t".into()), ..SecretVolumeSource::default() }),
            ..Volume::default()
        };
        let pod = Pod { spec: Some(PodSpec { volumes: Some(vec![volume]), ..PodSpec::default() }), ..Pod::default() };
        assert!(uses(&pod, "t"));
        assert!(!uses(&pod, "u"));
    }
}
