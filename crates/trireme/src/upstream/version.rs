//! `--version` of upstream's programs: what they print, or which version they report instead of their own.

use rules::names::{GIT_VERSION, VERSION};
use rules::upstream::gates::truth;

/// The flag, which may stand without a value.
pub(super) const FLAG: &str = "version";

/// What [`Asked::Report`] becomes.
pub(super) const REPORTED: &str = "reported-version";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// This is printed, and nothing runs.
    Print(String),
    /// The program runs and reports the version that was given.
    Report,
    Nothing,
}

pub(super) fn asked(value: &str) -> Result<Asked, String> {
    let invalid = |why: String| format!("invalid argument {value:?} for \"--{FLAG}\" flag: {why}");
    if value == "raw" {
        return Ok(Asked::Print(raw()));
    }
    if let Some(version) = value.strip_prefix('v') {
        return reportable(version).map(|()| Asked::Report).map_err(invalid);
    }
    match truth(value) {
        Some(true) => Ok(Asked::Print(format!("Kubernetes {GIT_VERSION}"))),
        Some(false) => Ok(Asked::Nothing),
        None => Err(invalid(format!("strconv.ParseBool: parsing {value:?}: invalid syntax"))),
    }
}

/// Whether somebody may be told this version, given without its `v`: it is ours up to the patch, and says more behind it.
fn reportable(version: &str) -> Result<(), String> {
    let (numbers, more) = version.find(['-', '+']).map_or((version, ""), |end| version.split_at(end));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
    if numbers.split('.').count() != 3
        || !numbers.split('.').all(plain)
        || more.len() == 1
        || !more.bytes().all(allowed)
    {
        return Err(format!("could not parse \"v{version}\" as version"));
    }
    if numbers != VERSION.trim_start_matches('v') {
        return Err(format!("version \"v{version}\" must match major/minor/patch of default version {GIT_VERSION:?}"));
    }
    Ok(())
}

/// `version.Info` of the program alone, as Go shows a struct: what is emulated is the server's matter and empty here.
fn raw() -> String {
    const FIELDS: [(&str, &str); 13] = [
        ("Major", "major"),
        ("Minor", "minor"),
        ("EmulationMajor", ""),
        ("EmulationMinor", ""),
        ("MinCompatibilityMajor", ""),
        ("MinCompatibilityMinor", ""),
        ("GitVersion", "gitVersion"),
        ("GitCommit", "gitCommit"),
        ("GitTreeState", "gitTreeState"),
        ("BuildDate", "buildDate"),
        ("GoVersion", "goVersion"),
        ("Compiler", "compiler"),
        ("Platform", "platform"),
    ];
    let info = apiserver::version::info(None);
    let shown = |(name, key): &(&str, &str)| format!("{name}:{:?}", info[key].as_str().unwrap_or_default());
    format!("version.Info{{{}}}", FIELDS.iter().map(shown).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_version_of_its_own_it_says_which_it_is() {
        assert!(GIT_VERSION.starts_with(VERSION));
        assert_eq!(asked("true"), Ok(Asked::Print(format!("Kubernetes {GIT_VERSION}"))));
        assert_eq!(asked("false"), Ok(Asked::Nothing));
        let Ok(Asked::Print(raw)) = asked("raw") else { panic!("it is printed") };
        assert!(raw.starts_with("version.Info{Major:\"1\", Minor:\"37\", EmulationMajor:\"\""), "{raw}");
    }

    #[test]
    fn only_more_of_the_same_version_can_be_reported() {
        for version in ["v1.37.0-custom", "v1.37.0+trireme-0.1.0-custom", "v1.37.0"] {
            assert_eq!(asked(version), Ok(Asked::Report), "{version}");
        }
        for version in ["v1.37.1", "v1.36.0-x", "v1.37", "v1.37.0-", "v1.37.x", "v", "v1.37.0-a b", "maybe"] {
            assert!(asked(version).is_err(), "{version}");
        }
    }
}
