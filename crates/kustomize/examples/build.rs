//! Builds the kustomization in a directory, as `kubectl kustomize` does.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let directory = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    match kustomize::build(&directory, kustomize::Options::default(), &mut |line| eprintln!("{line}")) {
        Ok(built) => {
            print!("{}", built.yaml);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}", error.to_string().trim_end_matches('\n'));
            ExitCode::FAILURE
        }
    }
}
