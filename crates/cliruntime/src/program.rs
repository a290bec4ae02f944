//! Programs of the user: an editor, a diff, plug-ins, the browser. The one place of this crate that starts any: they are what the user asked for
//! by name, with the user's own rights and terminal.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::Environment;
use crate::streams::Streams;

/// How a program ended: its exit code, or what kept it from running.
pub type Ended = Result<i32, String>;

/// Runs a program to its end, with the streams of whoever runs kubectl.
pub fn run(environment: &Environment, streams: &mut Streams, program: &Path, arguments: &[String]) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&environment.variables);
    if !environment.directory.as_os_str().is_empty() {
        command.current_dir(&environment.directory);
    }
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("exec: {:?}: executable file not found in $PATH", program.display()),
        _ => error.to_string(),
    };
    let status = if streams.own {
        // What was said before comes before what the program says.
        let _ = streams.out.flush();
        command.status().map_err(failed)?
    } else {
        let output = command.stdin(Stdio::null()).output().map_err(failed)?;
        streams.out.write_all(&output.stdout).map_err(|error| error.to_string())?;
        streams.err.write_all(&output.stderr).map_err(|error| error.to_string())?;
        output.status
    };
    status.code().ok_or_else(|| status.to_string())
}

/// Starts a program that goes on by itself, such as what opens a link in a browser: nothing waits for it, and it says nothing here.
pub fn start(environment: &Environment, program: &Path, arguments: &[String]) {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&environment.variables);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        std::thread::spawn(move || child.wait());
    }
}

/// Where the path has a program of this name.
pub fn find(environment: &Environment, name: &str) -> Option<PathBuf> {
    let path = environment.variable("PATH")?;
    std::env::split_paths(path).map(|directory| directory.join(name)).find(|file| is_executable(file))
}

pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}
