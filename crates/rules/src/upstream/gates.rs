//! Upstream's feature gates, by name. What is on by default in v1.37 is how things are here, and what is off is not here; so a gate may be named with its
//! default, which changes nothing, and with anything else it is refused instead of being accepted and forgotten.

/// A feature gate.
struct Gate {
    name: &'static str,
    on: bool,
    stage: &'static str,
}

fn all() -> impl Iterator<Item = Gate> {
    let lines = include_str!("gates.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split(' ');
        Some(Gate { name: words.next()?, on: words.next()? == "on", stage: words.next()? })
    })
}

/// Whether gates can be as a flag says: `A=true,kube:B=false`.
pub fn check(text: &str) -> Result<(), String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, wanted) = part.split_once('=').ok_or_else(|| format!("missing bool value for {part}"))?;
        check_one(name.strip_prefix("kube:").unwrap_or(name).trim(), wanted.trim())?;
    }
    Ok(())
}

/// Whether one gate can be so.
pub fn check_one(name: &str, wanted: &str) -> Result<(), String> {
    let gate = all().find(|gate| gate.name == name).ok_or_else(|| format!("unrecognized feature gate: {name}"))?;
    let wanted = truth(wanted).ok_or_else(|| {
        format!("invalid value of {name}={wanted}, err: strconv.ParseBool: parsing {wanted:?}: invalid syntax")
    })?;
    match (wanted, gate.on) {
        (wanted, on) if wanted == on => Ok(()),
        (true, _) => {
            Err(format!("{name}=true: it is off by default in v1.37 ({}), and this build does not have it", gate.stage))
        }
        _ => Err(format!(
            "{name}=false: it is on by default in v1.37 ({}), and this build cannot do without it",
            gate.stage
        )),
    }
}

/// A truth as Go reads it.
pub fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_as_they_are_by_default() {
        assert!(all().count() > 240 && all().all(|gate| ["Alpha", "Beta", "GA", "Deprecated"].contains(&gate.stage)));
        for good in
            ["", "GracefulNodeShutdown=true", "kube:AllAlpha=false,APIServerIdentity=true", "EventedPLEG=f, AllBeta=0"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("Nonsense=true", "unrecognized feature gate: Nonsense"),
            ("AllAlpha", "missing bool value for AllAlpha"),
            ("AllAlpha=maybe", "invalid value of AllAlpha=maybe"),
            ("EventedPLEG=true", "EventedPLEG=true: it is off by default in v1.37 (Alpha)"),
            ("kube:APIServerIdentity=false", "APIServerIdentity=false: it is on by default in v1.37 (Beta)"),
        ] {
            let error = check(bad).expect_err(bad);
            assert!(error.starts_with(why), "{bad}: {error}");
        }
    }
}
