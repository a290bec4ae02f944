//! Slices made by systemd on our request, through `busctl` (part of systemd itself).

use std::time::Duration;

use super::{Error, Hierarchy, Limits, Name, v2};
use crate::run;

const LIMIT: Duration = Duration::from_secs(30);
const MANAGER: [&str; 4] =
    ["call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"];

/// A property as `busctl` takes it: name, type, value.
type Property = (&'static str, &'static str, String);

/// Starts a slice with its limits, or updates it when it is there.
pub(super) async fn ensure(name: &Name, limits: &Limits, hierarchy: &Hierarchy) -> Result<(), Error> {
    let unit = name.slice();
    let mut properties: Vec<Property> = vec![
        ("DefaultDependencies", "b", "false".into()),
        ("CPUAccounting", "b", "true".into()),
        ("MemoryAccounting", "b", "true".into()),
        ("TasksAccounting", "b", "true".into()),
    ];
    properties.extend(limit_properties(limits, hierarchy));
    let mut args = vec!["StartTransientUnit".to_owned(), "ssa(sv)a(sa(sv))".into(), unit.clone(), "replace".into()];
    append(&mut args, &properties);
    args.push("0".into());
    match call(&unit, &args).await {
        Err(Error::Systemd { source: run::Error::Failed { stderr, .. }, .. })
            if stderr.contains("already exists") || stderr.contains("was already loaded") =>
        {
            update(name, limits, hierarchy).await
        }
        other => other,
    }
}

/// Changes a slice's limits until the next boot.
pub(super) async fn update(name: &Name, limits: &Limits, hierarchy: &Hierarchy) -> Result<(), Error> {
    let properties = limit_properties(limits, hierarchy);
    if properties.is_empty() {
        return Ok(());
    }
    let unit = name.slice();
    let mut args = vec!["SetUnitProperties".to_owned(), "sba(sv)".into(), unit.clone(), "true".into()];
    append(&mut args, &properties);
    call(&unit, &args).await
}

/// Stops a slice and everything in it. Not there is no error.
pub(super) async fn stop(name: &Name) -> Result<(), Error> {
    let unit = name.slice();
    let args = ["StopUnit", "ss", &unit, "replace"].map(str::to_owned);
    match call(&unit, &args).await {
        Err(Error::Systemd { source: run::Error::Failed { stderr, .. }, .. }) if stderr.contains("not loaded") => {
            Ok(())
        }
        other => other,
    }
}

fn limit_properties(limits: &Limits, hierarchy: &Hierarchy) -> Vec<Property> {
    let unified = matches!(hierarchy, Hierarchy::V2(_));
    let most = |value: i64| u64::try_from(value).unwrap_or(u64::MAX).to_string();
    let mut out = Vec::new();
    if let Some(shares) = limits.cpu_shares {
        out.push(if unified {
            ("CPUWeight", "t", v2::weight(shares).to_string())
        } else {
            ("CPUShares", "t", shares.to_string())
        });
    }
    if let Some(quota) = limits.cpu_quota {
        let period = limits.cpu_period.unwrap_or(100_000).max(1);
        let per_second = u64::try_from(quota).map_or(u64::MAX, |quota| quota.saturating_mul(1_000_000) / period);
        out.push(("CPUQuotaPerSecUSec", "t", per_second.to_string()));
    }
    if let Some(memory) = limits.memory {
        out.push((if unified { "MemoryMax" } else { "MemoryLimit" }, "t", most(memory)));
    }
    if let Some(pids) = limits.pids {
        out.push(("TasksMax", "t", most(pids)));
    }
    out
}

fn append(args: &mut Vec<String>, properties: &[Property]) {
    args.push(properties.len().to_string());
    for (name, kind, value) in properties {
        args.extend([(*name).to_owned(), (*kind).to_owned(), value.clone()]);
    }
}

async fn call(unit: &str, args: &[String]) -> Result<(), Error> {
    let mut all: Vec<&str> = MANAGER.to_vec();
    all.extend(args.iter().map(String::as_str));
    run::output("busctl", &all, b"", LIMIT)
        .await
        .map(drop)
        .map_err(|source| Error::Systemd { unit: unit.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_the_properties_of_the_mounted_interface() {
        let limits = Limits {
            cpu_shares: Some(1024),
            cpu_quota: Some(50_000),
            cpu_period: Some(100_000),
            memory: Some(-1),
            pids: Some(10),
        };
        let unified = limit_properties(&limits, &Hierarchy::V2("/sys/fs/cgroup".into()));
        assert_eq!(
            unified,
            [
                ("CPUWeight", "t", "100".to_owned()),
                ("CPUQuotaPerSecUSec", "t", "500000".to_owned()),
                ("MemoryMax", "t", u64::MAX.to_string()),
                ("TasksMax", "t", "10".to_owned()),
            ]
        );
        let legacy = limit_properties(&limits, &Hierarchy::V1(Default::default()));
        assert_eq!(legacy[0], ("CPUShares", "t", "1024".to_owned()));
        assert_eq!(legacy[2].0, "MemoryLimit");
    }
}
