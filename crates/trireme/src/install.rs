//! `trireme install` and `uninstall`: this machine starts a server or an agent by itself.
//!
//! ```text
//! /usr/local/bin/trireme                   the program, copied
//! /etc/trireme/config.yaml                 its options; one that is there stays as it is
//! /etc/systemd/system/trireme.service      the unit
//! ```
//! Containers and etcd outlive the process on purpose, so the unit ends the process alone. What it may do on the machine is not narrowed further than the
//! kubelet's work allows: it mounts, makes network links and runs containers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use node::{private, run};

use crate::component::Failure;

const PROGRAM: &str = "usr/local/bin/trireme";
const UNIT: &str = "etc/systemd/system/trireme.service";
const CONFIG: &str = "etc/trireme/config.yaml";
const SERVICE: &str = "trireme.service";
/// Where systemd says that it runs.
const RUNNING: &str = "/run/systemd/system";
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Server,
    Agent,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct Install {
    /// What this machine is to be.
    #[arg(value_enum)]
    role: Role,
    /// An option of it, as data-dir=/var/lib/trireme, for a configuration that is not there yet; may be given several times.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Install below this directory, as for an image of a machine: nothing is started.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Write everything and start nothing.
    #[arg(long)]
    no_start: bool,
}

#[derive(Debug, clap::Args)]
pub struct Uninstall {
    /// What `install` was given.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Remove the configuration, too.
    #[arg(long)]
    configuration: bool,
    /// Remove this data directory, too: everything that the cluster or the node was. Run `trireme node clean` before it.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give an option and its value, as data-dir=/var/lib/trireme".to_owned()),
    }
}

/// The unit of a role.
fn unit(role: Role) -> String {
    // An agent renews its certificates by itself, and knows no such signal.
    let reload = match role {
        Role::Server => "# Looks at its certificates.\nExecReload=/bin/kill -HUP $MAINPID\n",
        Role::Agent => "",
    };
    let (role, limit) = (role.word(), 1_048_576);
    format!(
        "[Unit]
Description=Trireme, Kubernetes in one binary ({role})
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
NotifyAccess=main
ExecStart=/{PROGRAM} {role} --config /{CONFIG}
{reload}# Containers and etcd outlive the process, and the next start takes them over.
KillMode=process
Delegate=yes
Restart=always
RestartSec=2
WatchdogSec=60
TimeoutStartSec=0
TimeoutStopSec=90
LimitNOFILE={limit}
LimitNPROC=infinity
LimitCORE=0
TasksMax=infinity
OOMScoreAdjust=-999
UMask=0077
LockPersonality=yes
RestrictRealtime=yes
ProtectClock=yes
ProtectHostname=yes

[Install]
WantedBy=multi-user.target
"
    )
}

/// The first configuration. Values are texts as YAML has them in JSON's form, so that nothing in them is taken for anything else.
fn configuration(set: &[(String, String)]) -> Result<String, Failure> {
    let mut text =
        "# The options of `trireme server` or `trireme agent`, each by its name; `--help` names them.\n".to_owned();
    let usual = ("data-dir".to_owned(), "/var/lib/trireme".to_owned());
    let named = |key: &str| set.iter().any(|(known, _)| known == key);
    for (key, value) in [usual].iter().filter(|(key, _)| !named(key)).chain(set) {
        let value = match value.as_str() {
            truth @ ("true" | "false") => truth.to_owned(),
            value => serde_json::to_string(value)?,
        };
        let _ = writeln!(text, "{key}: {value}");
    }
    Ok(text)
}

pub async fn install(options: &Install) -> Result<(), Failure> {
    let at = |path: &str| options.root.join(path);
    let own = std::env::current_exe()?;
    let program = at(PROGRAM);
    if own.canonicalize()? != program.canonicalize().unwrap_or_default() {
        replace(&program, &std::fs::read(&own)?, 0o755)?;
        println!("{} installed", program.display());
    }
    let config = at(CONFIG);
    if config.exists() {
        println!("{} is there already and stays as it is", config.display());
    } else {
        let text = configuration(&options.set)?;
        let words = ["trireme".into(), options.role.word().into(), "--config".into(), config.clone().into_os_string()];
        private::directory(config.parent().unwrap_or(Path::new("/")))?;
        private::write(&config, text)?;
        // Better now than at the next boot.
        if let Err(error) = crate::config_file::expanded(words.into()) {
            std::fs::remove_file(&config)?;
            return Err(error.into());
        }
        println!("{} written", config.display());
    }
    replace(&at(UNIT), unit(options.role).as_bytes(), 0o644)?;
    println!("{} written", at(UNIT).display());
    if options.root == Path::new("/") && Path::new(RUNNING).is_dir() && !options.no_start {
        systemctl(&["daemon-reload"]).await?;
        systemctl(&["enable", "--now", SERVICE]).await?;
        println!("started: systemctl status trireme, journalctl -u trireme");
    }
    Ok(())
}

pub async fn uninstall(options: &Uninstall) -> Result<(), Failure> {
    let at = |path: &str| options.root.join(path);
    let live = options.root == Path::new("/") && Path::new(RUNNING).is_dir();
    if live && at(UNIT).exists() {
        systemctl(&["disable", "--now", SERVICE]).await?;
    }
    remove(&at(UNIT))?;
    if live {
        systemctl(&["daemon-reload"]).await?;
    }
    remove(&at(PROGRAM))?;
    if options.configuration {
        remove(&at("etc/trireme"))?;
    }
    if let Some(data) = &options.data_dir {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let below = data.canonicalize().unwrap_or_else(|_| data.clone()).display().to_string();
        if mounts.lines().filter_map(|line| line.split(' ').nth(1)).any(|at| Path::new(at).starts_with(&below)) {
            return Err(
                format!("containers are mounted below {below}: `trireme node clean --data-dir {below}` first").into()
            );
        }
        remove(data)?;
    }
    Ok(())
}

async fn systemctl(arguments: &[&str]) -> Result<(), Failure> {
    Ok(run::output("systemctl", arguments, b"", LIMIT).await.map(drop)?)
}

/// Puts a file in place whole, also where the old one is running.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let failed = |error: std::io::Error| Failure::from(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let partial = path.with_extension("new");
    std::fs::write(&partial, bytes).map_err(failed)?;
    std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    std::fs::rename(&partial, path).map_err(failed)
}

/// Removes a file or a directory. None there is no error.
fn remove(path: &Path) -> Result<(), Failure> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Ok(()) => {
            println!("{} removed", path.display());
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_says_how_the_process_is_started_watched_and_ended() {
        let unit = unit(Role::Server);
        for line in [
            "Type=notify",
            "ExecStart=/usr/local/bin/trireme server --config /etc/trireme/config.yaml",
            "KillMode=process",
            "WatchdogSec=60",
            "Restart=always",
        ] {
            assert!(unit.lines().any(|known| known == line), "{line}");
        }
    }

    #[test]
    fn options_become_a_configuration_that_can_be_read_back() {
        let set =
            [("tls-san", "a: b"), ("disable-agent", "true")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let text = configuration(&set).expect("a configuration");
        let read: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
        let expect = serde_json::json!({"data-dir": "/var/lib/trireme", "tls-san": "a: b", "disable-agent": true});
        assert_eq!(read, expect);
        assert!(pair("novalue").is_err() && pair("=x").is_err());
    }

    #[tokio::test]
    async fn an_installation_is_made_kept_and_undone() {
        let root = tempfile::tempdir().expect("a directory");
        let install_with = |set: &str| Install {
            role: Role::Server,
            set: vec![pair(set).expect("an option")],
            root: root.path().to_owned(),
            no_start: false,
        };
        let error = install(&install_with("nonsense=1")).await.expect_err("no such option").to_string();
        assert!(error.contains("has no option nonsense"), "{error}");
        assert!(!root.path().join(CONFIG).exists(), "nothing is left that cannot start");
        install(&install_with("https-port=7443")).await.expect("installed");
        install(&install_with("https-port=8443")).await.expect("installed again");
        let config = std::fs::read_to_string(root.path().join(CONFIG)).expect("a configuration");
        assert!(config.contains("https-port: \"7443\""), "{config}");
        assert!(root.path().join(UNIT).exists() && root.path().join(PROGRAM).exists());
        let options = |configuration| Uninstall { root: root.path().to_owned(), configuration, data_dir: None };
        uninstall(&options(false)).await.expect("undone");
        assert!(!root.path().join(UNIT).exists() && root.path().join(CONFIG).exists());
        uninstall(&options(true)).await.expect("undone");
        assert!(!root.path().join(CONFIG).exists());
    }
}
